// The view of changes without the browser: rows, heights, scrolling, the cursor, and what is said.

import { describe, expect, it } from "vitest";
import type { Draft } from "../src/state/review";
import type { FileState } from "../src/state/changes";
import { readPatch, type PatchFile } from "../src/text/patch";
import { ownOf, pathsOf, type Operation, type ChangedFile, type Changes, type Comment } from "../src/wire/changes";
import { extended, hunkAt, linesOf, moved, passageOf, withinHunk } from "../src/views/changes/cursor";
import { fileOf, turnBeside, undoableOf } from "../src/views/changes/finding";
import { linesFor, partAt, stacked } from "../src/views/changes/heights";
import { blocksOf, linesOn, nearest, rowFor, rowsOf, withComments, type Row, type Wanted } from "../src/views/changes/rows";
import { marksIn } from "../src/views/changes/painting";
import { anchorAt, positionOf, rangeAt, topsOf } from "../src/views/changes/scrolling";
import { SectionMaker, type Options } from "../src/views/changes/sections";
import { nothing, tell } from "../src/views/changes/telling";
import { treeOf } from "../src/views/changes/tree";

const TEXT = `diff --git a/a.py b/a.py
index 1..2 100644
--- a/a.py
+++ b/a.py
@@ -11,5 +11,6 @@ def f():
 eleven
-twelve
-thirteen
+12
+13
+13.5
 fourteen
 fifteen
@@ -100,3 +101,3 @@ def g():
 hundred
-old
+new
 last
`;
const patch = [...readPatch(TEXT)].find((file): file is PatchFile => file !== null)!;
const PLAIN: Wanted = { split: false, unfolded: new Map(), content: null, unfolds: true };
const said = (row: Row) =>
  row.kind === "line" ? `${row.line.kind[0]}${row.line.text}` : row.kind === "pair" ? `${row.left?.text ?? "·"}|${row.right?.text ?? "·"}` : row.kind === "hunk" ? `@${row.gap?.count ?? "-"}` : row.kind;

