// A line diff of two texts, with line numbers and some context. Above: the diff views and the line counts of tools.
// Below: nothing. Equal lines get equal numbers, lines that only one side has are set aside, and the rest is split at
// the middle of the shortest edit, as Myers describes for linear space. The work of each split is bounded, as in git:
// beyond it the diff is still correct, but may not be the shortest.

export interface DiffLine {
  kind: "same" | "added" | "removed" | "gap";
  text: string;
  old?: number;
  new?: number;
}

const AROUND_LINES = 3;
const LEAST_SPLIT_EDITS = 256;
const FAR = 0x7fffffff;

export const linesOf = (text: string): string[] => {
  if (!text) return [];
  const lines = text.split("\n");
  if (lines[lines.length - 1] === "") lines.pop();
  return lines;
};

export function difference(before: string | null, after: string): DiffLine[] {
  const a = linesOf(before ?? "");
  const b = linesOf(after);
  const { removed, added } = compare(a, b);
  const all: DiffLine[] = [];
  for (let x = 0, y = 0; x < a.length || y < b.length; ) {
    if (x < a.length && removed[x]) all.push({ kind: "removed", text: a[x]!, old: ++x });
    else if (y < b.length && added[y]) all.push({ kind: "added", text: b[y]!, new: ++y });
    else all.push({ kind: "same", text: a[x]!, old: ++x, new: ++y });
  }
  return folded(all);
}

/** How many lines a change adds and removes. */
export function counted(before: string | null, after: string): { added: number; removed: number } {
  const sum = (marks: Uint8Array) => marks.reduce((total, mark) => total + mark, 0);
  const { removed, added } = compare(linesOf(before ?? ""), linesOf(after));
  return { added: sum(added), removed: sum(removed) };
}

/** Marks the lines that have no counterpart on the other side. The other lines are the same on both, in order. */
export function compare(a: readonly string[], b: readonly string[]): { removed: Uint8Array; added: Uint8Array } {
  const removed = new Uint8Array(a.length);
  const added = new Uint8Array(b.length);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const numbers = new Map<string, number>();
  const numberOf = (line: string) => numbers.get(line) ?? (numbers.set(line, numbers.size), numbers.size - 1);
  const x = Int32Array.from(a.slice(start, a.length - end), numberOf);
  const y = Int32Array.from(b.slice(start, b.length - end), numberOf);
  const [xs, ys] = [shared(x, y, numbers.size, removed, start), shared(y, x, numbers.size, added, start)];
  split(
    xs.map((at) => x[at - start]!),
    ys.map((at) => y[at - start]!),
    (at) => (removed[xs[at]!] = 1),
    (at) => (added[ys[at]!] = 1),
  );
  slide(a, removed);
  slide(b, added);
  return { removed, added };
}

/** The positions of the lines that the other side has too. The others are marked: nothing can match them. */
function shared(lines: Int32Array, others: Int32Array, count: number, marks: Uint8Array, start: number): Int32Array {
  const known = new Uint8Array(count);
  for (const line of others) known[line] = 1;
  const kept = new Int32Array(lines.length);
  let size = 0;
  for (let at = 0; at < lines.length; at++) {
    if (known[lines[at]!]) kept[size++] = start + at;
    else marks[start + at] = 1;
  }
  return kept.subarray(0, size);
}

/** Marks what has to be removed and added, splitting one passage at a time. */
function split(a: Int32Array, b: Int32Array, remove: (at: number) => void, add: (at: number) => void): void {
  const middle = new Middle(a, b);
  const passages: [number, number, number, number][] = [[0, a.length, 0, b.length]];
  for (let passage = passages.pop(); passage; passage = passages.pop()) {
    let [fromA, toA, fromB, toB] = passage;
    while (fromA < toA && fromB < toB && a[fromA] === b[fromB]) {
      fromA++;
      fromB++;
    }
    while (fromA < toA && fromB < toB && a[toA - 1] === b[toB - 1]) {
      toA--;
      toB--;
    }
    if (fromA === toA) while (fromB < toB) add(fromB++);
    else if (fromB === toB) while (fromA < toA) remove(fromA++);
    else {
      const [x, y] = middle.of(fromA, toA, fromB, toB);
      passages.push([fromA, x, fromB, y], [x, toA, y, toB]);
    }
  }
}

/** Finds a point in the middle of the shortest edit, searching from both ends. */
class Middle {
  /** The furthest x on each diagonal x - y, from the start and from the end. */
  private readonly ahead: Int32Array;
  private readonly back: Int32Array;
  private readonly zero: number;
  private readonly most: number;

  constructor(
    private readonly a: Int32Array,
    private readonly b: Int32Array,
  ) {
    const diagonals = a.length + b.length + 3;
    this.ahead = new Int32Array(diagonals);
    this.back = new Int32Array(diagonals);
    this.zero = b.length + 1;
    this.most = Math.max(LEAST_SPLIT_EDITS, Math.ceil(Math.sqrt(diagonals)));
  }

