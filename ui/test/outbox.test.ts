// Messages being sent: in order, retried after a failure, never lost or overwritten.

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

let sent: string[];
let answer: (text: string) => Response | Promise<Response>;
let room: number;
let things: Map<string, string>;
let page: EventTarget;

beforeEach(() => {
  vi.useFakeTimers();
  sent = [];
  answer = () => new Response("{}");
  room = Infinity;
  things = new Map();
  page = new EventTarget();
  vi.stubGlobal("addEventListener", page.addEventListener.bind(page));
  vi.stubGlobal("localStorage", {
    get length() {
      return things.size;
    },
    key: (index: number) => [...things.keys()][index] ?? null,
    getItem: (key: string) => things.get(key) ?? null,
    removeItem: (key: string) => void things.delete(key),
    setItem: (key: string, value: string) => {
      if (value.length > room) throw new Error("full");
      things.set(key, value);
    },
  });
  vi.stubGlobal("fetch", async (_: string, options: RequestInit) => {
    const text = JSON.parse(options.body as string).text as string;
    sent.push(text);
    return answer(text);
  });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** The page's modules, loaded as in a new tab. */
async function tab() {
  vi.resetModules();
  return await import("../src/state/outbox");
}
const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);
const fails = () => Promise.reject(new TypeError("Failed to fetch"));

describe("a message", () => {
  it("is retried after a failure, including 502 to 504", async () => {
    const { send, outboxNow } = await tab();
    const answers = [fails, () => new Response("", { status: 502 }), () => new Response("{}", { status: 504 }), () => new Response("{}")];
    answer = () => answers.shift()!();
    send({ session: "s", text: "hello" });
    await pass(10_000);
    expect(sent).toEqual(["hello", "hello", "hello", "hello"]);
    expect(outboxNow()).toEqual([]);
    expect(things.size).toBe(0);
  });

  it("that is refused waits for the user, and does not block the next", async () => {
    const { send, tryAgain, outboxNow } = await tab();
    answer = (text) => (text === "bad" ? new Response(JSON.stringify({ error: "Too long.", code: "invalid" }), { status: 400 }) : new Response("{}"));
    send({ session: "s", text: "bad" });
    send({ session: "s", text: "good" });
    await pass(3_000);
    expect(outboxNow().map((one) => [one.text, one.refused])).toEqual([["bad", "Too long."]]);
    answer = () => new Response("{}");
    tryAgain(outboxNow()[0]!.message_id);
    await pass(3_000);
    expect(outboxNow()).toEqual([]);
  });

  it("is sent after the previous one, whatever happens to that", async () => {
    const { send } = await tab();
    let tries = 0;
    answer = (text) => (text === "one" && tries++ < 3 ? fails() : new Response("{}"));
    send({ session: "s", text: "one" });
    send({ session: "s", text: "two" });
    send({ session: "other", text: "three" });
    await pass(10_000);
    expect(sent.filter((text) => text !== "three")).toEqual(["one", "one", "one", "one", "two"]);
    expect(sent[1]).toBe("three");
  });

  it("is sent after a reload, in the original order", async () => {
    const first = await tab();
    answer = fails;
    first.send({ session: "s", text: "one" });
    first.send({ session: "s", text: "two" });
    await pass(10);
    things = new Map([...things].reverse());
    const second = await tab();
    expect(second.outboxNow().map((one) => one.text)).toEqual(["one", "two"]);
  });

  it("of another tab is left alone, and disappears when that tab has sent it", async () => {
    const first = await tab();
    answer = fails;
    first.send({ session: "s", text: "one" });
    const second = await tab();
    second.send({ session: "s", text: "two" });
    expect(things.size).toBe(2);
    first.discard(first.outboxNow()[0]!.message_id);
    expect([...things.values()].map((value) => JSON.parse(value).text)).toEqual(["two"]);
    const gone = second.outboxNow()[0]!;
    page.dispatchEvent(Object.assign(new globalThis.Event("storage"), { key: "perdure.outbox." + gone.message_id, newValue: null }));
    expect(second.outboxNow().map((one) => one.text)).toEqual(["two"]);
  });

  it("that is too large to store keeps its text, and reports the missing attachments", async () => {
    const first = await tab();
    room = 400;
    answer = fails;
    first.send({ session: "s", text: "look", attachments: [{ name: "a.png", mime_type: "image/png", data: "x".repeat(1000) }] });
    expect(first.outboxNow()[0]!.refused).toBeUndefined();
    const [again] = (await tab()).outboxNow();
    expect(again!.text).toBe("look");
    expect(again!.attachments).toBeUndefined();
    expect(again!.refused).toMatch(/attach them again/i);
  });

  it("stored by an earlier version of the page is not lost", async () => {
    things.set("perdure.outbox", JSON.stringify([{ session: "s", message_id: "m", text: "old", sent_at: 1 }]));
    expect((await tab()).outboxNow().map((one) => one.text)).toEqual(["old"]);
    expect([...things.keys()]).toEqual(["perdure.outbox.m"]);
  });
});