describe("rows", () => {
  it("are the lines, with a row for what is not shown", () => {
    expect(rowsOf(patch, PLAIN).map(said)).toEqual(["@10", "seleven", "rtwelve", "rthirteen", "a12", "a13", "a13.5", "sfourteen", "sfifteen", "@84", "shundred", "rold", "anew", "slast"]);
  });

  it("are pairs side by side", () => {
    expect(rowsOf(patch, { ...PLAIN, split: true }).map(said).slice(1, 7)).toEqual(["eleven|eleven", "twelve|12", "thirteen|13", "·|13.5", "fourteen|fourteen", "fifteen|fifteen"]);
  });

  it("show unchanged lines that were asked for, with their numbers on both sides", () => {
    const content = Array.from({ length: 120 }, (_, at) => `line ${at + 1}`);
    const rows = rowsOf(patch, { ...PLAIN, content, unfolded: new Map([[0, { top: 0, bottom: 2 }], [1, { top: 84, bottom: 0 }]]) });
    expect(rows.map(said).slice(0, 4)).toEqual(["@8", "sline 9", "sline 10", "seleven"]);
    const between = rows.filter((row) => row.kind === "line" && row.hunk === -1 && row.line.new > 16);
    expect(between).toHaveLength(84);
    expect((between[0] as Extract<Row, { kind: "line" }>).line).toMatchObject({ old: 16, new: 17, text: "line 17" });
    // The hunk keeps a row without a gap, to discard it.
    expect(rows.filter((row) => row.kind === "hunk").map(said)).toEqual(["@8", "@-"]);
    expect(new Set(rows.map((row) => row.key)).size).toBe(rows.length);
  });

  it("offer the rest of a file only if there may be one", () => {
    const longer = TEXT.replace("-100,3 +101,3", "-100,5 +101,5") + " more\n more\n";
    const rows = rowsOf([...readPatch(longer)][0]!, PLAIN);
    expect(said(rows[rows.length - 1]!)).toBe("@-");
    expect(said(rowsOf(patch, PLAIN).at(-1)!)).toBe("slast");
  });

  const comment = (changes: Partial<Comment>): Comment => ({ comment_id: "c", path: "a.py", side: "new", line: 13, end_line: null, turn: null, quote: null, text: "t", sent_turn: 1, state: "open", at: "", ...changes });

  it("have comments below their lines, on the right side", () => {
    const rows = withComments(rowsOf(patch, PLAIN), [comment({}), comment({ comment_id: "d", side: "old", line: 12, end_line: 13 }), comment({ comment_id: "e", line: 500 })], []);
    expect(rows.map(said).slice(0, 9)).toEqual(["comment", "@10", "seleven", "rtwelve", "rthirteen", "comment", "a12", "a13", "comment"]);
  });

  it("have comments below the nearest lines that say what was quoted, wherever turns have moved them", () => {
    const rows = rowsOf(patch, PLAIN);
    const placed = (changes: Partial<Comment>) => {
      const one = comment(changes);
      const at = rowFor(linesOn(rows, one.side), one);
      return at < 0 ? null : said(rows[at]!);
    };
    expect(placed({ turn: 3, line: 90, quote: "13.5" })).toBe("a13.5");
    expect(placed({ line: 103, quote: "13.5" })).toBe("a13.5");
    // The line is there, but it says something else now.
    expect(placed({ line: 13, quote: "gone" })).toBeNull();
    expect(placed({ turn: 3, line: 13, quote: "gone" })).toBeNull();
    // Of several lines, all.
    expect(placed({ line: 40, end_line: 42, quote: "12\n13\n13.5" })).toBe("a13.5");
    expect(placed({ line: 40, end_line: 41, quote: "12\n13.5" })).toBeNull();
    expect(placed({ line: 40, end_line: 41, quote: "fifteen\nhundred" })).toBeNull();
    expect(placed({ side: "old", line: 1, quote: "old" })).toBe("rold");
    // Without a quote, or on an empty line, only the number is known.
    expect(placed({ line: 13, quote: "" })).toBe("a13");
  });

  it("say which lines a moved comment is on", () => {
    const draft: Draft = { id: "d", path: "a.py", side: "new", line: 90, end_line: null, turn: null, quote: "13.5", text: "t", open: false };
    const rows = withComments(rowsOf(patch, PLAIN), [comment({ line: 4, end_line: 5, quote: "12\n13" }), comment({ comment_id: "e", quote: "gone" })], [draft]);
    expect(rows.flatMap((row) => (row.kind === "comment" || row.kind === "draft" ? [[row.placed, row.shift]] : []))).toEqual([[false, 0], [true, 8], [true, -76]]);
    expect(linesOf(draft, -76)).toBe("Line 14");
    expect(linesOf(comment({ line: 4, end_line: 5 }), 8)).toBe("Lines 12 to 13");
  });

  it("keep the marks of changed words when a comment comes between the lines", () => {
    const rows = rowsOf([...readPatch(TEXT.replace("-old\n+new\n", "-one old word\n+one new word\n"))][0]!, PLAIN);
    const marked = (all: Row[]) => [...marksIn(all, all, 0)].map(([line, ranges]) => [line.text, ranges]);
    const commented = withComments(rows, [comment({ side: "old", line: 101 })], []);
    expect(commented.findIndex((row) => row.kind === "comment")).toBe(rows.findIndex((row) => said(row) === "rone old word") + 1);
    expect(marked(commented)).toEqual(marked(rows));
    expect(marked(rows)).toEqual([["one old word", [[4, 7]]], ["one new word", [[4, 7]]]]);
  });

  it("that are gone are replaced by the nearest line", () => {
    const rows = rowsOf(patch, PLAIN);
    const gone = rows.findIndex((row) => said(row) === "rold");
    const left = rows.filter((row) => !["rold", "anew"].includes(said(row)));
    expect(said(left[nearest(left, rows[gone]!, gone)]!)).toBe("shundred");
    expect(nearest([], rows[gone]!, gone)).toBe(-1);
  });

  it("form blocks of lines", () => {
    const blocks = blocksOf(rowsOf(patch, PLAIN));
    expect(blocks.map((block) => [block.from, block.rows.length])).toEqual([[0, 1], [1, 8], [9, 1], [10, 4]]);
  });
});

