// Operations on files: how they end, and what is asked before one is undone.

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Result } from "../src/views/changes/acting";
import type { ChangedFile, Operation } from "../src/wire/changes";

interface Said {
  text: string;
  bad: boolean;
  offer: { label: string; run: () => void } | null;
}

const said: Said[] = [];
vi.mock("../src/shell/toast", () => ({ say: (text: string, bad = false, offer: Said["offer"] = null) => void said.push({ text, bad, offer }) }));
vi.mock("../src/state/changes", () => ({ refreshChanges: () => {} }));
const { act, askedUndo, askUndo, undo } = await import("../src/views/changes/acting");
const { commitFiles, discardChanges } = await import("../src/wire/changes");

const DONE = { operation_id: "f_2", action: "undo", outcome: "done", message: "Undone: 1 file changed back.", skipped: [], undoable: true };
const FIRST = { operation_id: "f_1", action: "restore", outcome: "done", code: null, message: "", turn: 1, at: "", files: [], file_count: 1, skipped: [], commit: null, undoable: true, undone: false } as const satisfies Operation;
const REFUSED = { error: "1 file changed since. Choose to keep or overwrite.", code: "files_changed", outside: [{ path: "a\u202e.py", reason: "It was changed." }] };
let answers: Response[];
let bodies: object[];

beforeEach(() => {
  said.length = 0;
  bodies = [];
  askUndo(null);
  vi.stubGlobal("fetch", async (_: string, options: RequestInit) => {
    bodies.push(JSON.parse(options.body as string));
    return answers.shift()!;
  });
});
afterEach(() => vi.unstubAllGlobals());

describe("an undo", () => {
  it("says what it did, and can be undone", async () => {
    answers = [Response.json(DONE)];
    await undo("s", FIRST);
    expect(said).toMatchObject([{ text: DONE.message, bad: false, offer: { label: "Undo" } }]);
  });

  it.each(["keep", "overwrite"] as const)("asks what to do with files that have changed since: %s", async (outside) => {
    answers = [Response.json(REFUSED, { status: 409 }), Response.json({ ...DONE, skipped: outside === "keep" ? REFUSED.outside : [] })];
    const results: Result[] = [];
    await undo("s", FIRST, (result) => results.push(result));
    expect([results, said]).toEqual([[], []]);
    const asked = askedUndo()!;
    expect(asked.why).toEqual({ message: REFUSED.error, files: REFUSED.outside });
    await undo(asked.session, asked.operation, asked.told, outside);
    expect(bodies).toEqual([{ operation_id: "f_1", outside: null }, { operation_id: "f_1", outside }]);
    expect(results[0]!.text).toBe(DONE.message + (outside === "keep" ? " Left as they are: a\\u{202e}.py." : ""));
    expect(said).toEqual([]);
  });

  it("that is refused after the answer too is not asked about again", async () => {
    answers = [Response.json({ ...REFUSED, error: "1 file can't be changed." }, { status: 409 })];
    await undo("s", FIRST, undefined, "overwrite");
    expect(askedUndo()).toBeNull();
    expect(said).toMatchObject([{ text: "1 file can't be changed. a\\u{202e}.py", bad: true }]);
  });
});

describe("another operation", () => {
  it("returns the files in the way, or says why it was refused", async () => {
    const wanted = { turn: 1, path: "a", hunks: null, new_id: "2", outside: null };
    answers = [Response.json(REFUSED, { status: 409 }), Response.json({ error: "A turn is running.", code: "turn_active" }, { status: 409 })];
    const refused: string[] = [];
    for (let count = 0; count < 2; count++) expect(await act("s", discardChanges("s", wanted), (why) => refused.push(why.message))).toBeNull();
    expect(refused).toEqual([REFUSED.error]);
    expect(said).toMatchObject([{ text: "A turn is running.", bad: true, offer: null }]);
  });
});

describe("a commit", () => {
  const file = (path: string, changes: Partial<ChangedFile>) => ({ path, old_path: null, status: "modified", new_id: "2", ...changes }) as ChangedFile;

  it("is of the contents that were shown; of renamed files, both names", async () => {
    answers = [Response.json(DONE), Response.json(DONE), Response.json(DONE)];
    await commitFiles("s", [file("a", {}), file("new", { status: "renamed", old_path: "old", new_id: "3" }), file("gone", { status: "deleted", new_id: null })], "Ours");
    await commitFiles("s", null, "All");
    await commitFiles("s", [file("a", {})], "As it is", true);
    const contents = [{ path: "a", new_id: "2" }, { path: "new", new_id: "3" }, { path: "old", new_id: null }, { path: "gone", new_id: null }];
    expect(bodies).toEqual([{ files: contents, message: "Ours" }, { message: "All" }, { paths: ["a"], message: "As it is" }]);
  });
});
