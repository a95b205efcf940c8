// Reads a patch as git prints it: files, hunks and lines with their numbers. Above: the views of changes. Below: the
// line diff, for edits without a repository. It reads in steps, so that a large patch never blocks the page.

import { compare, linesOf } from "./difference";

export interface PatchLine {
  kind: "same" | "added" | "removed";
  text: string;
  /** The line numbers in the old and the new file; 0 if the line is not in it. */
  old: number;
  new: number;
  /** The file ends here without a newline. */
  open?: boolean;
}

export interface Hunk {
  /** The position of the first line, for example in the new file. A side without lines has the line before it. */
  old: number;
  new: number;
  oldCount: number;
  newCount: number;
  /** What git shows after the numbers: usually the enclosing function. */
  heading: string;
  lines: PatchLine[];
}

export interface PatchFile {
  path: string;
  oldPath: string | null;
  /** Abbreviated ids of the contents. */
  ids: [string, string] | null;
  binary: boolean;
  hunks: Hunk[];
}

/** How many lines are read before the reader may pause. */
const STEP_LINES = 2000;
const HUNK = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)$/s;

/** Yields each file when it is complete, and null where the reader may pause. */
export function* readPatch(text: string): Generator<PatchFile | null> {
  let file: PatchFile | null = null;
  let at = 0;
  let read = 0;
  const next = () => {
    const end = text.indexOf("\n", at);
    const line = text.slice(at, end < 0 ? text.length : end);
    at = end < 0 ? text.length : end + 1;
    return line;
  };
  while (at < text.length) {
    const line = next();
    if (line.startsWith("diff --git ")) {
      if (file) yield file;
      const path = pathOfBoth(line.slice(11));
      file = { path, oldPath: path, ids: null, binary: false, hunks: [] };
      continue;
    }
    if (!file) continue;
    const found = HUNK.exec(line);
    if (!found) {
      inHeader(file, line);
      continue;
    }
    const hunk: Hunk = { old: Number(found[1]), oldCount: Number(found[2] ?? 1), new: Number(found[3]), newCount: Number(found[4] ?? 1), heading: found[5]!, lines: [] };
    file.hunks.push(hunk);
    let [old, fresh] = [0, 0];
    while (at < text.length && (old < hunk.oldCount || fresh < hunk.newCount || text[at] === "\\")) {
      const one = next();
      if (one[0] === "\\") {
        const last = hunk.lines[hunk.lines.length - 1];
        if (last) last.open = true;
        continue;
      }
      const kind = one[0] === "+" ? "added" : one[0] === "-" ? "removed" : "same";
      hunk.lines.push({ kind, text: one.slice(1), old: kind === "added" ? 0 : hunk.old + old, new: kind === "removed" ? 0 : hunk.new + fresh });
      if (kind !== "added") old++;
      if (kind !== "removed") fresh++;
      if (++read % STEP_LINES === 0) yield null;
    }
  }
  if (file) yield file;
}

function inHeader(file: PatchFile, line: string): void {
  const [, ids] = /^index ([0-9a-f.]+)/.exec(line) ?? [];
  if (ids) file.ids = ids.split("..") as [string, string];
  else if (line.startsWith("--- ")) file.oldPath = pathOf(line.slice(4), "a/");
  else if (line.startsWith("+++ ")) file.path = pathOf(line.slice(4), "b/") ?? file.path;
  else if (line.startsWith("rename from ") || line.startsWith("copy from ")) file.oldPath = unquoted(line.slice(line.indexOf("from ") + 5));
  else if (line.startsWith("rename to ") || line.startsWith("copy to ")) file.path = unquoted(line.slice(line.indexOf("to ") + 3));
  else if (line.startsWith("new file mode")) file.oldPath = null;
  else if (line.startsWith("Binary files ")) file.binary = true;
}

/** `a/x b/x`: without other lines about the names, both are the same. */
function pathOfBoth(both: string): string {
  return pathOf(both.slice((both.length + 1) / 2), "b/") ?? both;
}

/** Null: /dev/null. Git ends a name that has blanks with a tab. */
function pathOf(name: string, prefix: string): string | null {
  const plain = unquoted(name.endsWith("\t") ? name.slice(0, -1) : name);
  return plain === "/dev/null" ? null : plain.startsWith(prefix) ? plain.slice(prefix.length) : plain;
}

const ESCAPES: Record<string, string> = { a: "\x07", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t", v: "\v", '"': '"', "\\": "\\" };

/** Git quotes names that have special characters like C does, with bytes in octal. */
function unquoted(name: string): string {
  if (!name.startsWith('"') || !name.endsWith('"')) return name;
  return name.slice(1, -1).replace(/((?:\\[0-3][0-7]{2})+)|\\(.)/g, (_, octal: string | undefined, letter: string) => {
    if (!octal) return ESCAPES[letter] ?? letter;
    return new TextDecoder().decode(Uint8Array.from(octal.slice(1).split("\\"), (byte) => Number.parseInt(byte, 8)));
  });
}

/** A function that pauses and so lets the browser draw; it returns false to stop. */
export type Pause = () => Promise<boolean>;

const WORK_MS = 12;

/** Read all of a patch. `found` is called with each file, `pause` whenever it took some milliseconds. */
export async function readAll(text: string, found: (file: PatchFile) => void, pause: Pause): Promise<boolean> {
  let since = performance.now();
  for (const file of readPatch(text)) {
    if (file) found(file);
    if (performance.now() - since < WORK_MS) continue;
    if (!(await pause())) return false;
    since = performance.now();
  }
  return true;
}

// Edits without a repository ----------------------------------------------------------------------------------------------

const AROUND_LINES = 3;

/** The agent's own edits of a file, in order. Each is a passage at a known line, or at an unknown one (0). */
export function patchOfEdits(path: string, edits: { old_text: string | null; new_text: string; line?: number | null }[]): PatchFile {
  const hunks = edits.flatMap((edit) => hunksOf(edit.old_text, edit.new_text, edit.line || 1));
  return { path, oldPath: edits[0]?.old_text === null ? null : path, ids: null, binary: false, hunks };
}

function hunksOf(before: string | null, after: string, first: number): Hunk[] {
  const [a, b] = [linesOf(before ?? ""), linesOf(after)];
  const { removed, added } = compare(a, b);
  const lines: PatchLine[] = [];
  for (let x = 0, y = 0; x < a.length || y < b.length; ) {
    if (x < a.length && removed[x]) lines.push({ kind: "removed", text: a[x]!, old: first + x++, new: 0 });
    else if (y < b.length && added[y]) lines.push({ kind: "added", text: b[y]!, old: 0, new: first + y++ });
    else lines.push({ kind: "same", text: a[x]!, old: first + x++, new: first + y++ });
  }
  const hunks: Hunk[] = [];
  let from = 0;
  let end = 0;
  lines.forEach((line, index) => {
    if (line.kind === "same") return;
    if (index - AROUND_LINES > end || !end) {
      if (end) hunks.push(hunkOf(lines.slice(from, end)));
      from = Math.max(end, index - AROUND_LINES);
    }
    end = Math.min(lines.length, index + 1 + AROUND_LINES);
  });
  if (end) hunks.push(hunkOf(lines.slice(from, end)));
  return hunks;
}

function hunkOf(lines: PatchLine[]): Hunk {
  const first = (side: "old" | "new") => lines.find((line) => line[side])?.[side] ?? 0;
  const count = (side: "old" | "new") => lines.filter((line) => line[side]).length;
  return { old: first("old"), new: first("new"), oldCount: count("old"), newCount: count("new"), heading: "", lines };
}
