// Drafts are never lost or overwritten, and the same message sent again has the same id.

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { keep, kept } from "../src/state/kept";
import { changeFiles, draftOf, filesOf, forgetId, idFor, putBack, sent, takeBack, whenPut, write } from "../src/views/drafts";
import { Problem, Unreachable } from "../src/wire/api";

const file = (name: string) => ({ name, mime_type: "text/plain", data: "aGk=" });

beforeEach(() => {
  const values = new Map<string, string>();
  vi.stubGlobal("localStorage", { getItem: (key: string) => values.get(key) ?? null, setItem: (key: string, value: string) => values.set(key, value), removeItem: (key: string) => values.delete(key) });
});
afterEach(() => vi.unstubAllGlobals());

describe("drafts", () => {
  it("keep the current text when a message is put back", () => {
    putBack("back", "said\n");
    expect(kept("back")).toBe("said\n");
    write("back", "half");
    putBack("back", "said\n", [file("one")]);
    expect(kept("back")).toBe("said\n\nhalf");
    expect(filesOf("back").map((one) => one.name)).toEqual(["one"]);
  });

  it("accept a message that is put back, and notify the composer that shows them", () => {
    const heard: string[] = [];
    const leave = whenPut("here", (text) => void heard.push(text));
    putBack("here", "one");
    putBack("elsewhere", "two");
    leave();
    putBack("here", "three");
    expect(heard).toEqual(["one"]);
    expect([draftOf("here"), draftOf("elsewhere")]).toEqual(["three\n\none", "two"]);
  });

  it("get an undone message, also if the response was lost, but not if the server refused", async () => {
    const lost = () => Promise.reject(new Unreachable());
    await takeBack("taken", "one", [], async () => undefined);
    expect(draftOf("taken")).toBe("one");
    for (let tries = 0; tries < 2; tries++) await expect(takeBack("lost", "two", [file("x")], lost)).rejects.toThrow(/in the composer/);
    expect(draftOf("lost")).toBe("two");
    expect(filesOf("lost")).toHaveLength(1);
    await expect(takeBack("refused", "three", [], () => Promise.reject(new Problem("No.", 409, "x")))).rejects.toThrow("No.");
    expect(draftOf("refused")).toBe("");
  });

  it("survive a full browser storage", () => {
    write("full", "old");
    localStorage.setItem = () => {
      throw new Error("full");
    };
    write("full", "half written");
    putBack("full", "said");
    expect(draftOf("full")).toBe("said\n\nhalf written");
    expect(sent("full", "said\n\nhalf written", [])).toBe(true);
    expect(draftOf("full")).toBe("");
  });

  it("accept files that are read at the same time", async () => {
    const read = async (name: string) => changeFiles("a", (now) => [...now, file(name)]);
    await Promise.all([read("one"), read("two")]);
    expect(filesOf("a").map((one) => one.name)).toEqual(["one", "two"]);
    expect(filesOf("b")).toEqual([]);
  });

  it("lose only what was sent, not what was typed since", () => {
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

  it("use the same id for the same message until it is accepted", () => {
    const first = idFor({ text: "a" });
    expect(idFor({ text: "a" })).toBe(first);
    const other = idFor({ text: "a", attachments: [file("x")] });
    expect(other).not.toBe(first);
    forgetId();
    expect(idFor({ text: "a", attachments: [file("x")] })).not.toBe(other);
  });
});
