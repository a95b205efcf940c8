// The changed files as sections of one long page: the rows of each, and where they are. Above: the list of diffs. Below:
// rows.ts and heights.ts. A section is computed again only if something in it changed. Pure.

import type { Draft } from "../../state/review";
import type { FileState } from "../../state/changes";
import { bytes, plural } from "../../text/words";
import type { ChangedFile, Comment } from "../../wire/changes";
import { blockHeight, stacked, type Metrics } from "./heights";
import { blocksOf, rowsOf, withComments, type Block, type Row, type Unfolded } from "./rows";

export interface Section {
  path: string;
  one: FileState;
  collapsed: boolean;
  rows: Row[];
  blocks: Block[];
  /** Where each block begins, below the heading; the last entry is the end. */
  tops: number[];
  height: number;
}

export interface Options {
  split: boolean;
  /** Whether the files' contents can be fetched. */
  contents: boolean;
  metrics: Metrics;
  collapsed: ReadonlySet<string>;
  unfolded: ReadonlyMap<string, ReadonlyMap<number, Unfolded>>;
  content: ReadonlyMap<string, readonly string[]>;
  comments: ReadonlyMap<string, Comment[]>;
  drafts: ReadonlyMap<string, Draft[]>;
}

/** Below each section. */
const GAP_PX = 12;
const NO_UNFOLDED: ReadonlyMap<number, Unfolded> = new Map();
const NO_COMMENTS: Comment[] = [];
const NO_DRAFTS: Draft[] = [];
const CONTENT_LIMIT_BYTES = 5 * 1024 * 1024;

interface Made {
  of: unknown[];
  /** Without comments. */
  lines: Row[];
  linesOf: unknown[];
  rows: Row[];
  blocks: Block[];
}

export class SectionMaker {
  private readonly made = new Map<string, Made>();
  private readonly sections = new Map<string, { of: unknown[]; section: Section }>();
  /** The real heights of blocks, by their rows. */
  private readonly measured = new WeakMap<Row[], number>();

  /** A block was drawn. Returns by how much it differs from what was expected. */
  measure(section: Section, index: number, height: number): number {
    const block = section.blocks[index]!;
    const before = section.tops[index + 1]! - section.tops[index]!;
    if (Math.abs(before - height) < 0.5) return 0;
    this.measured.set(block.rows, height);
    this.sections.delete(section.path);
    return height - before;
  }

  make(files: FileState[], options: Options): Section[] {
    return files.map((one) => this.section(one, options));
  }

  private section(one: FileState, options: Options): Section {
    const path = one.file.path;
    const collapsed = options.collapsed.has(path);
    const { rows, blocks } = this.rows(one, options);
    const of = [collapsed, rows, options.metrics, one];
    const known = this.sections.get(path);
    if (known && same(known.of, of)) return known.section;
    const shown = collapsed ? [] : blocks;
    const tops = stacked(shown.map((block) => this.measured.get(block.rows) ?? blockHeight(block, options.metrics)));
    const section = { path, one, collapsed, rows: collapsed ? [] : rows, blocks: shown, tops, height: options.metrics.headPx + tops[tops.length - 1]! + GAP_PX };
    this.sections.set(path, { of, section });
    return section;
  }

  private rows(one: FileState, options: Options): Made {
    const path = one.file.path;
    const comments = options.comments.get(path) ?? NO_COMMENTS;
    const drafts = options.drafts.get(path) ?? NO_DRAFTS;
    const unfolded = options.unfolded.get(path) ?? NO_UNFOLDED;
    const content = options.content.get(path) ?? null;
    const linesOf = [one, unfolded, content, options.split, options.contents];
    const of = [...linesOf, comments, drafts];
    const known = this.made.get(path);
    if (known && same(known.of, of)) return known;
    const lines = known && same(known.linesOf, linesOf) ? known.lines : this.lines(one, options, unfolded, content);
    const rows = [...notesOf(one, options.contents), ...withComments(lines, comments, drafts)];
    const blocks = kept(blocksOf(rows), known?.blocks ?? []);
    const made = { of, lines, linesOf, rows, blocks };
    this.made.set(path, made);
    return made;
  }

