// The line cursor of the diffs and the chosen lines: where a key moves it, and which lines a comment is about. Above:
// the list of diffs. Below: rows and sections. Pure.

import type { PatchLine } from "../../text/patch";
import type { Passage, Side } from "../../wire/changes";
import { indexOf, lineOn, type Row } from "./rows";
import { step } from "./scrolling";
import type { Section } from "./sections";

export interface Cursor {
  path: string;
  /** The row; null: the file's heading. */
  key: string | null;
  /** Where the chosen rows begin, if there are several. */
  start: string | null;
  side: Side;
}

export interface Spot {
  section: number;
  row: number;
}

/** The server takes no longer ones. */
const MOST_QUOTED_CHARS = 100_000;
/** A line of a file that a program has written may have millions. */
const SPOKEN_CHARS = 500;

export function spotOf(sections: Section[], cursor: Cursor | null): Spot | null {
  if (!cursor) return null;
  const section = sections.findIndex((one) => one.path === cursor.path);
  if (section < 0) return null;
  return { section, row: cursor.key === null ? -1 : indexOf(sections[section]!.rows, cursor.key) };
}

const isLine = (row: Row | undefined) => row?.kind === "line" || row?.kind === "pair";
const isChanged = (row: Row | undefined) => (row?.kind === "line" ? row.line.kind !== "same" : row?.kind === "pair" ? row.left !== row.right : false);

const isComment = (row: Row | undefined) => row?.kind === "comment" || row?.kind === "draft";

/** Whether a change begins at this row. A comment in between does not end it. */
function begins(rows: Row[], row: number): boolean {
  let before = row - 1;
  while (isComment(rows[before])) before--;
  return isChanged(rows[row]) && !isChanged(rows[before]);
}

export type Move = "line" | "change" | "file";

/** Where the cursor goes. Comments are passed: the Tab key reaches them. */
export function moved(sections: Section[], at: Spot, by: 1 | -1, move: Move): Spot | null {
  return step(sections, at, by, ({ rows }, row) => {
    if (move === "file") return row === -1;
    if (move === "change") return row >= 0 && begins(rows, row);
    return row === -1 || (!isComment(rows[row]) && rows[row]!.kind !== "images");
  });
}

/** The next line in the same file, to choose several. */
export function extended(sections: Section[], at: Spot, by: 1 | -1): Spot | null {
  const next = step(sections, at, by, ({ rows }, row) => isLine(rows[row]));
  return next && next.section === at.section && withinHunk(sections[at.section]!, at.row, next.row) === next.row ? next : null;
}

/** The last row on the way from one to another that belongs to the same stretch of lines: lines that are not shown can't
 * be chosen. */
export function withinHunk({ rows }: Section, from: number, to: number): number {
  const by = Math.sign(to - from);
  let reached = from;
  for (let at = from; at !== to + by && rows[at]?.kind !== "hunk"; at += by) {
    if (isLine(rows[at])) reached = at;
    if (!by) break;
  }
  return reached;
}

/** The side that a row can be commented on: where it has a line. */
export function sideOf(row: Row | undefined, wanted: Side): Side {
  if (!row) return wanted;
  return lineOn(row, wanted) ? wanted : wanted === "new" ? "old" : "new";
}

/** The chosen lines of a file, on one side. Null if no line is chosen. */
export function passageOf(section: Section, from: number, to: number, side: Side, turn: number | null): Passage | null {
  const chosen = section.rows.slice(Math.min(from, to), Math.max(from, to) + 1);
  const on = (wanted: Side) => chosen.map((row) => lineOn(row, wanted)).filter((line): line is PatchLine => line !== null);
  const real = on(side).length ? side : side === "new" ? "old" : "new";
  const lines = on(real);
  if (!lines.length) return null;
  const [line, end] = [lines[0]![real], lines[lines.length - 1]![real]];
  const quote = lines.map((one) => one.text).join("\n").slice(0, MOST_QUOTED_CHARS);
  return { path: section.path, side: real, line, end_line: end === line ? null : end, turn, quote };
}

/** `shift`: by how many lines they have moved since. */
export function linesOf({ line, end_line, side }: Passage, shift = 0): string {
  const which = end_line && end_line !== line ? `Lines ${line + shift} to ${end_line + shift}` : `Line ${line + shift}`;
  return side === "old" ? `${which}, before the change` : which;
}

/** The hunk under the cursor; null: none. */
export function hunkAt(section: Section, row: number): number | null {
  const found = section.rows[row];
  if (found?.kind === "hunk") return found.hunk ? found.index : null;
  if (found?.kind === "line" || found?.kind === "pair") return found.hunk >= 0 ? found.hunk : null;
  return null;
}

/** What a screen reader says about the row under the cursor. */
export function spoken(section: Section, row: number, side: Side): string {
  const found = section.rows[row];
  if (!found) return section.path;
  if (found.kind === "note") return found.text;
  if (found.kind === "hunk") return found.gap?.count ? `${found.gap.count} unchanged lines` : (found.hunk?.heading ?? "The rest of the file");
  const line = lineOn(found, sideOf(found, side));
  return line ? `Line ${line[sideOf(found, side)]}${line.kind === "same" ? "" : `, ${line.kind}`}: ${line.text.slice(0, SPOKEN_CHARS)}` : "";
}
