// Growing text as blocks, and diffs between texts: the pieces together are the original text.

import { describe, expect, it } from "vitest";
import { grow, NOTHING, shown as toShow, codeOf, type Blocks } from "../src/text/blocks";
import { counts, difference, numbered, shifts } from "../src/text/difference";

const ARTICLE = `# Title

A paragraph with **bold** text
on two lines.

- one
- two
  - inside

1. first
2. second

\`\`\`python
def f():
    return 1
\`\`\`

| a | b |
| - | - |
| 1 | 2 |

> said

The end.`;

const shown = (blocks: Blocks) => [...blocks.settled, ...blocks.tail].map(({ kind, raw, lang }) => ({ kind, raw: raw.trim(), lang }));

function letterByLetter(text: string, step: number): Blocks {
  let blocks = NOTHING;
  for (let end = step; end < text.length + step; end += step) blocks = grow(blocks, text.slice(0, end));
  return blocks;
}

describe("blocks", () => {
  it("are the same however the text arrives", () => {
    const whole = shown(grow(NOTHING, ARTICLE));
    expect(whole.length).toBeGreaterThan(6);
    for (const step of [1, 2, 3, 7, 50]) expect(shown(letterByLetter(ARTICLE, step))).toEqual(whole);
  });

  it("find code inside text, with its language", () => {
    const code = shown(grow(NOTHING, ARTICLE)).find((block) => block.kind === "code")!;
    expect(code).toEqual({ kind: "code", raw: "def f():\n    return 1", lang: "python" });
  });

  it("settle long text, so that each step stays cheap", () => {
    const words = Array.from({ length: 20_000 }, (_, index) => `w${index} `).join("");
    const blocks = letterByLetter(words, 997);
    expect([...blocks.settled, ...blocks.tail].map((block) => block.raw).join("")).toBe(words);
    expect(Math.max(...blocks.settled.map((block) => block.raw.length))).toBeLessThan(4000);
    expect(words.length - blocks.offset).toBeLessThan(6000);
  });

  it("cut long code into pieces without losing a line", () => {
    const lines = Array.from({ length: 1000 }, (_, index) => `line ${index}`);
    const text = "before\n\n```js\n" + lines.join("\n") + "\n```\n\nafter";
    for (const blocks of [grow(NOTHING, text), letterByLetter(text, 313)]) {
      const all = [...blocks.settled, ...blocks.tail];
      const code = all.filter((block) => block.kind === "code");
      expect(code.map((block) => block.raw).join("\n")).toBe(lines.join("\n"));
      expect(code[0]!.first).toBe(true);
      expect(code[code.length - 1]!.last).toBe(true);
      expect(all[all.length - 1]!.raw).toBe("after");
      expect(codeOf(toShow(blocks).find((block) => block.first)!)).toBe(lines.join("\n"));
    }
  });

  it("settle the items of a long list", () => {
    const text = Array.from({ length: 500 }, (_, index) => `- item number ${index}\n`).join("");
    const blocks = letterByLetter(text, 501);
    expect([...blocks.settled, ...blocks.tail].map((block) => block.raw).join("")).toBe(text);
    expect(text.length - blocks.offset).toBeLessThan(6000);
  });

  const everyWay = (text: string) => [grow(NOTHING, text), letterByLetter(text, 1), letterByLetter(text, 7)];

  it("recognize code fenced by tildes, whatever follows them", () => {
    for (const blocks of everyWay("before\n\n~~~ a`b\ncode\n~~~\n\nafter")) {
      expect(shown(blocks).map((block) => [block.kind, block.raw])).toEqual([["markdown", "before"], ["code", "code"], ["markdown", "after"]]);
    }
  });

  it("accept any line ending", () => {
    for (const blocks of everyWay("one\r\n\r\n```js\r\nx = 1\r\n```\r\n\r\n- a\r\n- b\r\n\r\nend\r\n")) {
      expect(shown(blocks).map((block) => block.raw)).toEqual(["one", "x = 1", "- a\n- b", "end"]);
    }
  });

  it("neither lose nor repeat text that the lexer skips", () => {
    const text = "See [1] here.\n\n[1]: https://a.example\n\nMiddle.\n\n[1]: https://b.example\n\nThen.\n\n```\ncode\n```\n\n[1]: https://c.example\n\nLast.";
    for (const blocks of everyWay(text)) {
      const raws = toShow(blocks).map((block) => block.raw).join("\n");
      for (const word of ["See", "Middle.", "Then.", "code", "Last."]) expect(raws.split(word).length).toBe(2);
    }
  });

  it("resolve a link defined in another block", () => {
    const blocks = toShow(grow(NOTHING, "See [the page][1].\n\nNo link.\n\n[1]: https://a.example\n"));
    expect(blocks.map((block) => [block.raw.trim(), block.links])).toEqual([["See [the page][1].", "[1]: https://a.example"], ["No link.", undefined]]);
  });
});

