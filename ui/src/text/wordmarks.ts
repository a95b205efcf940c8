// Which words of a changed line changed: pairs of a removed and an added line, and the ranges in them. Above: the diff
// views. Below: the comparison of lines, used for words.

import { compare } from "./difference";
import type { PatchLine } from "./patch";

/** A passage of a line: from this character, up to that one. */
export type Range = [number, number];

/** Lines with fewer words in common are not the same line changed, but another one. */
const LEAST_ALIKE = 0.4;
const MOST_CHARS = 1000;
/** Passages with more pairs are matched in order instead of by likeness. */
const MOST_PAIRS = 400;
const MOST_LINES = 200;

const wordsOf = (text: string): string[] => text.match(/[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu) ?? [];

/** The changed words of each line, for a passage of removed lines followed by added ones. */
export function marksOf(lines: PatchLine[]): Map<PatchLine, Range[]> {
  const marks = new Map<PatchLine, Range[]>();
  const removed = lines.filter((line) => line.kind === "removed");
  const added = lines.filter((line) => line.kind === "added");
  if (!removed.length || !added.length || removed.length > MOST_LINES || added.length > MOST_LINES) return marks;
  for (const [old, fresh] of pairs(removed, added)) {
    const a = wordsOf(old.text);
    const b = wordsOf(fresh.text);
    const compared = compare(a, b);
    marks.set(old, ranges(a, compared.removed));
    marks.set(fresh, ranges(b, compared.added));
  }
  return marks;
}

function ranges(words: string[], changed: Uint8Array): Range[] {
  const found: Range[] = [];
  let at = 0;
  words.forEach((word, index) => {
    const last = found[found.length - 1];
    // Blanks between two changed words belong to the change.
    const between = !word.trim() && last?.[1] === at && changed[index + 1];
    if (changed[index] || between) {
      if (last?.[1] === at) last[1] += word.length;
      else found.push([at, at + word.length]);
    }
    at += word.length;
  });
  return found;
}

/** Removed lines with the added lines that replaced them, in order, as alike as possible. */
function pairs(removed: PatchLine[], added: PatchLine[]): [PatchLine, PatchLine][] {
  const bags = new Map([...removed, ...added].map((line) => [line, bagOf(line.text)]));
  const alike = (a: PatchLine, b: PatchLine) => likeness(bags.get(a)!, bags.get(b)!);
  if (removed.length === added.length || removed.length * added.length > MOST_PAIRS) {
    return removed.slice(0, added.length).map((line, index): [PatchLine, PatchLine] => [line, added[index]!]).filter(([a, b]) => alike(a, b) >= LEAST_ALIKE);
  }
  // The best total from each pair of positions on.
  const best: number[][] = Array.from({ length: removed.length + 1 }, () => new Array<number>(added.length + 1).fill(0));
  const values = removed.map((a) => added.map((b) => alike(a, b)));
  for (let x = removed.length - 1; x >= 0; x--) {
    for (let y = added.length - 1; y >= 0; y--) {
      const value = values[x]![y]!;
      best[x]![y] = Math.max(best[x + 1]![y]!, best[x]![y + 1]!, value >= LEAST_ALIKE ? value + best[x + 1]![y + 1]! : 0);
    }
  }
  const found: [PatchLine, PatchLine][] = [];
  for (let x = 0, y = 0; x < removed.length && y < added.length; ) {
    const value = values[x]![y]!;
    if (value >= LEAST_ALIKE && best[x]![y] === value + best[x + 1]![y + 1]!) found.push([removed[x++]!, added[y++]!]);
    else if (best[x]![y] === best[x + 1]![y]) x++;
    else y++;
  }
  return found;
}

interface Bag {
  words: Map<string, number>;
  size: number;
}

function bagOf(text: string): Bag {
  const words = new Map<string, number>();
  let size = 0;
  if (text.length > MOST_CHARS) return { words, size };
  for (const word of wordsOf(text)) {
    if (!word.trim()) continue;
    words.set(word, (words.get(word) ?? 0) + word.length);
    size += word.length;
  }
  return { words, size };
}

/** From 0 to 1: how much of both lines consists of the same words. Lines that are too long are never alike. */
function likeness(a: Bag, b: Bag): number {
  let same = 0;
  for (const [word, size] of a.words) same += Math.min(size, b.words.get(word) ?? 0);
  return a.size + b.size ? (2 * same) / (a.size + b.size) : 0;
}
