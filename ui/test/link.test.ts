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
let told: boolean;
let link: typeof import("../src/wire/link");
beforeEach(async () => {
  vi.useFakeTimers();
  server = serve();
  told = false;
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
    link.connect(() => told);
    link.watch(["a"]);
    await vi.advanceTimersByTimeAsync(51_000);
    for (const type of ["online", "focus"]) page.dispatchEvent(new globalThis.Event(type));
    document.dispatchEvent(new globalThis.Event("visibilitychange"));
    const nudge = { kind: "nudge", sessions: ["a"] };
    expect(Worker.last.said.slice(1)).toEqual([{ kind: "watch", sessions: ["a"] }, { kind: "ping", sessions: ["a"] }, nudge, nudge, nudge]);
  });

  it("says whether it may come back, and what it watches when it does", () => {
    link.connect(() => told);
    link.watch(["a"]);
    turned("pagehide", true);
    turned("pageshow", true);
    turned("pagehide", false);
    expect(Worker.last.said.slice(2)).toEqual([{ kind: "bye", back: true }, { kind: "watch", sessions: ["a"] }, { kind: "bye", back: false }]);
  });

  it("has a feed of its own if the worker can't be loaded", async () => {
    const heard: FromFeed[] = [];
    link.listen((message) => void heard.push(message));
    link.connect(() => told);
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

  it("of its own lets go of its streams while it is hidden, unless the person is to be told and no other tab does it", async () => {
    vi.stubGlobal("SharedWorker", undefined);
    const held: unknown[] = [];
    let free = true;
    const request = async (_name: string, _options: object, use: (lock: object | null) => unknown) => void held.push(use(free ? {} : null));
    vi.stubGlobal("navigator", { locks: { request } });
    const turn = async (visibilityState: string) => {
      Object.assign(document, { visibilityState });
      document.dispatchEvent(new globalThis.Event("visibilitychange"));
      await vi.advanceTimersByTimeAsync(10);
    };
    const streams = () => [server.open("all=true").length, server.open("sessions=a").length];
    link.connect(() => told);
    link.watch(["a"]);
    await vi.advanceTimersByTimeAsync(10);
    expect(streams()).toEqual([1, 1]);
    await turn("hidden");
    expect(streams()).toEqual([0, 0]);
    await turn("visible");
    expect(streams()).toEqual([1, 1]);
    told = true;
    await turn("hidden");
    expect(streams()).toEqual([1, 0]);
    await turn("visible");
    expect(streams()).toEqual([1, 1]);
    await held[0];
    free = false;
    await turn("hidden");
    expect(streams()).toEqual([0, 0]);
  });
});
