// Line diffs of any size: correct, close to the shortest, and fast.

import { describe, expect, it } from "vitest";
import { compare, counted, counts, difference, linesOf } from "../src/text/difference";

/** On an idle machine it takes about 30 ms. */
const SURELY_MS = 1000;

function randomly(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** The length of the longest common subsequence, computed slowly. */
function longest(a: string[], b: string[]): number {
  let row = new Array<number>(b.length + 1).fill(0);
  for (const line of a) {
    const next = [0];
    for (let at = 1; at <= b.length; at++) next[at] = line === b[at - 1] ? row[at - 1]! + 1 : Math.max(row[at]!, next[at - 1]!);
    row = next;
  }
  return row[b.length]!;
}

/** The lines without marks, which both sides have in common. */
const common = (lines: string[], marks: Uint8Array) => lines.filter((_, at) => !marks[at]);

describe("a comparison", () => {
  it("is the shortest for small texts", () => {
    const next = randomly(11);
    for (let round = 0; round < 2000; round++) {
      const letters = 1 + next(5);
      const some = () => Array.from({ length: next(14) }, () => "abcdef"[next(letters)]!);
      const [a, b] = [some(), some()];
      const { removed, added } = compare(a, b);
      expect(common(a, removed)).toEqual(common(b, added));
      expect(common(a, removed).length).toBe(longest(a, b));
    }
  });

  it("matches what large texts have in common, in bounded time", () => {
    const next = randomly(5);
    const a = Array.from({ length: 20_000 }, (_, at) => `line ${at % 900} of ${next(40)}`);
    const b = a.flatMap((line) => (next(4) === 0 ? [] : next(4) === 0 ? [`new ${next(50)}`, line] : [line]));
    const started = performance.now();
    const { removed, added } = compare(a, b);
    const took = performance.now() - started;
    expect(common(a, removed)).toEqual(common(b, added));
    // A quarter of the lines was removed. What remains can be found again, or nearly all of it.
    expect(common(a, removed).length).toBeGreaterThan(14_500);
    expect(took).toBeLessThan(SURELY_MS);
  });

  it.each([
    ["a rewritten file", (at: number) => `a${at}`, (at: number) => `b${at}`],
    ["a file of few different lines", (at: number) => "ab"[at % 2]!, (at: number) => "bbac"[at % 4]!],
    ["a shuffled file", (at: number) => `${(at * 7919) % 20_011}`, (at: number) => `${(at * 104_729) % 20_011}`],
    ["a reversed file", (at: number) => `${at}`, (at: number) => `${20_000 - at}`],
  ])("of %s with 20,000 lines is fast", (_, one, other) => {
    const a = Array.from({ length: 20_000 }, (_, at) => one(at));
    const b = Array.from({ length: 20_000 }, (_, at) => other(at));
    compare(a.slice(0, 500), b.slice(0, 500));
    const started = performance.now();
    const { removed, added } = compare(a, b);
    const took = performance.now() - started;
    expect(common(a, removed)).toEqual(common(b, added));
    expect(took).toBeLessThan(SURELY_MS);
  });

  it("counts every changed line of a large change, and no other", () => {
    const before = Array.from({ length: 6000 }, (_, at) => `line ${at}`);
    const after = before.map((line, at) => (at % 3 === 0 ? `changed ${at}` : line));
    expect(counted(before.join("\n"), after.join("\n"))).toEqual({ added: 2000, removed: 2000 });
    expect(counts(difference(before.join("\n"), after.join("\n")))).toEqual({ added: 2000, removed: 2000 });
    expect(counted(null, before.join("\n"))).toEqual({ added: 6000, removed: 0 });
  });

  it("puts a new function where it was written", () => {
    const before = linesOf("a() {\n  x\n}\n\nb() {\n  y\n}\n");
    const after = linesOf("a() {\n  x\n}\n\nnew() {\n  z\n}\n\nb() {\n  y\n}\n");
    const { added } = compare(before, after);
    expect(after.filter((_, at) => added[at])).toEqual(["new() {", "  z", "}", ""]);
  });
});
