// A tab's end of the feed: with the shared worker, without, and with one that can't be loaded.

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { FromFeed, ToFeed } from "../src/wire/feed";
import { serve, type Server } from "./server";

class Worker {
  static last: Worker;
  onerror: (() => void) | null = null;
  said: ToFeed[] = [];
  shut = false;
  port = { onmessage: null, start: () => {}, close: () => void (this.shut = true), postMessage: (message: ToFeed) => void this.said.push(message) };
  constructor() {
    Worker.last = this;
  }
}

let server: Server;
let page: EventTarget;
let link: typeof import("../src/wire/link");
beforeEach(async () => {
  vi.useFakeTimers();
  server = serve();
  page = new EventTarget();
  vi.stubGlobal("document", Object.assign(new EventTarget(), { visibilityState: "visible" }));
  vi.stubGlobal("addEventListener", page.addEventListener.bind(page));
  vi.stubGlobal("SharedWorker", Worker);
  vi.resetModules();
  link = await import("../src/wire/link");
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const turned = (type: string, persisted: boolean) => page.dispatchEvent(Object.assign(new globalThis.Event(type), { persisted }));

describe("a tab", () => {
  it("says what it watches with every sign of life, and when it is looked at", async () => {
    link.connect();
    link.watch(["a"]);
    await vi.advanceTimersByTimeAsync(51_000);
    for (const type of ["online", "focus"]) page.dispatchEvent(new globalThis.Event(type));
    document.dispatchEvent(new globalThis.Event("visibilitychange"));
    const nudge = { kind: "nudge", sessions: ["a"] };
    expect(Worker.last.said.slice(1)).toEqual([{ kind: "watch", sessions: ["a"] }, { kind: "ping", sessions: ["a"] }, nudge, nudge, nudge]);
  });

  it("says whether it may come back, and what it watches when it does", () => {
    link.connect();
    link.watch(["a"]);
    turned("pagehide", true);
    turned("pageshow", true);
    turned("pagehide", false);
    expect(Worker.last.said.slice(2)).toEqual([{ kind: "bye", back: true }, { kind: "watch", sessions: ["a"] }, { kind: "bye", back: false }]);
  });

  it("has a feed of its own if the worker can't be loaded", async () => {
    const heard: FromFeed[] = [];
    link.listen((message) => void heard.push(message));
    link.connect();
    link.watch(["a"]);
    expect(server.streams).toHaveLength(0);
    Worker.last.onerror!();
    await vi.advanceTimersByTimeAsync(10);
    expect(Worker.last.shut).toBe(true);
    expect(server.open("sessions=a")).toHaveLength(1);
    server.open("sessions=a")[0]!.send({ seq: 1, type: "title", at: "", session_id: "a", turn: null });
    await vi.advanceTimersByTimeAsync(10);
    expect(heard.map((message) => message.kind)).toContain("events");
  });
});
