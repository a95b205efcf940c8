// The session store: turns that could not be fetched are fetched again, periodically and when the server is back.

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Event } from "../src/wire/types";
import golden from "./golden.json";

const events = golden.events as unknown as Event[];
const edit = events.find((event) => event.type === "history_changed" && event.change === "edit")!;
const moments = golden.moments as unknown as { snapshot: Event; transcript: { turn: number }[] }[];
const moment = moments.find((one) => one.snapshot.seq === edit.seq - 1)!;

let asked: string[];
let answer: () => Response | Promise<Response>;
const transcript = (revision = 0) => new Response(JSON.stringify({ seq: moment.snapshot.seq, revision, turns: moment.transcript }));

beforeEach(() => {
  vi.useFakeTimers();
  asked = [];
  answer = () => transcript();
  vi.stubGlobal("document", Object.assign(new EventTarget(), { visibilityState: "visible" }));
  vi.stubGlobal("requestAnimationFrame", (run: () => void) => setTimeout(run, 16));
  vi.stubGlobal("fetch", async (url: string) => {
    asked.push(url);
    return answer();
  });
  vi.resetModules();
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);
async function opened() {
  const { SessionStore } = await import("../src/state/store");
  const store = new SessionStore("s");
  store.subscribe(() => {});
  store.hear([moment.snapshot]);
  await pass(50);
  return store;
}

describe("older turns", () => {
  it("are fetched", async () => {
    const store = await opened();
    expect(asked).toEqual(["/api/sessions/s/transcript?from_turn=1&to_turn=2"]);
    expect(store.earlier).toBe(0);
  });

  it("are fetched again after a failure, even if nothing happens in the session", async () => {
    answer = () => Promise.reject(new TypeError("Failed to fetch"));
    const store = await opened();
    expect(store.trouble).toMatch(/can't reach/i);
    expect(store.earlier).toBe(2);
    const before = store.state;
    answer = () => transcript();
    await pass(1_100);
    expect(store.earlier).toBe(0);
    expect(store.trouble).toBe("");
    expect(store.state).not.toBe(before);
  });

  it("are fetched immediately after a failure when the server is back, or on request", async () => {
    for (const back of ["retry", "loadEarlier"] as const) {
      answer = () => new Response("", { status: 500 });
      const store = await opened();
      await pass(20_000);
      expect(store.earlier).toBe(2);
      answer = () => transcript();
      void store[back]();
      await pass(10);
      expect(store.earlier).toBe(0);
    }
  });

  it("that the user went to are fetched with all later ones, also after the server was away", async () => {
    const visible = Array.from({ length: 50 }, (_, index) => index + 1);
    answer = () => new Response(JSON.stringify({ seq: moment.snapshot.seq, revision: 0, turns: visible.slice(20).map((turn) => ({ ...moment.transcript[0], turn })) }));
    const { SessionStore } = await import("../src/state/store");
    const store = new SessionStore("s");
    store.subscribe(() => {});
    store.hear([{ ...moment.snapshot, turn: null, visible_turns: visible }]);
    await pass(50);
    expect(asked).toEqual(["/api/sessions/s/transcript?from_turn=21&to_turn=50"]);
    answer = () => Promise.reject(new TypeError("Failed to fetch"));
    await store.loadFrom(5);
    expect(store.has(5)).toBe(false);
    answer = () => new Response(JSON.stringify({ seq: moment.snapshot.seq, revision: 0, turns: visible.slice(4, 20).map((turn) => ({ ...moment.transcript[0], turn })) }));
    store.retry();
    await pass(50);
    expect(asked.slice(1)).toEqual(Array(2).fill("/api/sessions/s/transcript?from_turn=5&to_turn=20"));
    expect(store.has(5)).toBe(true);
    expect(store.earlier).toBe(4);
  });

  it("lose no events that arrive during the request, whatever happened to the previous request", async () => {
    const { message: _message, parts: _parts, ...info } = { ...moment.transcript[0], turn: 1, stop_reason: null, ended_at: null } as Record<string, unknown>;
    const message = { message_id: "m1", text: "q", at: "", attachments: [] };
    const session = { ...moment.snapshot.session, state: "processing", turns: [info], revision: 0 };
    const tail = [{ type: "text", block: 0, text: "TAIL ", offset: 1000 }];
    const snapshot = { ...moment.snapshot, seq: 100, turn: 1, session, visible_turns: [1], message, parts: tail, text_offset: 1000, pending_prompts: [], queue: [] } as unknown as Event;
    const delta = (seq: number) => ({ type: "assistant_text", seq, at: "", session_id: "s", turn: 1, block: 0, delta: `x${seq} ` }) as unknown as Event;
    let reply: () => void = () => {};
    answer = async () => {
      if (asked.length === 1) return new Promise((_, refuse) => setTimeout(() => refuse(new TypeError("Failed to fetch")), 10));
      await new Promise<void>((resolve) => (reply = resolve));
      return new Response(JSON.stringify({ seq: 100, revision: 0, turns: [{ ...info, message, parts: [{ type: "text", block: 0, text: "HEAD TAIL " }] }] }));
    };
    const { SessionStore } = await import("../src/state/store");
    const store = new SessionStore("s");
    store.subscribe(() => {});
    store.hear([snapshot]);
    await pass(16);
    void store.loadFrom(1);
    await pass(30);
    expect(asked).toHaveLength(2);
    store.hear([delta(101), delta(102)]);
    await pass(50);
    reply();
    await pass(50);
    store.hear([delta(103)]);
    await pass(50);
    expect(store.state.turns[0]!.parts).toMatchObject([{ text: "HEAD TAIL x101 x102 x103 " }]);
  });

  it("of a very long turn are loaded on request", async () => {
    const { message: _message, parts: _parts, ...info } = { ...moment.transcript[0], turn: 1, stop_reason: null, ended_at: null } as Record<string, unknown>;
    const message = { message_id: "m1", text: "q", at: "", attachments: [] };
    const session = { ...moment.snapshot.session, state: "processing", turns: [info], revision: 0 };
    const step = (number: number) => ({ type: "system", code: "note", message: `step ${number}`, at: "" });
    const snapshot = { ...moment.snapshot, seq: 100, turn: 1, session, visible_turns: [1], message, parts: [step(3)], parts_offset: 2, text_offset: 0, pending_prompts: [], queue: [] } as unknown as Event;
    const next = (seq: number, number: number) => ({ ...step(number), seq, session_id: "s", turn: 1 }) as unknown as Event;
    answer = () => new Response(JSON.stringify({ seq: 101, revision: 0, turns: [{ ...info, message, parts: [1, 2, 3, 4].map(step) }] }));
    const { SessionStore } = await import("../src/state/store");
    const store = new SessionStore("s");
    store.subscribe(() => {});
    store.hear([snapshot]);
    store.hear([next(101, 4)]);
    await pass(50);
    expect(asked).toEqual([]);
    expect(store.earlier).toBe(0);
    expect(store.state.turns[0]).toMatchObject({ loaded: false, skipped: 2, parts: [{ message: "step 3" }, { message: "step 4" }] });
    void store.loadWhole(1);
    store.hear([next(102, 5)]);
    await pass(50);
    expect(asked).toEqual(["/api/sessions/s/transcript?from_turn=1&to_turn=1"]);
    const shown = store.state.turns[0]!;
    expect(shown.parts.map((part) => (part as unknown as { message: string }).message)).toEqual([1, 2, 3, 4, 5].map((number) => `step ${number}`));
    expect(shown).toMatchObject({ loaded: true, skipped: 0 });
    // A page that had loaded all of the turn has all of it again after a long disconnect.
    store.hear([{ ...snapshot, seq: 200 }]);
    await pass(50);
    expect(asked).toHaveLength(2);
    expect(store.state.turns[0]).toMatchObject({ loaded: true, skipped: 0 });
  });

  it("are not used if they are older than a known change", async () => {
    let reply: (answer: Response) => void = () => {};
    answer = () => new Promise((resolve) => (reply = resolve));
    const store = await opened();
    store.hear([edit]);
    await pass(50);
    answer = () => transcript(1);
    reply(transcript(0));
    await pass(10);
    expect(store.earlier).toBe(2);
    await pass(1_100);
    expect(store.earlier).toBe(0);
    expect(store.revision).toEqual({ revision: 1 });
  });
});
