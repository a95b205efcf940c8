// The scroll position of a long page of which only the visible part is drawn: which sections and blocks that is, and
// keeping the reader's place when something above changes its height. Above: the list of diffs. Below: sections.ts. Pure.

import { heightOf, partAt, stacked, type Metrics } from "./heights";
import { indexOf, nearest, type Row } from "./rows";
import type { Section } from "./sections";

/** How far beyond the edges is drawn too. */
const OVERSCAN_PX = 400;

export interface Range {
  /** The sections to draw, and the blocks of each. */
  from: number;
  to: number;
  blocks: [from: number, to: number][];
}

export const topsOf = (sections: Section[]) => stacked(sections.map((section) => section.height));

export function rangeAt(sections: Section[], tops: number[], top: number, height: number, metrics: Metrics): Range {
  if (!sections.length) return { from: 0, to: 0, blocks: [] };
  const [low, high] = [top - OVERSCAN_PX, top + height + OVERSCAN_PX];
  const from = partAt(tops, low);
  const to = partAt(tops, high) + 1;
  const blocks = sections.slice(from, to).map((section, index): [number, number] => {
    if (!section.blocks.length) return [0, 0];
    const start = tops[from + index]! + metrics.headPx;
    return [partAt(section.tops, low - start), partAt(section.tops, high - start) + 1];
  });
  return { from, to, blocks };
}

export const sameRange = (a: Range, b: Range) => a.from === b.from && a.to === b.to && a.blocks.every(([from, to], index) => b.blocks[index]![0] === from && b.blocks[index]![1] === to);

/** Where a row is, from the top of its section. */
export function rowTop(section: Section, row: number, metrics: Metrics): number {
  if (row < 0 || !section.blocks.length) return 0;
  let at = section.blocks.findLastIndex((block) => block.from <= row);
  if (at < 0) at = 0;
  const block = section.blocks[at]!;
  let above = 0;
  for (const one of block.rows.slice(0, row - block.from)) above += heightOf(one, metrics);
  return metrics.headPx + Math.min(section.tops[at]! + above, section.tops[at + 1]!);
}

/** A place in the page that stays the same while heights change. */
export interface Anchor {
  path: string;
  /** The row at the top of the window and its index; null: the heading. */
  key: string | null;
  row: { is: Row; at: number } | null;
  /** How far below the top of the row the window begins. */
  offset: number;
}

/** The place just below the heading that stays in sight. */
export function anchorAt(sections: Section[], tops: number[], top: number, metrics: Metrics): Anchor | null {
  const index = partAt(tops, top);
  const section = sections[index];
  if (!section) return null;
  const inside = top - tops[index]!;
  const row = rowAtPosition(section, inside + metrics.headPx, metrics);
  if (inside <= 0 || row < 0) return { path: section.path, key: null, row: null, offset: inside };
  return { path: section.path, key: section.rows[row]!.key, row: { is: section.rows[row]!, at: row }, offset: inside - rowTop(section, row, metrics) };
}

function rowAtPosition(section: Section, position: number, metrics: Metrics): number {
  if (!section.blocks.length) return -1;
  const at = partAt(section.tops, position - metrics.headPx);
  const block = section.blocks[at]!;
  let left = position - metrics.headPx - section.tops[at]!;
  for (const [index, row] of block.rows.entries()) {
    left -= heightOf(row, metrics);
    if (left < 0) return block.from + index;
  }
  return block.from + block.rows.length - 1;
}

/** Where the window has to begin to show this place again. Null: it is gone. */
export function positionOf(anchor: Anchor, sections: Section[], tops: number[], metrics: Metrics): number | null {
  const index = sections.findIndex((section) => section.path === anchor.path);
  if (index < 0) return null;
  const section = sections[index]!;
  if (anchor.row === null) return tops[index]! + anchor.offset;
  if (!section.rows.length) return tops[index]!;
  const known = indexOf(section.rows, anchor.row.is.key);
  const row = known < 0 ? nearest(section.rows, anchor.row.is, anchor.row.at) : known;
  return tops[index]! + rowTop(section, row, metrics) + anchor.offset;
}

/** The row that the cursor moves to, over sections: the next one in this direction that is wanted. Row -1 is the heading. */
export function step(sections: Section[], at: { section: number; row: number }, by: 1 | -1, wanted: (section: Section, row: number) => boolean): { section: number; row: number } | null {
  let { section, row } = at;
  for (;;) {
    row += by;
    if (row >= (sections[section]?.rows.length ?? 0)) {
      section += 1;
      row = -1;
    } else if (row < -1) {
      section -= 1;
      row = (sections[section]?.rows.length ?? 0) - 1;
    }
    const found = sections[section];
    if (!found) return null;
    if (wanted(found, row)) return { section, row };
  }
}
