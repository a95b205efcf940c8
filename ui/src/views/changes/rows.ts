// The diff of one file as rows: lines, folded stretches, comments, notes. Consecutive lines form blocks, which are drawn
// and measured together. Above: sections.ts. Below: the patch. Pure.

import type { Draft } from "../../state/review";
import type { Hunk, PatchFile, PatchLine } from "../../text/patch";
import type { Comment, Passage, Side } from "../../wire/changes";

/** There may be a hundred thousand of these, so their keys are made only when they are needed. */
class LineRow {
  readonly kind = "line";

  constructor(
    readonly line: PatchLine,
    /** -1: not part of the patch. */
    readonly hunk: number,
  ) {}

  get key(): string {
    return `${this.hunk}:${this.line.old}:${this.line.new}`;
  }
}

class PairRow {
  readonly kind = "pair";

  constructor(
    readonly left: PatchLine | null,
    readonly right: PatchLine | null,
    readonly hunk: number,
  ) {}

  get key(): string {
    return `${this.hunk}:${this.left?.old ?? 0}:${this.right?.new ?? 0}`;
  }
}

export type Row =
  | LineRow
  | PairRow
  | { kind: "hunk"; key: string; hunk: Hunk | null; index: number; gap: Gap | null }
  | ({ kind: "comment"; key: string; comment: Comment } & Placed)
  | ({ kind: "draft"; key: string; draft: Draft } & Placed)
  | { kind: "note"; key: string; text: string; offer: Offer | null }
  | { kind: "images"; key: string };

/** Where a comment is. */
interface Placed {
  /** Whether its lines are shown. */
  placed: boolean;
  /** By how many lines they have moved since. */
  shift: number;
}

const indexes = new WeakMap<Row[], Map<string, number>>();

/** The index of a row by its key; -1 if there is none. Only the keys that were asked for are remembered: all rows change
 * with each comment. */
export function indexOf(rows: Row[], key: string): number {
  let known = indexes.get(rows);
  if (!known) indexes.set(rows, (known = new Map()));
  let found = known.get(key);
  if (found === undefined) known.set(key, (found = rows.findIndex((row) => row.key === key)));
  return found;
}

/** What a note offers to do about it. */
export type Offer = "read" | "content";

/** Unchanged lines that are not shown, before a hunk or after the last one. */
export interface Gap {
  index: number;
  /** The first hidden line in both files. */
  old: number;
  new: number;
  /** Null: not known, because the end of the file is not. */
  count: number | null;
}

/** How many lines of a gap are shown, after the earlier hunk and before the next one. */
export interface Unfolded {
  top: number;
  bottom: number;
}

export interface Block {
  key: string;
  rows: Row[];
  /** The index of its first row. */
  from: number;
}

const BLOCK_ROWS = 24;
const CONTEXT_LINES = 3;

export interface Wanted {
  split: boolean;
  unfolded: ReadonlyMap<number, Unfolded>;
  /** The lines of the new file, if they were needed. */
  content: readonly string[] | null;
  /** Whether the lines between the hunks can be fetched. */
  unfolds: boolean;
}

export function rowsOf(patch: PatchFile, wanted: Wanted): Row[] {
  const lines: Row[] = [];
  let old = 1;
  let fresh = 1;
  patch.hunks.forEach((hunk, index) => {
    const firstOld = hunk.oldCount ? hunk.old : hunk.old + 1;
    const firstNew = hunk.newCount ? hunk.new : hunk.new + 1;
    stretch(lines, { index, old, new: fresh, count: wanted.unfolds ? Math.max(0, firstNew - fresh) : 0 }, hunk, wanted, patch.hunks.length > 1);
    addLines(lines, hunk.lines, index, wanted.split);
    old = firstOld + hunk.oldCount;
    fresh = firstNew + hunk.newCount;
  });
  const last = patch.hunks[patch.hunks.length - 1];
  if (last && wanted.unfolds && !isAtEnd(last)) {
    const count = wanted.content ? wanted.content.length - fresh + 1 : null;
    if (count !== 0) stretch(lines, { index: patch.hunks.length, old, new: fresh, count }, null, wanted, true);
  }
  return lines;
}

/** The last hunk shows fewer unchanged lines below the change than git would, so the file ends there. */
function isAtEnd(hunk: Hunk): boolean {
  const changed = hunk.lines.findLastIndex((line) => line.kind !== "same");
  return hunk.lines.length - 1 - changed < CONTEXT_LINES || !!hunk.lines[hunk.lines.length - 1]?.open;
}

/** The unchanged lines before a hunk: what is unfolded, and the row for the rest. */
function stretch(rows: Row[], gap: Gap, hunk: Hunk | null, { unfolded, content, split }: Wanted, several: boolean): void {
  const shown = unfolded.get(gap.index) ?? { top: 0, bottom: 0 };
  const most = gap.count ?? 0;
  const top = content ? Math.min(shown.top, most) : 0;
  const bottom = content ? Math.min(shown.bottom, most - top) : 0;
  const add = (from: number, count: number) => {
    const lines = Array.from({ length: count }, (_, at): PatchLine => ({ kind: "same", text: content![gap.new + from + at - 1] ?? "", old: gap.old + from + at, new: gap.new + from + at }));
    addLines(rows, lines, -1, split);
  };
  add(0, top);
  const rest = gap.count === null ? null : gap.count - top - bottom;
  // The only hunk, at the start of the file, needs no row.
  const says = rest !== 0 || gap.index > 0 || !!hunk?.heading || several;
  if (says && (hunk || rest !== 0)) {
    rows.push({ kind: "hunk", key: `hunk${gap.index}`, hunk, index: gap.index, gap: rest === 0 ? null : { ...gap, old: gap.old + top, new: gap.new + top, count: rest } });
  }
  add(most - bottom, bottom);
}