  of(fromA: number, toA: number, fromB: number, toB: number): [number, number] {
    const { a, b, ahead, back, zero } = this;
    const [least, last] = [fromA - toB, toA - fromB];
    const [first, final] = [fromA - fromB, toA - toB];
    const odd = ((first - final) & 1) !== 0;
    let [aheadLow, aheadHigh, backLow, backHigh] = [first, first, final, final];
    ahead[zero + first] = fromA;
    back[zero + final] = toA;
    for (let edits = 1; ; edits++) {
      if (aheadLow > least) ahead[zero + --aheadLow - 1] = -1;
      else aheadLow++;
      if (aheadHigh < last) ahead[zero + ++aheadHigh + 1] = -1;
      else aheadHigh--;
      for (let k = aheadHigh; k >= aheadLow; k -= 2) {
        let x = Math.max(ahead[zero + k - 1]! + 1, ahead[zero + k + 1]!);
        while (x < toA && x - k < toB && a[x] === b[x - k]) x++;
        ahead[zero + k] = x;
        if (odd && k >= backLow && k <= backHigh && back[zero + k]! <= x) return [x, x - k];
      }
      if (backLow > least) back[zero + --backLow - 1] = FAR;
      else backLow++;
      if (backHigh < last) back[zero + ++backHigh + 1] = FAR;
      else backHigh--;
      for (let k = backHigh; k >= backLow; k -= 2) {
        let x = Math.min(back[zero + k - 1]!, back[zero + k + 1]! - 1);
        while (x > fromA && x - k > fromB && a[x - 1] === b[x - k - 1]) x--;
        back[zero + k] = x;
        if (!odd && k >= aheadLow && k <= aheadHigh && x <= ahead[zero + k]!) return [x, x - k];
      }
      if (edits < this.most) continue;
      return this.furthest(fromA, toA, fromB, toB, [aheadLow, aheadHigh], [backLow, backHigh]);
    }
  }

  /** The furthest point reached from either end. */
  private furthest(fromA: number, toA: number, fromB: number, toB: number, ahead: [number, number], back: [number, number]): [number, number] {
    let [best, bestX] = [-1, fromA];
    for (let k = ahead[1]; k >= ahead[0]; k -= 2) {
      const x = Math.min(this.ahead[this.zero + k]!, toA, toB + k);
      if (2 * x - k > best) [best, bestX] = [2 * x - k, x];
    }
    let [least, leastX] = [FAR, toA];
    for (let k = back[1]; k >= back[0]; k -= 2) {
      const x = Math.max(this.back[this.zero + k]!, fromA, fromB + k);
      if (2 * x - k < least) [least, leastX] = [2 * x - k, x];
    }
    return toA + toB - least < best - fromA - fromB ? [bestX, best - bestX] : [leastX, least - leastX];
  }
}

/** Move each group of marked lines down as far as it goes, as git does: a new function then ends with its own last
 * line instead of the one before it. */
function slide(lines: readonly string[], marks: Uint8Array): void {
  for (let start = 0; start < lines.length; start++) {
    if (!marks[start]) continue;
    let end = start;
    while (end < lines.length && marks[end]) end++;
    while (end < lines.length && lines[start] === lines[end]) {
      marks[start++] = 0;
      marks[end++] = 1;
      while (end < lines.length && marks[end]) end++;
    }
    start = end;
  }
}

/** Replace long unchanged stretches by a gap. */
function folded(lines: DiffLine[]): DiffLine[] {
  const near = new Uint8Array(lines.length);
  lines.forEach((line, index) => {
    if (line.kind === "same") return;
    for (let at = Math.max(0, index - AROUND_LINES); at <= Math.min(lines.length - 1, index + AROUND_LINES); at++) near[at] = 1;
  });
  const out: DiffLine[] = [];
  for (let index = 0; index < lines.length; index++) {
    if (near[index]) out.push(lines[index]!);
    else {
      let count = 0;
      while (index + count < lines.length && !near[index + count]) count++;
      out.push({ kind: "gap", text: count === 1 ? "1 line" : `${count} lines` });
      index += count - 1;
    }
  }
  return out;
}

/** The same lines with their numbers in the file. `shift`: how many lines earlier changes in the file add. */
export function numbered(lines: DiffLine[], first = 1, shift = 0): DiffLine[] {
  if (first === 1 && shift === 0) return lines;
  const moved = (number: number | undefined, by: number) => (number === undefined ? undefined : number + by);
  return lines.map((line) => ({ ...line, old: moved(line.old, first - 1 - shift), new: moved(line.new, first - 1) }));
}

/** For each change, how many lines the earlier changes to the same file add. */
export function shifts(diffs: { path: string; old_text: string | null; new_text: string }[]): number[] {
  const added = new Map<string, number>();
  return diffs.map(({ path, old_text, new_text }) => {
    const before = added.get(path) ?? 0;
    added.set(path, before + linesOf(new_text).length - linesOf(old_text ?? "").length);
    return before;
  });
}

export function counts(lines: DiffLine[]): { added: number; removed: number } {
  let added = 0;
  let removed = 0;
  for (const line of lines) {
    if (line.kind === "added") added++;
    else if (line.kind === "removed") removed++;
  }
  return { added, removed };
}
