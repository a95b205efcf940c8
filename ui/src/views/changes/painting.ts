// The code of drawn lines as HTML: at once with the changed words marked, and with syntax colours when the browser has
// time. Above: the blocks of lines. Below: the highlighter, which is loaded when it is first needed.

import { useEffect, useState } from "react";
import { useHighlight } from "../../text/highlight";
import { languageOf, painted, runsOf, type Run } from "../../text/paint";
import type { PatchLine } from "../../text/patch";
import { plural } from "../../text/words";
import { marksOf, type Range } from "../../text/wordmarks";
import { SHOWN_CHARS } from "./heights";
import type { Row } from "./rows";

/** Lines before a block that are read too, so that a comment or text that began there has its colour. */
const CONTEXT_ROWS = 60;
const MOST_MARKED_ROWS = 400;
const IDLE_LIMIT_MS = 400;
const NO_RANGES: Range[] = [];

export type Painting = ReadonlyMap<PatchLine, string>;

const plain = new WeakMap<Row[], Painting>();
const coloured = new WeakMap<Row[], Painting>();

/** The HTML of each line of a block. `all`: the rows of the file, of which the block starts at `from`. */
export function usePainting(rows: Row[], all: Row[], from: number, path: string): Painting {
  const highlight = useHighlight();
  const [painting, setPainting] = useState<{ rows: Row[]; of: Painting } | null>(null);
  const done = coloured.get(rows);
  useEffect(() => {
    if (!highlight || coloured.has(rows)) return;
    const lang = languageOf(path);
    if (!lang) return;
    return whenIdle(() => {
      const of = paint(rows, marksIn(rows, all, from), colours(rows, all, from, lang, highlight));
      coloured.set(rows, of);
      setPainting({ rows, of });
    });
  }, [highlight, rows, all, from, path]);
  if (done) return done;
  if (painting?.rows === rows) return painting.of;
  let first = plain.get(rows);
  if (!first) plain.set(rows, (first = paint(rows, marksIn(rows, all, from), null)));
  return first;
}

type Idle = { timeRemaining: () => number };
const waiting: (() => void)[] = [];
let asked = false;

/** Run this when there is nothing else to do, the newest first: it is in sight. Returns a function that cancels it. */
function whenIdle(work: () => void): () => void {
  waiting.push(work);
  ask();
  return () => {
    const at = waiting.lastIndexOf(work);
    if (at >= 0) waiting.splice(at, 1);
  };
}

function ask(): void {
  if (asked || !waiting.length) return;
  asked = true;
  const run = (idle: Idle) => {
    asked = false;
    do waiting.pop()?.();
    while (waiting.length && idle.timeRemaining() > 4);
    ask();
  };
  if (typeof requestIdleCallback === "function") requestIdleCallback(run, { timeout: IDLE_LIMIT_MS });
  else setTimeout(() => run({ timeRemaining: () => 0 }), 50);
}

const linesIn = (row: Row): PatchLine[] => (row.kind === "line" ? [row.line] : row.kind === "pair" ? [row.left, row.right].filter((line) => line !== null) : []);
const shownText = (line: PatchLine) => (line.text.length > SHOWN_CHARS ? line.text.slice(0, SHOWN_CHARS) : line.text);

function paint(rows: Row[], marks: ReadonlyMap<PatchLine, Range[]>, colours: ReadonlyMap<PatchLine, Run[]> | null): Painting {
  const found = new Map<PatchLine, string>();
  for (const row of rows) {
    for (const line of linesIn(row)) {
      const text = shownText(line).replace(/\r$/, "");
      const runs = colours?.get(line) ?? [{ text, colour: "" }];
      found.set(line, painted(runs, marks.get(line) ?? NO_RANGES) + ending(line));
    }
  }
  return found;
}

/** What a line ends with, if that is worth knowing. */
function ending(line: PatchLine): string {
  const more = line.text.length > SHOWN_CHARS ? `<i> … ${plural(line.text.length - SHOWN_CHARS, "more character")}</i>` : "";
  const carriage = line.kind !== "same" && line.text.endsWith("\r") ? "<i> CR</i>" : "";
  return `${more}${carriage}${line.open ? "<i> no newline at the end</i>" : ""}`;
}

/** The changed words in these rows. A change may begin before them and end after them. */
export function marksIn(rows: Row[], all: Row[], from: number): Map<PatchLine, Range[]> {
  const marks = new Map<PatchLine, Range[]>();
  const add = (lines: PatchLine[]) => marksOf(lines).forEach((ranges, line) => marks.set(line, ranges));
  for (const row of rows) if (row.kind === "pair" && row.left && row.right && row.left !== row.right) add([row.left, row.right]);
  const changed = (at: number) => {
    const row = all[at];
    return row?.kind === "line" && row.line.kind !== "same" ? row.line : null;
  };
  // A comment between two lines does not end a change.
  const goesOn = (at: number) => !!changed(at) || all[at]?.kind === "comment" || all[at]?.kind === "draft";
  for (let at = from; at < from + rows.length; ) {
    if (!changed(at)) {
      at++;
      continue;
    }
    let start = at;
    while (goesOn(start - 1) && at - start < MOST_MARKED_ROWS) start--;
    let end = at + 1;
    while (goesOn(end) && end - at < MOST_MARKED_ROWS) end++;
    // A removed line after an added one begins another change.
    let passage: PatchLine[] = [];
    for (let one = start; one < end; one++) {
      const line = changed(one);
      if (!line) continue;
      if (line.kind === "removed" && passage.at(-1)?.kind === "added") {
        add(passage);
        passage = [];
      }
      passage.push(line);
    }
    add(passage);
    at = end;
  }
  return marks;
}

/** The colours of each line. The old and the new lines are read as two texts. */
function colours(rows: Row[], all: Row[], from: number, lang: string, highlight: (code: string, lang: string) => string | null): Map<PatchLine, Run[]> {
  const found = new Map<PatchLine, Run[]>();
  const read = (wanted: (line: PatchLine) => boolean) => {
    const side = (some: Row[]) => some.flatMap((row) => linesIn(row).filter(wanted)).filter((line, at, lines) => line !== lines[at - 1]);
    const here = side(rows);
    if (!here.length) return;
    const before = side(all.slice(Math.max(0, from - CONTEXT_ROWS), from));
    const html = highlight([...before, ...here].map((line) => shownText(line).replace(/\r$/, "")).join("\n"), lang);
    if (html === null) return;
    const runs = runsOf(html);
    here.forEach((line, at) => found.set(line, runs[before.length + at] ?? []));
  };
  if (rows.some((row) => linesIn(row).some((line) => line.kind === "removed"))) read((line) => line.kind !== "added");
  read((line) => line.kind !== "removed");
  return found;
}