function addLines(rows: Row[], lines: PatchLine[], hunk: number, split: boolean): void {
  if (!split) {
    for (const line of lines) rows.push(new LineRow(line, hunk));
    return;
  }
  const pair = (left: PatchLine | null, right: PatchLine | null) => rows.push(new PairRow(left, right, hunk));
  for (let at = 0; at < lines.length; ) {
    if (lines[at]!.kind === "same") {
      pair(lines[at]!, lines[at]!);
      at++;
      continue;
    }
    const removed: PatchLine[] = [];
    const added: PatchLine[] = [];
    while (lines[at]?.kind === "removed") removed.push(lines[at++]!);
    while (lines[at]?.kind === "added") added.push(lines[at++]!);
    for (let one = 0; one < Math.max(removed.length, added.length); one++) pair(removed[one] ?? null, added[one] ?? null);
  }
}

// Comments ----------------------------------------------------------------------------------------------------------------

/** The line of a row on one side. An unchanged line is on both. */
export function lineOn(row: Row, side: Side): PatchLine | null {
  if (row.kind === "line") return row.line[side] ? row.line : null;
  if (row.kind !== "pair") return null;
  const line = side === "old" ? row.left : row.right;
  return line?.[side] ? line : null;
}

/** The row to go to instead of one that is not there any more: the line with the nearest number. The old file stays the
 * same, so its numbers come first. `at`: the index that the row had. */
export function nearest(rows: Row[], gone: Row, at: number): number {
  const side: Side = lineOn(gone, "old") ? "old" : "new";
  const number = lineOn(gone, side)?.[side];
  let [best, distance] = [Math.min(at, rows.length - 1), Infinity];
  if (number === undefined) return best;
  rows.forEach((row, index) => {
    const away = Math.abs((lineOn(row, side)?.[side] ?? Infinity) - number);
    if (away < distance) [best, distance] = [index, away];
  });
  return best;
}

/** Longer quotes are cut here by the server. */
const QUOTED_CHARS = 4000;

/** A line of one side, and its row. */
interface SideLine {
  index: number;
  text: string;
  number: number;
}

export const linesOn = (rows: Row[], side: Side): SideLine[] =>
  rows.flatMap((row, index) => {
    const line = lineOn(row, side);
    return line ? [{ index, text: line.text, number: line[side] }] : [];
  });

/** The row below which a comment goes; -1 if its lines are not shown. `on`: the lines of its side. Changes move lines, so the nearest ones that say
 * what was quoted are meant. */
export function rowFor(on: SideLine[], passage: Passage): number {
  const last = passage.end_line ?? passage.line;
  const quote = passage.quote;
  const count = last - passage.line + 1;
  const isCut = !!quote && quote.length >= QUOTED_CHARS;
  const end = quote && !isCut ? quote.slice(quote.lastIndexOf("\n") + 1) : null;
  const says = (at: number) => {
    if (!quote) return on[at]!.number === last;
    if (end !== null && on[at]!.text !== end) return false;
    const lines = on.slice(Math.max(0, at - count + 1), at + 1);
    if (lines.length < count || lines[0]!.number !== lines[count - 1]!.number - count + 1) return false;
    const text = lines.map((line) => line.text).join("\n");
    return isCut ? text.startsWith(quote) : text === quote;
  };
  let [best, distance] = [-1, Infinity];
  on.forEach(({ index, number }, at) => {
    const away = Math.abs(number - last);
    if (away < distance && says(at)) [best, distance] = [index, away];
  });
  return best;
}

/** The lines of a file, with the comments on them. */
export function withComments(rows: Row[], comments: Comment[], drafts: Draft[]): Row[] {
  if (!comments.length && !drafts.length) return rows;
  const on: Partial<Record<Side, SideLine[]>> = {};
  const after = new Map<number, Row[]>();
  const put = (passage: Passage, make: (placed: Placed) => Row) => {
    const at = rowFor((on[passage.side] ??= linesOn(rows, passage.side)), passage);
    const shift = at < 0 ? 0 : lineOn(rows[at]!, passage.side)![passage.side] - (passage.end_line ?? passage.line);
    after.set(at, [...(after.get(at) ?? []), make({ placed: at >= 0, shift })]);
  };
  for (const comment of comments) put(comment, (placed) => ({ kind: "comment", key: "comment:" + comment.comment_id, comment, ...placed }));
  for (const draft of drafts) put(draft, (placed) => ({ kind: "draft", key: "draft:" + draft.id, draft, ...placed }));
  return [...(after.get(-1) ?? []), ...rows.flatMap((row, index) => (after.has(index) ? [row, ...after.get(index)!] : [row]))];
}

// Blocks ------------------------------------------------------------------------------------------------------------------

const isLines = (row: Row) => row.kind === "line" || row.kind === "pair";

export function blocksOf(rows: Row[]): Block[] {
  const blocks: Block[] = [];
  for (let from = 0; from < rows.length; ) {
    let to = from + 1;
    if (isLines(rows[from]!)) while (to < rows.length && to - from < BLOCK_ROWS && isLines(rows[to]!)) to++;
    blocks.push({ key: rows[from]!.key, rows: rows.slice(from, to), from });
    from = to;
  }
  return blocks;
}
