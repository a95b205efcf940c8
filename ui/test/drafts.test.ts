// What is written is not lost: nothing is overwritten, and the same thing sent again is the same.

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { keep, kept } from "../src/state/kept";
import { before, changeFiles, filesOf, forgetId, idFor, sent } from "../src/views/drafts";

const file = (name: string) => ({ name, mime_type: "text/plain", data: "aGk=" });

beforeEach(() => {
  const values = new Map<string, string>();
  vi.stubGlobal("localStorage", { getItem: (key: string) => values.get(key) ?? null, setItem: (key: string, value: string) => values.set(key, value), removeItem: (key: string) => values.delete(key) });
});
afterEach(() => vi.unstubAllGlobals());

describe("drafts", () => {
  it("keep what is half written when something comes back", () => {
    expect(before("said", "")).toBe("said");
    expect(before("said\n", "half")).toBe("said\n\nhalf");
  });

  it("take files that are read at the same time", async () => {
    const read = async (name: string) => changeFiles("a", (now) => [...now, file(name)]);
    await Promise.all([read("one"), read("two")]);
    expect(filesOf("a").map((one) => one.name)).toEqual(["one", "two"]);
    expect(filesOf("b")).toEqual([]);
  });

  it("end with what was sent, not with what was written since", () => {
    const early = file("early");
    changeFiles("c", () => [early, file("late")]);
    keep("c", "text");
    expect(sent("c", "text", [early])).toBe(true);
    expect(kept("c")).toBe(null);
    expect(filesOf("c").map((one) => one.name)).toEqual(["late"]);
    keep("c", "another");
    expect(sent("c", "text", [])).toBe(false);
    expect(kept("c")).toBe("another");
  });

  it("have the same id for the same message until it was taken", () => {
    const first = idFor({ text: "a" });
    expect(idFor({ text: "a" })).toBe(first);
    const other = idFor({ text: "a", attachments: [file("x")] });
    expect(other).not.toBe(first);
    forgetId();
    expect(idFor({ text: "a", attachments: [file("x")] })).not.toBe(other);
  });
});
