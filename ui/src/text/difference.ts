// A line diff of two texts, with line numbers and some context. Above: the diff view and the line counts of tools.
// Below: nothing. It uses Myers' algorithm up to a limit; beyond it, the middle is shown as fully removed and added.

export interface DiffLine {
  kind: "same" | "added" | "removed" | "gap";
  text: string;
  old?: number;
  new?: number;
}

const AROUND_LINES = 3;
const MOST_EDITS = 1500;

const linesOf = (text: string): string[] => {
  if (!text) return [];
  const lines = text.split("\n");
  if (lines[lines.length - 1] === "") lines.pop();
  return lines;
};

export function difference(before: string | null, after: string): DiffLine[] {
  const a = linesOf(before ?? "");
  const b = linesOf(after);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const all: DiffLine[] = [];
  for (let index = 0; index < start; index++) all.push({ kind: "same", text: a[index]!, old: index + 1, new: index + 1 });
  all.push(...middle(a.slice(start, a.length - end), b.slice(start, b.length - end), start));
  for (let index = end; index > 0; index--) all.push({ kind: "same", text: a[a.length - index]!, old: a.length - index + 1, new: b.length - index + 1 });
  return folded(all);
}

function middle(a: string[], b: string[], from: number): DiffLine[] {
  const path = a.length && b.length ? shortest(a, b) : null;
  if (!path) {
    return [
      ...a.map((text, index): DiffLine => ({ kind: "removed", text, old: from + index + 1 })),
      ...b.map((text, index): DiffLine => ({ kind: "added", text, new: from + index + 1 })),
    ];
  }
  return path.map(([x, y, kind]): DiffLine =>
    kind === "removed"
      ? { kind, text: a[x]!, old: from + x + 1 }
      : kind === "added"
        ? { kind, text: b[y]!, new: from + y + 1 }
        : { kind, text: a[x]!, old: from + x + 1, new: from + y + 1 },
  );
}

type Step = [number, number, "same" | "added" | "removed"];

function shortest(a: string[], b: string[]): Step[] | null {
  const most = Math.min(a.length + b.length, MOST_EDITS);
  // The furthest x on each diagonal, -1 if unvisited. Each step saves the part within its reach, to walk back later.
  const best = new Int32Array(2 * most + 3).fill(-1);
  const zero = most + 1;
  best[zero + 1] = 0;
  const trace: Int32Array[] = [];
  for (let edits = 0; edits <= most; edits++) {
    trace.push(best.slice(zero - edits - 1, zero + edits + 2));
    for (let k = -edits; k <= edits; k += 2) {
      const left = best[zero + k - 1]!;
      const right = best[zero + k + 1]!;
      let x = k === -edits || (k !== edits && left < right) ? right : left + 1;
      let y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) {
        x++;
        y++;
      }
      best[zero + k] = x;
      if (x >= a.length && y >= b.length) return walkBack(trace, a.length, b.length);
    }
  }
  return null;
}

function walkBack(trace: Int32Array[], x: number, y: number): Step[] {
  const steps: Step[] = [];
  for (let edits = trace.length - 1; edits >= 0; edits--) {
    const best = trace[edits]!;
    const at = (k: number) => best[k + edits + 1]!;
    const k = x - y;
    const down = k === -edits || (k !== edits && at(k - 1) < at(k + 1));
    const beforeK = down ? k + 1 : k - 1;
    const beforeX = at(beforeK);
    const beforeY = beforeX - beforeK;
    while (x > beforeX && y > beforeY) steps.push([--x, --y, "same"]);
    if (edits > 0) steps.push(down ? [x, --y, "added"] : [--x, y, "removed"]);
  }
  return steps.reverse();
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
