// A tab's end of the feed: the shared worker, or a feed of its own where there is none. Above: stores subscribe to what
// comes. Below: a port. A tab of its own lets go of its streams while it is hidden, so that tabs don't use connections
// up that the visible one needs; one hidden tab keeps listening if the person wants to be told.

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

/** `told` says whether the person wants to be told what happens while no tab is seen. */
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

/** The browser's one feed for all tabs; null if there is none. */
function shared(told: () => boolean): typeof speak {
  if (typeof SharedWorker !== "function") return null;
  try {
    const worker = new SharedWorker(new URL("./worker.ts", import.meta.url), { type: "module", name: `perdure ${__BUILD__}` });
    worker.port.onmessage = (event: MessageEvent<FromFeed>) => hear(event.data);
    // Its script could not be had or run, so that nothing will ever come from it.
    worker.onerror = () => {
      worker.port.close();
      speak = own(told);
      speak({ kind: "watch", sessions: watched });
    };
    worker.port.start();
    // A worker can't read what this origin keeps.
    return (message) => worker.port.postMessage({ ...message, key: pageKey() });
  } catch {
    return null;
  }
}

/** A feed of this tab's own. */
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

/** One of the hidden tabs listens; when it is seen or closed, the next one does. */
async function whileHidden(seen: AbortSignal, begin: () => void): Promise<void> {
  const listening = () => {
    if (seen.aborted) return;
    begin();
    return new Promise<void>((resolve) => seen.addEventListener("abort", () => resolve(), { once: true }));
  };
  // Refused if it is seen before its turn comes.
  await navigator.locks?.request("perdure told", { signal: seen }, listening).catch(() => undefined);
}

export function watch(sessions: string[]): void {
  if (sessions.join() === watched.join()) return;
  watched = sessions;
  speak?.({ kind: "watch", sessions });
}

/** Begin anew with snapshots: something was missed, or changed behind what was seen. */
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
