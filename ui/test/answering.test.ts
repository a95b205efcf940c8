// Keys that answer prompts: only prompts that were on screen long enough, and each prompt once.

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { visible } from "../src/text/visible";
import { again, diffOf, marked, once, optionOf } from "../src/views/answering";
import type { PromptOption, TranscriptTurn } from "../src/wire/types";

const of = (...ids: string[]) => ids.map((prompt_id) => ({ prompt: { prompt_id, kind: prompt_id.startsWith("q") ? ("question" as const) : ("permission" as const) } }));

describe("answering", () => {
  it("keeps a prompt selected when it moves in the list", () => {
    expect(marked(of("a", "b"), null)!.prompt.prompt_id).toBe("a");
    expect(marked(of("b", "a"), "a")!.prompt.prompt_id).toBe("a");
    expect(marked(of("b"), "a")!.prompt.prompt_id).toBe("b");
    expect(marked([], "a")).toBeUndefined();
  });

  it("selects by default only a prompt that a key can answer", () => {
    expect(marked(of("q", "a"), null)!.prompt.prompt_id).toBe("a");
    expect(marked(of("q", "a"), "q")!.prompt.prompt_id).toBe("q");
    expect(marked(of("q"), null)).toBeUndefined();
  });

  it("allows always only with the key for it", () => {
    const options = (...kinds: PromptOption["kind"][]) => kinds.map((kind) => ({ option_id: kind, name: kind, kind }));
    const both = options("allow_always", "reject_once", "allow_once");
    expect(["y", "a", "n"].map((key) => optionOf(both, key)?.kind)).toEqual(["allow_once", "allow_always", undefined]);
    expect(optionOf(options("allow_always", "reject_once"), "y")).toBeUndefined();
  });

  it("answers a prompt once, and again only if the answer failed", () => {
    expect([once("p"), once("p")]).toEqual([true, false]);
    again("p");
    expect(once("p")).toBe(true);
  });
});

describe("a permission request", () => {
  it("shows the diff of its tool", () => {
    const diff = [{ path: "a", old_text: null, new_text: "x" }];
    const turns = [{ parts: [{ type: "text", block: 0, text: "" }, { type: "tool", tool_id: "one" }, { type: "tool", tool_id: "two", diff }] }] as unknown as TranscriptTurn[];
    expect(diffOf(turns, "two")).toBe(diff);
    expect(diffOf(turns, "one")).toBeUndefined();
    expect(diffOf(turns, "none")).toBeUndefined();
  });

  it("shows invisible characters", () => {
    expect(visible("rm \u202e-rf\u200b /\u{e0041}\x1b[2K")).toBe("rm \\u{202e}-rf\\u{200b} /\\u{e0041}\\u{1b}[2K");
    expect(visible("plain\ttext\r\nwith äöü 漢字 👍")).toBe("plain\ttext\r\nwith äöü 漢字 👍");
  });
});

describe("keys", () => {
  let press: (event: object) => void;
  beforeEach(() => {
    vi.stubGlobal("HTMLElement", class {});
    vi.stubGlobal("document", { querySelector: () => null });
    vi.stubGlobal("addEventListener", (_: string, listener: (event: object) => void) => (press = listener));
  });
  afterEach(() => vi.unstubAllGlobals());

  it("that are held down act once, unless the command repeats", async () => {
    const { listenToKeys, register } = await import("../src/shell/commands");
    const done: string[] = [];
    register([
      { id: "allow", title: "", keys: "y", group: "", run: () => done.push("y") },
      { id: "next", title: "", keys: "j", group: "", repeats: true, run: () => done.push("j") },
    ]);
    listenToKeys();
    for (const key of ["y", "j"]) for (const repeat of [false, true, true]) press({ key, repeat, target: null, preventDefault: () => undefined });
    expect(done).toEqual(["y", "j", "j", "j"]);
  });
});
