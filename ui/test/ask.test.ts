// The page's key: stored for this origin, sent with every request and to the worker, and to nothing else.

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { serve, type Server } from "./server";

let sent: { url: string; headers: Record<string, string> }[];
let storage: Map<string, string>;
let wire: typeof import("../src/wire/ask");
beforeEach(async () => {
  sent = [];
  storage = new Map();
  vi.stubGlobal("fetch", async (url: string, options: RequestInit = {}) => {
    sent.push({ url, headers: (options.headers ?? {}) as Record<string, string> });
    return new Response("{}");
  });
  vi.stubGlobal("localStorage", {
    getItem: (key: string) => storage.get(key) ?? null,
    setItem: (key: string, value: string) => void storage.set(key, value),
    removeItem: (key: string) => void storage.delete(key),
  });
  vi.resetModules();
  wire = await import("../src/wire/ask");
});
afterEach(() => vi.unstubAllGlobals());

describe("the page's key", () => {
  it("is sent with every request from sign-in to sign-out", async () => {
    const { get, post } = await import("../src/wire/api");
    await get("/api/sessions");
    wire.setPageKey("secret");
    await post("/api/sessions", { text: "x" });
    await wire.ask("/api/x", { headers: { "last-event-id": "7" } });
    wire.setPageKey(null);
    await get("/api/sessions");
    expect(sent.map((one) => one.headers["perdure-page-key"])).toEqual([undefined, "secret", "secret", undefined]);
    expect(sent[1]!.headers["content-type"]).toBe("application/json");
    expect(sent[2]!.headers["last-event-id"]).toBe("7");
  });

  it("is taken from another tab that signed in later", async () => {
    wire.setPageKey("old");
    storage.set("perdure.page-key", "new");
    await wire.ask("/api/x");
    expect(sent[0]!.headers["perdure-page-key"]).toBe("new");
  });

  it("lasts until the page closes if it can't be stored", async () => {
    vi.stubGlobal("localStorage", undefined);
    wire.setPageKey("secret");
    await wire.ask("/api/x");
    expect(sent[0]!.headers["perdure-page-key"]).toBe("secret");
  });
});

describe("the shared worker", () => {
  it("opens its streams with the key of the first tab, and reconnects immediately when the key changes", async () => {
    vi.useFakeTimers();
    vi.stubGlobal("localStorage", undefined);
    const server: Server = serve();
    const keys: (string | undefined)[] = [];
    server.answer = (url, options) => {
      const key = (options?.headers as Record<string, string> | undefined)?.["perdure-page-key"];
      if (url.includes("all=true")) keys.push(key);
      return key === "right" ? undefined : Promise.resolve(new Response("{}", { status: 401 }));
    };
    const scope: { onconnect?: (event: unknown) => void } = {};
    vi.stubGlobal("self", scope);
    await import("../src/wire/worker");
    const port = { onmessage: null as null | ((event: { data: unknown }) => void), postMessage: () => {}, close: () => {} };
    scope.onconnect!({ ports: [port] });
    await vi.advanceTimersByTimeAsync(1_000);
    expect(keys).toEqual([]);
    port.onmessage!({ data: { kind: "watch", sessions: [], key: "wrong" } });
    await vi.advanceTimersByTimeAsync(1_000);
    port.onmessage!({ data: { kind: "ping", sessions: [], key: "right" } });
    await vi.advanceTimersByTimeAsync(1_000);
    expect(keys).toEqual(["wrong", "right"]);
    vi.useRealTimers();
  });
});