describe("heights", () => {
  it("count the lines that a text takes", () => {
    expect(linesFor("", 10)).toBe(1);
    expect(linesFor("x".repeat(10), 10)).toBe(1);
    expect(linesFor("x".repeat(11), 10)).toBe(2);
    // A word that does not fit goes to the next line.
    expect(linesFor("aaaa bbbb cccc", 10)).toBe(2);
    expect(linesFor("aaaaaaa bbbbbbb ccccccc", 10)).toBe(3);
    expect(linesFor("\t\tx", 8)).toBe(2);
    expect(linesFor("日本語", 4)).toBe(2);
    expect(linesFor("x".repeat(1_000_000), 10)).toBe(100);
  });

  it("find the part at a position", () => {
    const tops = stacked([10, 20, 30]);
    expect(tops).toEqual([0, 10, 30, 60]);
    expect([-5, 0, 9, 10, 29, 30, 999].map((position) => partAt(tops, position))).toEqual([0, 0, 0, 1, 1, 2, 2]);
  });
});

const FILE: ChangedFile = { path: "a.py", old_path: null, status: "modified", old_mode: "100644", new_mode: "100644", old_id: "1", new_id: "2", binary: false, image: false, added: 4, removed: 3, old_size: 1, new_size: 1, committed: false, outside: false, tools: [] };
const METRICS = { linePx: 20, columns: 80, headPx: 40, hunkPx: 30 };
const OPTIONS: Options = { split: false, contents: true, metrics: METRICS, collapsed: new Set(), unfolded: new Map(), content: new Map(), comments: new Map(), drafts: new Map() };
const state = (path: string): FileState => ({ file: { ...FILE, path }, key: path, patch, state: "ready", trouble: "" });
const FILES = Array.from({ length: 50 }, (_, at) => state(`f${at}`));

describe("sections", () => {
  it("are the same objects until something in them changes", () => {
    const maker = new SectionMaker();
    const first = maker.make(FILES, OPTIONS);
    expect(maker.make(FILES, OPTIONS).every((section, at) => section === first[at])).toBe(true);
    const draft: Draft = { id: "d", path: "f1", side: "new", line: 13, end_line: null, turn: null, quote: null, text: "", open: true };
    const second = maker.make(FILES, { ...OPTIONS, drafts: new Map([["f1", [draft]]]) });
    expect(second.map((section, at) => section === first[at]).filter((same) => !same)).toHaveLength(1);
    // The blocks that the draft did not split are drawn and measured no more.
    expect(second[1]!.blocks.filter((block) => first[1]!.blocks.some((one) => one.rows === block.rows)).length).toBeGreaterThan(1);
  });

  it("correct heights that were estimated wrongly", () => {
    const maker = new SectionMaker();
    const [before] = maker.make(FILES, OPTIONS);
    expect(maker.measure(before!, 1, 200)).toBe(40);
    const [after] = maker.make(FILES, OPTIONS);
    expect(after!.height).toBe(before!.height + 40);
    expect(maker.measure(after!, 1, 200)).toBe(0);
  });

  it("say what can't be shown as lines", () => {
    const maker = new SectionMaker();
    const notes = (changes: Partial<ChangedFile>, more: Partial<FileState> = {}) =>
      maker.make([{ ...state("n"), patch: null, ...more, file: { ...FILE, path: JSON.stringify([changes, more]), ...changes } }], OPTIONS)[0]!.rows.map((row) => (row.kind === "note" ? row.text : row.kind));
    expect(notes({ binary: true, old_size: 1000, new_size: 2048 })).toEqual(["A binary file: 1000 B before, 2.0 KB after."]);
    expect(notes({ binary: true, image: true, status: "added", old_size: null })).toEqual(["images"]);
    expect(notes({ new_mode: "100755" })).toEqual(["Now executable."]);
    expect(notes({ status: "renamed", old_path: "x" })).toEqual(["Renamed, with the same content."]);
    expect(notes({}, { state: "left_out" })).toEqual(["The patch of all files is too large, so this one was left out (7 changed lines)."]);
    expect(notes({ added: null }, { state: "left_out" })[0]).toContain("lines not counted");
    expect(notes({}, { state: "too_large" })).toEqual(["The diff is too large to show (7 changed lines)."]);
    expect(notes({}, { state: "failed", trouble: "No." })).toEqual(["Can't load the diff. No."]);
  });
});