describe("difference", () => {
  it("shows added and removed lines", () => {
    const lines = difference("a\nb\nc\n", "a\nx\nc\nd\n");
    expect(lines.map((line) => [line.kind, line.text])).toEqual([
      ["same", "a"],
      ["removed", "b"],
      ["added", "x"],
      ["same", "c"],
      ["added", "d"],
    ]);
    expect(counts(lines)).toEqual({ added: 2, removed: 1 });
  });

  it("has the file's line numbers if the position of the change is known", () => {
    const diffs = [
      { path: "a", old_text: "one\n", new_text: "one\ntwo\nthree\n", line: 10 },
      { path: "b", old_text: null, new_text: "new\n" },
      { path: "a", old_text: "x\n", new_text: "y\n", line: 22 },
    ];
    expect(shifts(diffs)).toEqual([0, 0, 2]);
    const at = (index: number) => numbered(difference(diffs[index]!.old_text, diffs[index]!.new_text), diffs[index]!.line, shifts(diffs)[index]);
    expect(at(0).map((line) => [line.kind, line.old, line.new])).toEqual([["same", 10, 10], ["added", undefined, 11], ["added", undefined, 12]]);
    expect(at(1).map((line) => [line.old, line.new])).toEqual([[undefined, 1]]);
    expect(at(2).map((line) => [line.kind, line.old, line.new])).toEqual([["removed", 20, undefined], ["added", undefined, 22]]);
  });

  it("restores the new text from its lines", () => {
    let random = 7;
    const next = (below: number) => (random = (random * 1103515245 + 12345) % 2147483648) % below;
    for (let round = 0; round < 200; round++) {
      const before = Array.from({ length: next(12) }, () => "abc"[next(3)]!);
      const after = Array.from({ length: next(12) }, () => "abc"[next(3)]!);
      const lines = difference(before.join("\n"), after.join("\n")).filter((line) => line.kind !== "gap");
      const changed = lines.filter((line) => line.kind !== "same").length;
      if (changed) {
        const shownNew = lines.filter((line) => line.kind !== "removed");
        for (const line of shownNew) expect(after[line.new! - 1]).toBe(line.text);
        const shownOld = lines.filter((line) => line.kind !== "added");
        for (const line of shownOld) expect(before[line.old! - 1]).toBe(line.text);
      } else expect(before).toEqual(after);
    }
  });

  it("folds unchanged lines", () => {
    const text = Array.from({ length: 100 }, (_, index) => `line ${index}`).join("\n");
    const lines = difference(text, text + "\nmore");
    expect(lines[0]).toEqual({ kind: "gap", text: "97 lines" });
    expect(lines.length).toBe(5);
  });

  it("stays bounded if everything changed", () => {
    const before = Array.from({ length: 5000 }, (_, index) => `a${index}`).join("\n");
    const after = Array.from({ length: 5000 }, (_, index) => `b${index}`).join("\n");
    expect(counts(difference(before, after))).toEqual({ added: 5000, removed: 5000 });
  });
});
