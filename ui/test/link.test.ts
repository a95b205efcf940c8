// A tab's end of the feed: with the shared worker, without one, and with one that can't be loaded.

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { FromFeed, ToFeed } from "../src/wire/feed";
import { serve, type Server } from "./server";

class Worker {
  static last: Worker;
  onerror: (() => void) | null = null;
  said: ToFeed[] = [];
  keys: (string | null)[] = [];
  shut = false;
  port = {
    onmessage: null,
    start: () => {},
    close: () => void (this.shut = true),
    postMessage: ({ key, ...message }: ToFeed & { key: string | null }) => (this.keys.push(key), void this.said.push(message as ToFeed)),
  };
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
  it("sends its sessions with every heartbeat, and when it becomes visible", async () => {
    link.connect(() => told);
    link.watch(["a"]);
    await vi.advanceTimersByTimeAsync(51_000);
    for (const type of ["online", "focus"]) page.dispatchEvent(new globalThis.Event(type));
    document.dispatchEvent(new globalThis.Event("visibilitychange"));
    const nudge = { kind: "nudge", sessions: ["a"] };
    expect(Worker.last.said.slice(1)).toEqual([{ kind: "watch", sessions: ["a"] }, { kind: "ping", sessions: ["a"] }, nudge, nudge, nudge]);
  });

  it("sends the worker the current page key with every message", () => {
    const storage = new Map<string, string>();
    vi.stubGlobal("localStorage", { getItem: (key: string) => storage.get(key) ?? null });
    link.connect(() => told);
    storage.set("perdure.page-key", "one");
    link.watch(["a"]);
    storage.set("perdure.page-key", "two");
    link.nudge();
    expect(Worker.last.keys).toEqual([null, "one", "two"]);
  });

  it("tells the worker whether it may come back, and its sessions when it does", () => {
    link.connect(() => told);
    link.watch(["a"]);
    turned("pagehide", true);
    turned("pageshow", true);
    turned("pagehide", false);
    expect(Worker.last.said.slice(2)).toEqual([{ kind: "bye", back: true }, { kind: "watch", sessions: ["a"] }, { kind: "bye", back: false }]);
  });

  it("uses its own feed if the worker can't be loaded", async () => {
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

  describe("with its own feed", () => {
    /** The browser's locks: one tab holds a lock, the others wait. */
    let holder: string | null;
    let next: (() => void)[];
    const request = (_name: string, { signal }: { signal: AbortSignal }, use: () => unknown) =>
      new Promise<void>((resolve, refuse) => {
        const take = async () => {
          holder = "this tab";
          await use();
          holder = null;
          next.shift()?.();
          resolve();
        };
        if (!holder) return void queueMicrotask(take);
        next.push(take);
        signal.addEventListener("abort", () => {
          if (!next.includes(take)) return;
          next = next.filter((one) => one !== take);
          refuse(new Error("aborted"));
        });
      });
    const show = (visibilityState: string) => {
      Object.assign(document, { visibilityState });
      document.dispatchEvent(new globalThis.Event("visibilitychange"));
    };
    const turn = async (visibilityState: string) => {
      show(visibilityState);
      await vi.advanceTimersByTimeAsync(10);
    };
    const streams = () => [server.open("all=true").length, server.open("sessions=a").length];
    beforeEach(async () => {
      holder = null;
      next = [];
      vi.stubGlobal("SharedWorker", undefined);
      vi.stubGlobal("navigator", { locks: { request } });
      link.connect(() => told);
      link.watch(["a"]);
      await vi.advanceTimersByTimeAsync(10);
      expect(streams()).toEqual([1, 1]);
    });

    it("closes its streams while it is hidden, unless notifications are on", async () => {
      await turn("hidden");
      expect(streams()).toEqual([0, 0]);
      await turn("visible");
      expect(streams()).toEqual([1, 1]);
      told = true;
      await turn("hidden");
      expect(streams()).toEqual([1, 0]);
      await turn("visible");
      expect(streams()).toEqual([1, 1]);
      expect(holder).toBe(null);
    });

    it("leaves notifications to another hidden tab, and takes over from it", async () => {
      told = true;
      holder = "another tab";
      await turn("hidden");
      expect(streams()).toEqual([0, 0]);
      holder = null;
      next.shift()!();
      await vi.advanceTimersByTimeAsync(10);
      expect(streams()).toEqual([1, 0]);
    });

    it("does not wait for the lock once it is visible", async () => {
      told = true;
      holder = "another tab";
      await turn("hidden");
      await turn("visible");
      expect(next).toEqual([]);
      expect(streams()).toEqual([1, 1]);
    });

    it("keeps listening when it is visible for a moment", async () => {
      told = true;
      await turn("hidden");
      show("visible");
      await turn("hidden");
      expect(streams()).toEqual([1, 0]);
      await turn("visible");
      expect([streams(), holder, next]).toEqual([[1, 1], null, []]);
    });

    it("closes its streams if the browser has no locks", async () => {
      told = true;
      vi.stubGlobal("navigator", {});
      await turn("hidden");
      expect(streams()).toEqual([0, 0]);
    });
  });
});