  private lines(one: FileState, { split, contents }: Options, unfolded: ReadonlyMap<number, Unfolded>, content: readonly string[] | null): Row[] {
    const whole = ["added", "deleted"].includes(one.file.status);
    const unfolds = contents && !whole && (one.file.new_size ?? 0) < CONTENT_LIMIT_BYTES;
    const patch = one.patch ?? { path: one.file.path, oldPath: null, ids: null, binary: false, hunks: [] };
    const lines = rowsOf(patch, { split, unfolded, content, unfolds });
    // A new or deleted file is one hunk, so its heading says nothing.
    return whole && patch.hunks.length < 2 ? lines.filter((row) => row.kind !== "hunk") : lines;
  }
}

/** The same blocks as before where their rows are the same, so that they are not drawn or measured again. */
function kept(blocks: Block[], before: Block[]): Block[] {
  const known = new Map(before.map((block) => [block.key, block.rows]));
  return blocks.map((block) => {
    const rows = known.get(block.key);
    return rows?.length === block.rows.length && rows.every((row, index) => sameRow(row, block.rows[index]!)) ? { ...block, rows } : block;
  });
}

function sameRow(a: Row, b: Row): boolean {
  if (a === b) return true;
  if (a.kind !== b.kind || a.key !== b.key) return false;
  if (a.kind === "line" && b.kind === "line") return a.line === b.line;
  if (a.kind === "pair" && b.kind === "pair") return a.left === b.left && a.right === b.right;
  if (a.kind === "comment" && b.kind === "comment") return a.comment === b.comment && a.placed === b.placed && a.shift === b.shift;
  if (a.kind === "draft" && b.kind === "draft") return a.draft === b.draft && a.placed === b.placed && a.shift === b.shift;
  return JSON.stringify(a) === JSON.stringify(b);
}

const same = (a: unknown[], b: unknown[]) => a.length === b.length && a.every((one, index) => one === b[index]);

const MODES: Record<string, string> = { "100644": "a file", "100755": "an executable file", "120000": "a link", "160000": "a submodule" };
const modeWords = (mode: string) => MODES[mode] ?? `mode ${mode}`;

function modeSaid(before: string, after: string): string {
  if (before === "100644" && after === "100755") return "Now executable.";
  if (before === "100755" && after === "100644") return "No longer executable.";
  return `Was ${modeWords(before)}, is now ${modeWords(after)}.`;
}

/** What can't be shown as lines. */
function notesOf(one: FileState, contents: boolean): Row[] {
  const { file, state, patch, trouble } = one;
  const rows: Row[] = [];
  const note = (text: string, offer: "read" | "content" | null = null) => rows.push({ kind: "note", key: `note${rows.length}`, text, offer });
  if (file.only_outside) note("Changed by you or another program, not by a turn of this session.");
  if (file.status !== "added" && file.status !== "deleted" && file.old_mode && file.new_mode && file.old_mode !== file.new_mode) note(modeSaid(file.old_mode, file.new_mode));
  const whose = file.only_outside ? 1 : 0;
  if (file.image && contents) rows.push({ kind: "images", key: "images" });
  if (file.binary) {
    if (!rows.some((row) => row.kind === "images")) note(sizes(file), contents ? "content" : null);
    return rows;
  }
  if (state === "loading") note("Loading");
  else if (state === "failed") note(`Can't load the diff. ${trouble}`, "read");
  else if (state === "too_large") note(`The diff is too large to show (${changedLines(file)}).`, contents ? "content" : null);
  else if (state === "left_out") note(`The patch of all files is too large, so this one was left out (${changedLines(file)}).`, "read");
  else if (!patch?.hunks.length && rows.length === whose) note(nothing(file));
  return rows;
}

const changedLines = (file: ChangedFile) => (file.added === null || file.removed === null ? "lines not counted" : plural(file.added + file.removed, "changed line"));

function sizes({ old_size, new_size, status }: ChangedFile): string {
  if (status === "deleted") return old_size === null ? "A binary file." : `A binary file of ${bytes(old_size)}.`;
  if (new_size === null) return "A binary file.";
  return old_size === null || status === "added" ? `A binary file of ${bytes(new_size)}.` : `A binary file: ${bytes(old_size)} before, ${bytes(new_size)} after.`;
}

function nothing({ status, new_size, old_size, new_id, old_id }: ChangedFile): string {
  if (status === "renamed") return "Renamed, with the same content.";
  if (status === "added" && new_size === 0) return "A new, empty file.";
  if (status === "deleted" && old_size === 0) return "It was empty.";
  // Only without changes of whitespace, a different content can have no lines.
  return old_id && new_id && old_id !== new_id ? "Only whitespace differs." : "No line differs.";
}
