// How tall rows and files will be, before they are drawn. Above: the list of diffs, which draws only what is in sight and
// corrects what was estimated wrongly. Below: rows.ts. Pure.

import type { Block, Row } from "./rows";

export interface Metrics {
  linePx: number;
  /** How many characters fit into a line. */
  columns: number;
  /** The height of a file's heading. */
  headPx: number;
  hunkPx: number;
}

const TAB = 4;
const COMMENT_PX = 96;
const DRAFT_PX = 190;
const NOTE_PX = 44;
const IMAGES_PX = 280;
const PLAIN = /^[\x20-\x7e]*$/;
/** Longer lines are cut when they are shown. */
export const SHOWN_CHARS = 1000;

/** How many lines of this many columns a text takes. It breaks after blanks, and anywhere in longer words. */
export function linesFor(text: string, columns: number): number {
  if (text.length <= columns && PLAIN.test(text)) return 1;
  let lines = 1;
  let column = 0;
  /** The width of the current word so far. */
  let word = 0;
  let shown = 0;
  for (const letter of text) {
    if (++shown > SHOWN_CHARS) break;
    const blank = letter === " " || letter === "\t";
    const width = letter === "\t" ? TAB - (column % TAB) : isWide(letter) ? 2 : 1;
    if (column + width > columns && !blank) {
      lines++;
      column = word < column && word < columns ? word : 0;
    }
    column += width;
    word = blank ? 0 : Math.min(column, word + width);
  }
  return lines;
}

/** Chinese, Japanese and Korean letters and most symbols in colour take two columns. */
function isWide(letter: string): boolean {
  const code = letter.codePointAt(0)!;
  return code >= 0x1100 && (code <= 0x115f || (code >= 0x2e80 && code <= 0xa4cf) || (code >= 0xac00 && code <= 0xd7a3) || (code >= 0xf900 && code <= 0xfaff) || (code >= 0xff00 && code <= 0xff60) || (code >= 0x1f300 && code <= 0x1faff) || code >= 0x20000);
}

export function heightOf(row: Row, metrics: Metrics): number {
  switch (row.kind) {
    case "line":
      return metrics.linePx * linesFor(row.line.text, metrics.columns);
    case "pair":
      return metrics.linePx * Math.max(row.left ? linesFor(row.left.text, metrics.columns) : 1, row.right ? linesFor(row.right.text, metrics.columns) : 1);
    case "hunk":
      return metrics.hunkPx;
    case "comment":
      return COMMENT_PX;
    case "draft":
      return row.draft.open ? DRAFT_PX : COMMENT_PX;
    case "note":
      return NOTE_PX;
    case "images":
      return IMAGES_PX;
  }
}

export const blockHeight = (block: Block, metrics: Metrics) => block.rows.reduce((sum, row) => sum + heightOf(row, metrics), 0);

/** Where each part begins if they are stacked; the last entry is the end. */
export function stacked(heights: number[]): number[] {
  const tops = [0];
  for (const height of heights) tops.push(tops[tops.length - 1]! + height);
  return tops;
}

/** The last part that begins at or above this position. */
export function partAt(tops: number[], position: number): number {
  let [low, high] = [0, Math.max(0, tops.length - 2)];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (tops[middle]! <= position) low = middle;
    else high = middle - 1;
  }
  return low;
}
