// Whether the page is still the one the server has.

import { afterEach, describe, expect, it, vi } from "vitest";
import { compare, NotLoaded, ofThisBuild, Outdated } from "../src/shell/version";

const DIGEST = "a".repeat(64);
const answers = (text: string, ok = true) => vi.stubGlobal("fetch", async () => ({ ok, text: async () => text }));

afterEach(() => vi.unstubAllGlobals());

describe("the page", () => {
  it("is outdated if the server's was built from other sources", async () => {
    answers(DIGEST + "\n");
    expect(await compare("a".repeat(12))).toBe("same");
    expect(await compare("b".repeat(12))).toBe("other");
  });

  it("counts as current if that can't be determined", async () => {
    answers("<!doctype html>");
    expect(await compare("b".repeat(12))).toBe("same");
    answers(DIGEST, false);
    expect(await compare("b".repeat(12))).toBe("same");
    vi.stubGlobal("fetch", async () => Promise.reject(new TypeError("away")));
    expect(await compare("b".repeat(12))).toBe("away");
  });

  it("loads only parts of its own build", async () => {
    answers(DIGEST);
    const load = vi.fn(async () => "part");
    expect(await ofThisBuild(load, "a".repeat(12))).toBe("part");
    await expect(ofThisBuild(load, "b".repeat(12))).rejects.toBeInstanceOf(Outdated);
    vi.stubGlobal("fetch", async () => Promise.reject(new TypeError("away")));
    await expect(ofThisBuild(load, "a".repeat(12))).rejects.toBeInstanceOf(NotLoaded);
    expect(load).toHaveBeenCalledTimes(1);
  });
});
