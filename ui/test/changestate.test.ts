// The changes while they are shown: what is fetched and when, what stays the same, drafts of comments, viewed files.

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { ChangedFile } from "../src/wire/changes";
import type { FromFeed } from "../src/wire/feed";

let hear: (message: FromFeed) => void = () => {};
vi.mock("../src/wire/link", () => ({ listen: (listener: (message: FromFeed) => void) => void (hear = both(hear, listener)), again: () => {} }));
const both = (a: typeof hear, b: typeof hear) => (message: FromFeed) => (a(message), b(message));

let asked: string[];
let files: ChangedFile[];
let answer: (url: string) => Response | null;
let things: Map<string, string>;

const file = (path: string, changes: Partial<ChangedFile> = {}): ChangedFile => ({ path, old_path: null, status: "modified", old_mode: "100644", new_mode: "100644", old_id: "1".repeat(40), new_id: "2".repeat(40), binary: false, image: false, added: 1, removed: 1, old_size: 1, new_size: 1, committed: false, outside: false, tools: [], ...changes });
const patchOf = (paths: string[]) => paths.map((path) => `diff --git a/${path} b/${path}\nindex 1..2 100644\n--- a/${path}\n+++ b/${path}\n@@ -1 +1 @@\n-a\n+b\n`).join("");

