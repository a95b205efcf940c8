// A tab's connection to the feed: the shared worker, or the tab's own feed if there is no worker. Above: stores
// subscribe to messages. Below: a port. A tab with its own feed closes its streams while hidden, because the visible
// tab needs the connections. If notifications are on, one hidden tab keeps listening.

import { pageKey } from "./ask";
import { Feed, type FromFeed, type ToFeed } from "./feed";

declare const __BUILD__: string;

const PING_MS = 50_000;

type Listener = (message: FromFeed) => void;
const listeners = new Set<Listener>();
let speak: ((message: ToFeed) => void) | null = null;
let watched: string[] = [];

export function listen(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function hear(message: FromFeed): void {
  for (const listener of listeners) listener(message);
}

/** `told` returns whether notifications are on. */
export function connect(told: () => boolean): void {
  if (speak) return;
  speak = shared(told) ?? own(told);
  speak({ kind: "watch", sessions: watched });
  setInterval(() => speak?.({ kind: "ping", sessions: watched }), PING_MS);
  addEventListener("online", nudge);
  addEventListener("focus", nudge);
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") nudge();
  });
  addEventListener("pagehide", (event) => speak?.({ kind: "bye", back: event.persisted }));
  addEventListener("pageshow", (event) => {
    if (event.persisted) speak?.({ kind: "watch", sessions: watched });
  });
}

/** The feed shared by all tabs; null if the browser has no shared workers. */
function shared(told: () => boolean): typeof speak {
  if (typeof SharedWorker !== "function") return null;
  try {
    const worker = new SharedWorker(new URL("./worker.ts", import.meta.url), { type: "module", name: `perdure ${__BUILD__}` });
    worker.port.onmessage = (event: MessageEvent<FromFeed>) => hear(event.data);
    // The worker's script failed to load or run, so it will never send anything.
    worker.onerror = () => {
      worker.port.close();
      speak = own(told);
      speak({ kind: "watch", sessions: watched });
    };
    worker.port.start();
    // A worker can't read localStorage, so send the key along.
    return (message) => worker.port.postMessage({ ...message, key: pageKey() });
  } catch {
    return null;
  }
}

/** This tab's own feed. */
function own(told: () => boolean): (message: ToFeed) => void {
  const feed = new Feed();
  const tab = { send: (message: FromFeed) => queueMicrotask(() => hear(message)) };
  feed.join(tab);
  let seen = new AbortController();
  document.addEventListener("visibilitychange", () => {
    seen.abort();
    if (document.visibilityState === "visible") return feed.open();
    feed.close();
    if (!told()) return;
    seen = new AbortController();
    void whileHidden(seen.signal, () => feed.rest());
  });
  return (message) => feed.hear(tab, message);
}

/** One hidden tab listens. When it is shown or closed, the next one takes over. */
async function whileHidden(seen: AbortSignal, begin: () => void): Promise<void> {
  const listening = () => {
    if (seen.aborted) return;
    begin();
    return new Promise<void>((resolve) => seen.addEventListener("abort", () => resolve(), { once: true }));
  };
  // Rejects if the tab is shown before it gets the lock.
  await navigator.locks?.request("perdure told", { signal: seen }, listening).catch(() => undefined);
}

export function watch(sessions: string[]): void {
  if (sessions.join() === watched.join()) return;
  watched = sessions;
  speak?.({ kind: "watch", sessions });
}

/** Restart from snapshots: events were missed, or can't be applied. */
export function again(): void {
  speak?.({ kind: "again" });
}

/** A session was erased, which leaves no event behind. */
export function relist(): void {
  speak?.({ kind: "relist" });
}

export function nudge(): void {
  speak?.({ kind: "nudge", sessions: watched });
}
