// The feed: tabs that open, close, sleep and wake, and the streams held open for them.

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Feed, type FromFeed, type Tab } from "../src/wire/feed";
import { serve, type Server } from "./server";

let server: Server;
beforeEach(() => {
  vi.useFakeTimers();
  server = serve();
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function tab(): Tab & { heard: FromFeed[]; kinds: () => string[]; shut: boolean } {
  const made = { heard: [] as FromFeed[], shut: false, kinds: () => made.heard.map((one) => one.kind), send: (message: FromFeed) => void made.heard.push(message), close: () => void (made.shut = true) };
  return made;
}
const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);
const event = (session: string, seq = 1) => ({ seq, type: "title", at: "", session_id: session, turn: null });

async function watching(...sessions: string[]) {
  const feed = new Feed();
  const one = tab();
  feed.join(one);
  feed.hear(one, { kind: "watch", sessions });
  await pass(10);
  return { feed, one };
}

describe("a tab", () => {
  it("that was considered closed gets everything again with its next message", async () => {
    for (const kind of ["ping", "nudge"] as const) {
      const { feed, one } = await watching("a");
      await pass(400_000);
      expect(server.open("sessions=a")).toHaveLength(0);
      one.heard.length = 0;
      feed.hear(one, { kind, sessions: ["a"] });
      await pass(10);
      expect(one.kinds()).toEqual(expect.arrayContaining(["link", "sessions"]));
      const [stream] = server.open("sessions=a");
      stream!.send(event("a"));
      await pass(10);
      expect(one.kinds()).toContain("events");
      feed.close();
      server.streams.length = 0;
    }
  });

  it("that repeats its last message changes nothing", async () => {
    const { feed, one } = await watching("a");
    const before = server.streams.length;
    for (let count = 0; count < 10; count++) {
      await pass(50_000 / 2);
      for (const stream of server.open("")) stream.send(event("z"));
      feed.hear(one, { kind: "ping", sessions: ["a"] });
    }
    expect(server.streams.length).toBe(before);
    feed.close();
  });

  it("stays known after the machine slept", async () => {
    const { feed, one } = await watching("a");
    vi.setSystemTime(Date.now() + 3_600_000);
    await pass(60_000);
    one.heard.length = 0;
    for (const stream of server.open("sessions=a")) stream.send(event("a"));
    await pass(10);
    expect(one.kinds()).toContain("events");
    feed.close();
  });

  it("that closes ends its stream, and its port unless it may come back", async () => {
    const { feed, one } = await watching("a");
    const two = tab();
    feed.join(two);
    feed.hear(two, { kind: "watch", sessions: ["b"] });
    await pass(10);
    expect(server.open("sessions=a,b")).toHaveLength(1);
    feed.hear(two, { kind: "bye", back: true });
    await pass(6_000);
    expect(two.shut).toBe(false);
    expect(server.open("sessions=").map((stream) => stream.url)).toEqual(["/api/events?sessions=a"]);
    feed.hear(one, { kind: "watch", sessions: [] });
    await pass(6_000);
    expect(server.open("sessions=")).toEqual([]);
    feed.hear(one, { kind: "bye", back: false });
    expect(one.shut).toBe(true);
    feed.close();
  });
});

describe("a session", () => {
  it("that has ended is streamed again when it changes, and its end is not a lost connection", async () => {
    const { feed, one } = await watching("a");
    const [stream] = server.open("sessions=a");
    stream!.send(event("a"), "9.2");
    await pass(10);
    server.answer = (url) => (url.includes("sessions=a") ? new Response(null, { status: 204 }) : undefined);
    stream!.end();
    await pass(2_000);
    expect(one.heard.filter((message) => message.kind === "link").map((message) => message.state)).not.toContain("lost");
    server.answer = () => undefined;
    const [changes] = server.open("all=true");
    changes!.send(event("other", 2));
    await pass(10);
    expect(server.open("sessions=a")).toHaveLength(0);
    changes!.send(event("a", 3));
    await pass(10);
    expect(server.open("sessions=a")).toHaveLength(1);
    expect(server.open("sessions=a")[0]!.position).toBe("");
    feed.close();
  });

  it("that seems to be gone but is not causes no flood of requests", async () => {
    server.answer = (url) => (url.includes("sessions=a") ? new Response("{}", { status: 404 }) : undefined);
    const { feed, one } = await watching("a");
    await pass(5_000);
    expect(server.requests.filter((url) => url.includes("sessions=a"))).toHaveLength(1);
    expect(one.kinds()).not.toContain("missing");
    feed.close();
  });

  it("that is gone does not affect the others", async () => {
    server.answer = (url) => (/sessions=.*b|sessions\/b/.test(url) ? new Response("{}", { status: 404 }) : undefined);
    const { feed, one } = await watching("a", "b");
    await pass(100);
    expect(one.heard).toContainEqual({ kind: "missing", session: "b" });
    expect(server.open("sessions=a")).toHaveLength(1);
    const before = server.streams.length;
    feed.hear(one, { kind: "ping", sessions: ["a", "b"] });
    await pass(100);
    expect(server.streams.length).toBe(before);
    feed.close();
  });
});

describe("the list", () => {
  const lists = () => server.requests.filter((url) => url.startsWith("/api/sessions?")).length;

  it("is fetched again after a failure", async () => {
    server.answer = (url) => (url.startsWith("/api/sessions?") ? new Response("", { status: 502 }) : undefined);
    const { feed, one } = await watching("a");
    await pass(1_500);
    expect(lists()).toBeGreaterThan(1);
    server.answer = () => undefined;
    await pass(9_000);
    expect(one.kinds()).toContain("sessions");
    feed.close();
  });

  it("is fetched again when the server is back, whatever happened to the last request", async () => {
    const { feed, one } = await watching("a");
    const lists = () => server.requests.filter((url) => url.startsWith("/api/sessions?")).length;
    server.answer = (url) => (url.includes("/api/events") ? Promise.reject(new TypeError("Failed to fetch")) : new Promise<Response>(() => {}));
    await pass(500);
    feed.hear(one, { kind: "relist" });
    await pass(10);
    for (const stream of server.open("")) stream.end();
    await pass(2_000);
    expect(one.heard.findLast((message) => message.kind === "link")).toMatchObject({ state: "lost" });
    const before = lists();
    one.heard.length = 0;
    server.answer = () => undefined;
    await pass(410);
    expect(lists()).toBe(before + 1);
    expect(one.kinds()).toEqual(expect.arrayContaining(["link", "sessions"]));
    expect(server.open("sessions=a")).toHaveLength(1);
    feed.close();
  });

  it("is fetched again when a session was erased", async () => {
    const { feed } = await watching("a");
    const before = lists();
    server.open("all=true")[0]!.send({ type: "session_erased", session_id: "b" } as never);
    await pass(1_000);
    expect(lists()).toBe(before + 1);
    feed.close();
  });

  it("is fetched by one request at a time", async () => {
    let answer: (answer: Response) => void = () => {};
    server.answer = (url) => (url.startsWith("/api/sessions?") ? new Promise((resolve) => (answer = resolve)) : undefined);
    const { feed } = await watching("a");
    for (let count = 0; count < 20; count++) {
      feed.hear(tab(), { kind: "relist" });
      await pass(100);
    }
    expect(lists()).toBe(1);
    answer(new Response(JSON.stringify({ sessions: [], next_cursor: null })));
    await pass(500);
    expect(lists()).toBe(2);
    feed.close();
  });
});