describe("scrolling", () => {
  const sections = new SectionMaker().make(FILES, OPTIONS);
  const tops = topsOf(sections);

  it("draws only what is near", () => {
    const range = rangeAt(sections, tops, 5000, 800, METRICS);
    expect(range.to - range.from).toBeLessThan(10);
    expect(tops[range.from]!).toBeLessThanOrEqual(4600);
    expect(tops[range.to]!).toBeGreaterThanOrEqual(6200);
    expect(rangeAt([], [0], 0, 800, METRICS)).toEqual({ from: 0, to: 0, blocks: [] });
  });

  it("stays at the same line when something above it grows", () => {
    for (const top of [0, 17, 40, 333, 5000, 12_345]) {
      const anchor = anchorAt(sections, tops, top, METRICS)!;
      expect(positionOf(anchor, sections, tops, METRICS)).toBeCloseTo(top);
      const maker = new SectionMaker();
      const other = maker.make([state("new"), ...FILES], OPTIONS);
      expect(positionOf(anchor, other, topsOf(other), METRICS)).toBeCloseTo(top + other[0]!.height);
    }
    expect(positionOf({ path: "gone", key: null, row: null, offset: 0 }, sections, tops, METRICS)).toBeNull();
  });
});

describe("the cursor", () => {
  const sections = new SectionMaker().make(FILES.slice(0, 2), OPTIONS);
  const at = (section: number, row: number) => ({ section, row });

  it("moves over lines, changes and files", () => {
    expect(moved(sections, at(0, -1), 1, "line")).toEqual(at(0, 0));
    expect(moved(sections, at(0, -1), 1, "change")).toEqual(at(0, 2));
    expect(moved(sections, at(0, 2), 1, "change")).toEqual(at(0, 11));
    expect(moved(sections, at(0, 11), 1, "change")).toEqual(at(1, 2));
    expect(moved(sections, at(1, 2), -1, "change")).toEqual(at(0, 11));
    expect(moved(sections, at(0, 5), 1, "file")).toEqual(at(1, -1));
    expect(moved(sections, at(1, 13), 1, "line")).toBeNull();
  });

  it("chooses lines of one stretch, and comments on one side of them", () => {
    const [section] = sections;
    expect(extended(sections, at(0, 8), 1)).toBeNull();
    expect(withinHunk(section!, 2, 12)).toBe(8);
    expect(passageOf(section!, 2, 5, "new", 7)).toEqual({ path: "f0", side: "new", line: 12, end_line: 13, turn: 7, quote: "12\n13" });
    expect(passageOf(section!, 3, 2, "new", null)).toEqual({ path: "f0", side: "old", line: 12, end_line: 13, turn: null, quote: "twelve\nthirteen" });
    expect(passageOf(section!, 0, 0, "new", null)).toBeNull();
    expect([hunkAt(section!, 0), hunkAt(section!, 4), hunkAt(section!, 9), hunkAt(section!, 12)]).toEqual([0, 0, 1, 1]);
  });
});

describe("what is said", () => {
  const CHANGES: Changes = {
    session_id: "s", turn: null, source: "snapshots", state: "ready", reason: null, node_name: null, node_responds: true, repository: null, directory: "/w", workdir: "/w", before: null, after: null,
    files: [], file_count: 0, added: 0, removed: 0, truncated: false, left_alone: [], outside: [], shared_with: [], elsewhere: [], worktree: null, turns: [], operations: [], comments: [],
  };
  const texts = (changes: Partial<Changes>, rewound = false) => tell({ ...CHANGES, ...changes }, rewound, false).map((one) => one.text);

  it("is nothing if all is well", () => {
    expect(texts({})).toEqual([]);
    expect(nothing(CHANGES)).toBe("In this session, no files changed.");
    expect(nothing({ ...CHANGES, turn: 2, source: "edits" })).toBe("In turn 2, the agent has not edited any files.");
    expect(nothing({ ...CHANGES, state: "unavailable", reason: "It took too long." })).toBe("It took too long.");
  });

  it("is a sentence for everything that is missing or shared", () => {
    expect(texts({ state: "running", turn: 3 })).toEqual(["Turn 3 is running. These are its changes so far."]);
    expect(texts({ source: "edits", reason: "No repository." })).toEqual(["No repository."]);
    expect(texts({ state: "partial", reason: "Two files were too large." })).toEqual(["Two files were too large."]);
    expect(texts({ file_count: 900, files: [FILE] })).toEqual(["Showing 1 of 900 files."]);
    expect(texts({ file_count: null, truncated: true, files: [FILE] })).toEqual(["There are more files than can be shown."]);
    expect(texts({ outside: [{ path: "a", status: "modified" }] })).toEqual(["1 file was changed by you or another program between this session's turns."]);
    expect(texts({ elsewhere: [{ directory: "/x", files: ["a", "b"], reason: "It is another repository." }] })).toEqual(["2 files changed in /x. It is another repository."]);
    // What is stored is shown for many reasons, such as an archived session's worktree.
    expect(texts({ source: "stored", node_name: "oak" })).toEqual([]);
    expect(texts({ source: "stored", node_name: "oak", node_responds: false })).toEqual(["The files are on oak, which can't be reached. These changes are as they were recorded."]);
    expect(texts({ turn: 2 }, true)).toEqual(["Turn 2 was rewound. Its changes may still be in the files."]);
  });
});

