// Keys that answer prompts: only what was there to be read, and each prompt once.

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { again, marked, once } from "../src/views/answering";

const of = (...ids: string[]) => ids.map((prompt_id) => ({ prompt: { prompt_id } }));

describe("answering", () => {
  it("keeps the mark on a prompt that changes its place", () => {
    expect(marked(of("a", "b"), null)!.prompt.prompt_id).toBe("a");
    expect(marked(of("b", "a"), "a")!.prompt.prompt_id).toBe("a");
    expect(marked(of("b"), "a")!.prompt.prompt_id).toBe("b");
    expect(marked([], "a")).toBeUndefined();
  });

  it("answers a prompt once, and again only if that failed", () => {
    expect([once("p"), once("p")]).toEqual([true, false]);
    again("p");
    expect(once("p")).toBe(true);
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

  it("that are held do something once, unless it is meant to go on", async () => {
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
