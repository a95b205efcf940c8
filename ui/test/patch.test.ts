// Patches as git prints them, word marks, and painted lines.

import { describe, expect, it } from "vitest";
import { painted, runsOf, languageOf } from "../src/text/paint";
import { patchOfEdits, readAll, readPatch, type PatchFile } from "../src/text/patch";
import { marksOf } from "../src/text/wordmarks";

const read = (text: string) => [...readPatch(text)].filter((file): file is PatchFile => file !== null);

const PATCH = `diff --git a/src/a.py b/src/a.py
index 1111111..2222222 100644
--- a/src/a.py
+++ b/src/a.py
@@ -1,3 +1,4 @@
 one
--- a/not a header
+++ b/not a header
+more
 three
@@ -10,2 +11 @@ def f():
 ten
-eleven
\\ No newline at end of file
diff --git a/old name.txt b/new name.txt
similarity index 90%
rename from old name.txt
rename to new name.txt
index 3333333..4444444 100644
--- a/old name.txt\t
+++ b/new name.txt\t
@@ -1 +1 @@
-a
+b
diff --git a/run.sh b/run.sh
old mode 100644
new mode 100755
diff --git a/logo.png b/logo.png
index 5555555..6666666 100644
Binary files a/logo.png and b/logo.png differ
diff --git "a/caf\\303\\251 \\"x\\".txt" "b/caf\\303\\251 \\"x\\".txt"
new file mode 100644
index 0000000..7777777
--- /dev/null
+++ "b/caf\\303\\251 \\"x\\".txt"
@@ -0,0 +1 @@
+new
diff --git a/gone b/gone
deleted file mode 100644
index 8888888..0000000
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-bye
`;

describe("a patch", () => {
  const files = read(PATCH);

  it("has every file with its names, whatever they consist of", () => {
    expect(files.map((file) => [file.path, file.oldPath])).toEqual([
      ["src/a.py", "src/a.py"],
      ["new name.txt", "old name.txt"],
      ["run.sh", "run.sh"],
      ["logo.png", "logo.png"],
      ['café "x".txt', null],
      ["gone", "gone"],
    ]);
    expect(files[3]).toMatchObject({ binary: true, ids: ["5555555", "6666666"], hunks: [] });
  });

  it("has numbered lines; a line that looks like a header is one if it is not in a hunk", () => {
    const [first, second] = files[0]!.hunks;
    expect(first!.lines.map((line) => [line.kind, line.text, line.old, line.new])).toEqual([
      ["same", "one", 1, 1],
      ["removed", "-- a/not a header", 2, 0],
      ["added", "++ b/not a header", 0, 2],
      ["added", "more", 0, 3],
      ["same", "three", 3, 4],
    ]);
    expect(second).toMatchObject({ old: 10, oldCount: 2, new: 11, newCount: 1, heading: "def f():" });
    expect(second!.lines[1]).toMatchObject({ kind: "removed", text: "eleven", open: true });
  });

  it("is read in steps, and stops when nobody waits for it any more", async () => {
    const big = "diff --git a/b b/b\n--- a/b\n+++ b/b\n@@ -0,0 +1,50000 @@\n" + "+line\n".repeat(50_000);
    expect([...readPatch(big)].filter((step) => step === null)).toHaveLength(25);
    const found: PatchFile[] = [];
    expect(await readAll(big, (file) => found.push(file), async () => true)).toBe(true);
    expect(found[0]!.hunks[0]!.lines).toHaveLength(50_000);
    expect(await readAll(PATCH.repeat(5000), () => {}, async () => false)).toBe(false);
  });

  it("is made of edits where there is no repository", () => {
    const before = Array.from({ length: 30 }, (_, at) => `line ${at}`).join("\n");
    const after = before.replace("line 2\n", "two\n").replace("line 28", "twenty-eight");
    const [first, second] = patchOfEdits("a", [{ old_text: before, new_text: after, line: 11 }]).hunks;
    expect(first!.lines.map((line) => line.text)).toEqual(["line 0", "line 1", "line 2", "two", "line 3", "line 4", "line 5"]);
    expect([first!.old, first!.new, second!.old, second!.oldCount]).toEqual([11, 11, 36, 5]);
    expect(patchOfEdits("a", [{ old_text: null, new_text: "x\n" }])).toMatchObject({ oldPath: null, hunks: [{ newCount: 1, oldCount: 0 }] });
  });
});

describe("word marks", () => {
  const line = (kind: "added" | "removed", text: string) => ({ kind, text, old: 1, new: 1 });
  const marked = (before: string[], after: string[]) => {
    const lines = [...before.map((text) => line("removed", text)), ...after.map((text) => line("added", text))];
    const marks = marksOf(lines);
    return lines.map((one) => (marks.get(one) ?? []).map(([from, to]) => one.text.slice(from, to)));
  };

  it("are on the words that changed", () => {
    expect(marked(["limit = 3600 seconds"], ["limit = 900 seconds"])).toEqual([["3600"], ["900"]]);
    expect(marked(["return a + b"], ["return first_name + b"])).toEqual([["a"], ["first_name"]]);
  });

  it("join changed words over blanks", () => {
    expect(marked(["call(one, two, three, four)"], ["call(one, 2 3, four)"])[1]).toEqual(["2 3"]);
  });

  it("are left out if the lines have little in common, or are too many or too long", () => {
    expect(marked(["import os"], ["class Server(Base):"])).toEqual([[], []]);
    expect(marked(["x".repeat(5000) + " a"], ["x".repeat(5000) + " b"])).toEqual([[], []]);
    expect(marked(Array(300).fill("a b c d"), Array(300).fill("a b c e")).flat()).toEqual([]);
  });

  it("pair the lines that are alike if some were added", () => {
    const pairs = marked(["alpha = read(one)", "beta = read(two)"], ["alpha = read(1)", "log('between')", "beta = read(2)"]);
    expect(pairs).toEqual([["one"], ["two"], ["1"], [], ["2"]]);
  });
});

describe("a painted line", () => {
  it("has colours and marks, and nothing of it is markup", () => {
    const [first, second] = runsOf('<span class="k">if</span> a &lt; <span class="s">&quot;x\ny&quot;</span>');
    expect(first).toEqual([{ text: "if", colour: "k" }, { text: " a < ", colour: "" }, { text: '"x', colour: "s" }]);
    expect(second).toEqual([{ text: 'y"', colour: "s" }]);
    expect(painted(first!, [[1, 4]])).toBe('<span class="k">i<b>f</b></span><b> a</b> &lt; <span class="s">&quot;x</span>');
    expect(painted([{ text: "<img onerror=x>", colour: "" }], [])).toBe("&lt;img onerror=x&gt;");
  });

  it("shows characters that can't be seen", () => {
    expect(painted([{ text: "a\u202eb", colour: "" }], [])).toBe("a\\u{202e}b");
  });

  it("is in the language of the file", () => {
    expect(["src/a.py", "b/Dockerfile", "LICENSE", ".bashrc", "x.d.ts"].map(languageOf)).toEqual(["py", "bash", "", "bash", "ts"]);
  });
});