describe("a link to a file", () => {
  const files: ChangedFile[] = [
    { ...FILE, path: "a.py", tools: [{ turn: 1, tool_id: "top" }] },
    { ...FILE, path: "app/a.py", tools: [{ turn: 1, tool_id: "inner" }, { turn: 2, tool_id: "both" }] },
    { ...FILE, path: "app/new.py", old_path: "app/old.py", tools: [{ turn: 2, tool_id: "both" }] },
  ];
  const found = (file: string | null, edit: string | null = null, directory = "/w") => fileOf({ files, directory, workdir: "/w/app" }, { file, edit })?.path ?? null;

  it("finds it as a tool names it, although the session works in a subfolder", () => {
    expect(found("/w/app/a.py")).toBe("app/a.py");
    expect(found("/w/a.py")).toBe("a.py");
    expect(found("new.py")).toBe("app/new.py");
    expect(found("/w/app/old.py")).toBe("app/new.py");
    expect(found("/elsewhere/a.py")).toBeNull();
  });

  it("finds it by the tool, whatever its path", () => {
    expect(found("a.py", "inner")).toBe("app/a.py");
    expect(found("/link/to/a.py", "inner")).toBe("app/a.py");
    expect(found("/w/app/new.py", "both")).toBe("app/new.py");
    expect(found(null, "top")).toBe("a.py");
    expect(found("gone.py", "unknown")).toBeNull();
  });
});

describe("an operation on files", () => {
  it("names renamed files by both names", () => {
    const files: ChangedFile[] = [{ ...FILE, path: "new", old_path: "old", status: "renamed" }, { ...FILE, path: "a" }];
    expect(pathsOf(files)).toEqual(["new", "old", "a"]);
  });
});

describe("the headline", () => {
  const files: ChangedFile[] = [FILE, { ...FILE, path: "theirs", outside: true, only_outside: true, added: 10, removed: null }, { ...FILE, path: "both", outside: true }];

  it("counts what the session changed, without what only somebody else did", () => {
    expect(ownOf({ files, file_count: 3, added: 18, removed: 6 })).toEqual({ files: [files[0], files[2]], file_count: 2, added: 8, removed: 6 });
    expect(ownOf({ files, file_count: null, added: null, removed: null })).toMatchObject({ file_count: null, added: null, removed: null });
  });
});

describe("the commands", () => {
  const operation = (id: string, changes: Partial<Operation> = {}) => ({ operation_id: id, action: "discard", outcome: "done", undoable: true, undone: false, ...changes }) as Operation;
  const changes = { operations: [operation("undone", { action: "undo" }), operation("failed", { outcome: "failed" }), operation("old", { undone: true }), operation("this"), operation("older")], turns: [{ turn: 1 }, { turn: 4 }, { turn: 5 }] } as Changes;

  it("undo the newest operation that can be undone", () => {
    expect(undoableOf(changes)?.operation_id).toBe("this");
    expect([undoableOf({ ...changes, operations: [] }), undoableOf(null)]).toEqual([null, null]);
  });

  it("go to the turns beside the one that is shown", () => {
    expect([4, 1, 5, null].map((turn) => [turnBeside(changes, turn, -1), turnBeside(changes, turn, 1)])).toEqual([[1, 5], [undefined, 4], [4, undefined], [5, undefined]]);
    expect(turnBeside(null, 1, 1)).toBeUndefined();
  });
});

describe("the tree of files", () => {
  it("has folders first, and joins folders with nothing else in them", () => {
    const files = ["z.md", "src/app/main.ts", "src/app/view/a.ts", "docs/x/y/one.md"].map((path) => ({ path }));
    expect(treeOf(files).map((node) => `${"  ".repeat(node.depth)}${node.name}`)).toEqual(["src/app", "  view", "    a.ts", "  main.ts", "docs/x/y", "  one.md", "z.md"]);
  });
});