beforeEach(() => {
  vi.useFakeTimers();
  asked = [];
  hear = () => {};
  files = [file("a"), file("b")];
  answer = () => null;
  things = new Map();
  vi.stubGlobal("localStorage", { getItem: (key: string) => things.get(key) ?? null, removeItem: (key: string) => void things.delete(key), setItem: (key: string, value: string) => void things.set(key, value) });
  vi.stubGlobal("fetch", async (url: string, options: RequestInit) => {
    asked.push(url.replace("/api/sessions/s/", ""));
    options.signal?.throwIfAborted();
    const given = answer(url);
    if (given) return given;
    if (url.includes("/patch")) {
      const wanted = new URL(url, "http://h").searchParams.getAll("path");
      return new Response(patchOf(files.map((one) => one.path).filter((path) => !wanted.length || wanted.includes(path))));
    }
    return Response.json({ state: "ready", source: "snapshots", files, file_count: files.length, turns: [], comments: [], operations: [] });
  });
  vi.resetModules();
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);
const event = (type: string) => hear({ kind: "events", session: "s", events: [{ type, seq: 1, at: "", session_id: "s", turn: 1 }] } as unknown as FromFeed);

async function shown(reads = true) {
  const { changesOf } = await import("../src/state/changes");
  const store = changesOf("s", null);
  const leave = store.subscribe(() => {});
  if (reads) store.read();
  await pass(50);
  return { store, leave };
}

describe("the changes", () => {
  it("are fetched with one patch for all files", async () => {
    const { store } = await shown();
    expect(asked).toEqual(["changes", "changes/patch"]);
    expect(store.loaded.files.map((one) => [one.state, one.patch?.hunks.length])).toEqual([["ready", 1], ["ready", 1]]);
  });

  it("are fetched again when files changed; only the patch of what is different is read", async () => {
    const { store } = await shown();
    const [before] = store.loaded.files;
    files = [file("a"), file("b", { new_id: "3".repeat(40) }), file("c")];
    event("assistant_text");
    await pass(1000);
    expect(asked).toHaveLength(2);
    event("files_changed");
    await pass(1000);
    expect(asked.slice(2)).toEqual(["changes", "changes/patch?path=b&path=c"]);
    expect(store.loaded.files[0]).toBe(before);
    expect(store.loaded.files.every((one) => one.state === "ready")).toBe(true);
  });

  it("are not fetched when nobody looks, nor for another session", async () => {
    const { leave } = await shown();
    hear({ kind: "events", session: "other", events: [{ type: "turn_changes" }] } as unknown as FromFeed);
    leave();
    event("turn_changes");
    await pass(5000);
    expect(asked).toHaveLength(2);
  });

  it("are looked at while a turn runs only if somebody reads the diffs: the server takes a snapshot each time", async () => {
    answer = (url) => (url.includes("/patch") ? null : Response.json({ state: "running", source: "snapshots", files, turns: [], comments: [], operations: [] }));
    const { store } = await shown(false);
    expect([asked, store.loaded.fresh]).toEqual([["changes"], true]);
    for (const type of ["turn_start", "tool_result", "tool_result"]) event(type);
    await pass(10_000);
    expect(asked).toHaveLength(1);
    // What is known may be out of date, so look when somebody comes.
    expect(store.loaded.fresh).toBe(false);
    store.read();
    await pass(1000);
    expect(asked.slice(1).toSorted()).toEqual(["changes", "changes/patch"]);
    expect(store.loaded.fresh).toBe(true);
    event("tool_result");
    await pass(5000);
    expect(asked).toHaveLength(4);
    event("turn_changes");
    await pass(1000);
    expect(asked).toHaveLength(5);
  });

  it("are looked at after a tool, even if the last answer was from before the turn", async () => {
    await shown();
    event("tool_result");
    await pass(5000);
    expect(asked.filter((url) => url === "changes")).toHaveLength(2);
  });

  it("are read to the end on a slow link, although they change meanwhile", async () => {
    const given: ((patch: Response) => void)[] = [];
    const signals: AbortSignal[] = [];
    const fetched = globalThis.fetch;
    vi.stubGlobal("fetch", (url: string, options: RequestInit) => {
      if (!url.includes("/patch")) return fetched(url, options);
      asked.push(url.replace("/api/sessions/s/", ""));
      signals.push(options.signal!);
      return new Promise<Response>((resolve) => given.push(resolve));
    });
    const { store } = await shown();
    for (let number = 3; number < 7; number++) {
      files = [file("a"), file("b", { new_id: String(number).repeat(40) })];
      event("files_changed");
      await pass(1000);
    }
    expect(asked.filter((url) => url.includes("/patch"))).toEqual(["changes/patch"]);
    given[0]!(new Response(patchOf(["a"])));
    await pass(100);
    expect(store.loaded.files.map((one) => one.state)).toEqual(["ready", "loading"]);
    expect(asked.at(-1)).toBe("changes/patch?path=b");
    // Nothing in it is wanted any more.
    files = [file("c")];
    event("files_changed");
    await pass(1000);
    expect(signals.map((signal) => signal.aborted)).toEqual([false, true, false]);
    given[2]!(new Response(patchOf(["c"])));
    await pass(100);
    expect(store.loaded.files.map((one) => one.state)).toEqual(["ready"]);
  });

  it("say if even the patch of one file is too large", async () => {
    answer = (url) => (url.includes("/patch") ? new Response("", { headers: { "perdure-truncated": "true" } }) : null);
    const { store } = await shown();
    expect(store.loaded.files.map((one) => one.state)).toEqual(["left_out", "left_out"]);
    await store.readOne("b");
    expect(store.loaded.files.map((one) => one.state)).toEqual(["left_out", "too_large"]);
    event("files_changed");
    await pass(1000);
    expect(store.loaded.files.map((one) => one.state)).toEqual(["left_out", "too_large"]);
  });

  it("say which patches were left out, and read one on request", async () => {
    answer = (url) => (url.includes("/patch") && !url.includes("path=") ? new Response(patchOf(["a"]), { headers: { "perdure-truncated": "true" } }) : null);
    const { store } = await shown();
    expect(store.loaded.files.map((one) => one.state)).toEqual(["ready", "left_out"]);
    await store.readOne("b");
    expect(store.loaded.files.map((one) => one.state)).toEqual(["ready", "ready"]);
  });

  it("keep what is shown if the server is away, and come back by themselves", async () => {
    const { store } = await shown();
    answer = () => new Response("", { status: 502 });
    event("turn_end");
    await pass(600);
    expect(store.loaded.trouble).toContain("Can't reach");
    expect(store.loaded.files).toHaveLength(2);
    answer = () => null;
    hear({ kind: "link", state: "live", at: 0 } as FromFeed);
    await pass(300);
    expect(store.loaded.trouble).toBe("");
  });

  it("ask no more after a refusal", async () => {
    answer = () => Response.json({ error: "There is no turn 9.", code: "not_found" }, { status: 404 });
    const { store } = await shown();
    await pass(60_000);
    expect([asked.length, store.loaded.trouble]).toEqual([1, "There is no turn 9."]);
  });

  it("of edits need no patch", async () => {
    files = [file("a", { old_id: null, new_id: null, diffs: [{ path: "a", old_text: null, new_text: "one\n" }] })];
    const { store } = await shown();
    expect(asked).toEqual(["changes"]);
    expect(store.loaded.files[0]!.patch!.hunks[0]!.lines[0]!.text).toBe("one");
  });

  it("find a file whose name is not valid Unicode by its contents", async () => {
    files = [file("x\udcff", { old_id: "abc" + "0".repeat(37), new_id: "def" + "0".repeat(37) })];
    answer = (url) => (url.includes("/patch") ? new Response("diff --git a/x\ufffd b/x\ufffd\nindex abc..def 100644\n--- a/x\ufffd\n+++ b/x\ufffd\n@@ -1 +1 @@\n-a\n+b\n") : null);
    const { store } = await shown();
    expect(store.loaded.files[0]!.patch?.hunks).toHaveLength(1);
  });
});

describe("drafts of comments", () => {
  const passage = { path: "a", side: "new", line: 3, end_line: null, turn: null, quote: "x" } as const;

  it("survive a reload, one for each place; empty ones give way", async () => {
    const first = await import("../src/state/review");
    const id = first.begin("s", passage);
    first.change("s", id, { text: "Why?", open: false });
    expect(first.begin("s", passage)).toBe(id);
    first.change("s", id, { open: false });
    first.begin("s", { ...passage, line: 9 });
    first.begin("s", { ...passage, line: 10 });
    expect(first.draftsOf("s").map((one) => one.line)).toEqual([3, 10]);
    vi.resetModules();
    const second = await import("../src/state/review");
    // Nobody is about to write the empty one any more.
    expect(second.draftsOf("s").map((one) => one.text)).toEqual(["Why?"]);
    expect(second.draftsOf("other")).toEqual([]);
  });

  it("are others if the lines with these numbers say something else", async () => {
    const review = await import("../src/state/review");
    const id = review.begin("s", passage);
    review.change("s", id, { text: "Why?", open: false });
    expect(review.begin("s", { ...passage, quote: "y" })).not.toBe(id);
    // More lines with the same end: the quote is theirs.
    expect(review.begin("s", { ...passage, line: 2, end_line: 3, quote: "w\nx" })).toBe(id);
    expect(review.draftsOf("s").find((one) => one.id === id)).toMatchObject({ line: 2, end_line: 3, quote: "w\nx", text: "Why?" });
  });

  it("are sent as one message, with the same id until it arrived", async () => {
    const review = await import("../src/state/review");
    review.change("s", review.begin("s", passage), { text: " Why? ", open: false });
    const bodies: { message_id: string; comments: object[] }[] = [];
    let works = false;
    vi.stubGlobal("fetch", async (_: string, options: RequestInit) => {
      bodies.push(JSON.parse(options.body as string));
      if (!works) throw new TypeError("gone");
      return Response.json({}, { status: 202 });
    });
    await expect(review.sendDrafts("s", "", "claude", "queue")).rejects.toThrow();
    expect(review.draftsOf("s")).toHaveLength(1);
    works = true;
    await review.sendDrafts("s", "", "claude", "queue");
    expect(bodies[0]!.message_id).toBe(bodies[1]!.message_id);
    expect(bodies[1]!.comments).toEqual([{ ...passage, text: "Why?" }]);
    expect(review.draftsOf("s")).toEqual([]);
  });
});

describe("drafts of an erased session", () => {
  it("are erased with everything else that was written about it", async () => {
    const review = await import("../src/state/review");
    const passage = { path: "a", side: "new", line: 3, end_line: null, turn: null, quote: "x" } as const;
    for (const session of ["s", "other"]) review.change(session, review.begin(session, passage), { text: "Why?", open: false });
    for (const name of ["reviewtext", "commit"]) things.set(`perdure.${name}.s`, "Please");
    review.forgetReview("s");
    expect(review.draftsOf("s")).toEqual([]);
    expect([...things.keys()]).toEqual(["perdure.review.other"]);
  });
});

describe("viewed files", () => {
  it("are viewed until their content changes", async () => {
    const { isViewed, view } = await import("../src/state/viewed");
    const { keptJson } = await import("../src/state/kept");
    view("s", file("a"), true);
    const [, viewed] = keptJson<[string, Record<string, string>][]>("viewed", [])[0]!;
    expect(isViewed(viewed, file("a"))).toBe(true);
    expect(isViewed(viewed, file("a", { new_id: "9".repeat(40) }))).toBe(false);
    expect(isViewed(viewed, file("b"))).toBe(false);
    // The same content after another one is another change, such as one turn's and the whole session's.
    expect(isViewed(viewed, file("a", { old_id: "9".repeat(40) }))).toBe(false);
    for (let session = 0; session < 60; session++) view(`s${session}`, file("a"), true);
    expect(keptJson<unknown[]>("viewed", [])).toHaveLength(50);
  });
});

describe("the address", () => {
  it("names the turn, the file and the tool beside it", async () => {
    vi.stubGlobal("location", { pathname: "/", search: "" });
    vi.stubGlobal("addEventListener", () => {});
    const { pathOfChanges, pathOfTool, routeOf } = await import("../src/shell/router");
    const read = (path: string) => {
      const url = new URL(path, "http://h");
      return routeOf(url.pathname, url.search);
    };
    expect(read(pathOfChanges("s"))).toMatchObject({ view: "session", id: "s", changes: { turn: null, file: null }, place: null });
    expect(read(pathOfChanges("s", 3, "a b/ü.py"))).toMatchObject({ changes: { turn: 3, file: "a b/ü.py", edit: null } });
    expect(read(pathOfChanges("s", 3, "/w/a", null, "t/1"))).toMatchObject({ changes: { turn: 3, file: "/w/a", edit: "t/1" }, place: null });
    expect(read(pathOfChanges("s", null, null, { turn: 2, tool_id: "t/1" }))).toMatchObject({ changes: { turn: null }, place: { turn: 2, tool: "t/1" } });
    expect(read(pathOfTool("s", 2, "t/1"))).toMatchObject({ changes: null, place: { turn: 2, tool: "t/1" } });
    expect(read("/s/s/changes/x")).toMatchObject({ changes: { turn: null } });
  });
});
