// One event stream: connects, reads frames, and reconnects from its last position. Above: the feed decides what to
// watch. Below: ask.ts. Retry delays are short because the server is usually close: the page is up to date within a
// second after the server is back.

import { ask } from "./ask";
import { Framer } from "./sse";
import type { Event } from "./types";

const FIRST_RETRY_MS = 150;
/** The longest retry delay during a short outage, such as a restart. */
const LAST_RETRY_MS = 400;
/** After this long, the outage is no longer short, and the delay grows to LATER_RETRY_MS. That leaves time for the
 * response within a second. */
const MOMENT_MS = 60_000;
const LATER_RETRY_MS = 800;
/** The server sends a keep-alive every 15 s. */
const SILENCE_MS = 40_000;
/** After the machine slept, a stream silent for longer than the keep-alive interval is dead. */
const SIGN_OF_LIFE_MS = 16_000;
const WATCH_MS = 5_000;
const HEADERS_MS = 4_000;
const PATIENCE_MS = 1_000;

export type StreamState = "connecting" | "live" | "lost" | "unauthorized" | "missing" | "ended";

export interface StreamListener {
  events(events: Event[]): void;
  state(state: StreamState): void;
}

export class Stream {
  state: StreamState = "connecting";
  private position = "";
  private abort = new AbortController();
  private closed = false;
  private retryMs = FIRST_RETRY_MS;
  /** When the connection was lost. */
  private awaySince: number | null = null;
  private wakeUp: () => void = () => {};
  private lastByteAt = Date.now();
  /** When the pending request was sent. */
  private askedAt: number | null = null;

  constructor(
    private readonly url: string,
    private readonly listener: StreamListener,
  ) {
    void this.run();
  }

  close(): void {
    this.closed = true;
    this.abort.abort();
    this.wakeUp();
  }

  /** The network or the machine is back: reconnect now instead of waiting. */
  nudge(): void {
    const now = Date.now();
    if (this.askedAt !== null ? now - this.askedAt > PATIENCE_MS : this.state === "live" && now - this.lastByteAt > SILENCE_MS / 2) this.abort.abort();
    this.retryMs = FIRST_RETRY_MS;
    this.awaySince = null;
    this.wakeUp();
  }

  private set(state: StreamState): void {
    if (this.closed || this.state === state) return;
    this.state = state;
    this.listener.state(state);
  }

  private async run(): Promise<void> {
    while (!this.closed) {
      this.abort = new AbortController();
      const outcome = await this.connect().catch(() => "lost" as const);
      if (this.closed) return;
      // The server closed the stream cleanly. The next request shows whether it is down or has nothing more to send.
      this.set(outcome === "closed" ? "connecting" : outcome);
      if (outcome === "ended") return;
      this.awaySince ??= Date.now();
      const longest = Date.now() - this.awaySince < MOMENT_MS ? LAST_RETRY_MS : LATER_RETRY_MS;
      const wait = outcome === "unauthorized" || outcome === "missing" ? 30_000 : Math.min(longest, this.retryMs);
      this.retryMs = Math.min(longest, this.retryMs * 2);
      await this.pause(wait);
    }
  }

  private pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.wakeUp = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  /** Send the request and wait for the response headers, with a short timeout. */
  private async ask(): Promise<Response> {
    const abort = this.abort;
    const timer = setTimeout(() => abort.abort(), HEADERS_MS);
    this.askedAt = Date.now();
    try {
      return await ask(this.url, {
        headers: this.position ? { "last-event-id": this.position } : {},
        signal: abort.signal,
        cache: "no-store",
      });
    } finally {
      clearTimeout(timer);
      this.askedAt = null;
    }
  }

  private async connect(): Promise<"lost" | "closed" | "unauthorized" | "missing" | "ended"> {
    const answer = await this.ask();
    if (answer.status === 204) return "ended";
    if (answer.status === 401) return "unauthorized";
    // 410: the session exists but can't be read.
    if (answer.status === 404 || answer.status === 410) return "missing";
    if (answer.status === 400 && this.position) {
      // The server does not understand this position: start without one.
      this.position = "";
      return "lost";
    }
    if (!answer.ok || !answer.body) return "lost";
    this.retryMs = FIRST_RETRY_MS;
    this.awaySince = null;
    this.lastByteAt = Date.now();
    this.set("live");
    const watch = this.watchSilence();
    try {
      await this.read(answer.body);
    } finally {
      clearInterval(watch);
    }
    return "closed";
  }

  private watchSilence(): ReturnType<typeof setInterval> {
    let looked = Date.now();
    return setInterval(() => {
      const now = Date.now();
      const slept = now - looked > 2 * WATCH_MS;
      looked = now;
      if (now - this.lastByteAt > (slept ? SIGN_OF_LIFE_MS : SILENCE_MS)) this.abort.abort();
    }, WATCH_MS);
  }

  private async read(body: ReadableStream<Uint8Array>): Promise<void> {
    const framer = new Framer();
    const decoder = new TextDecoder();
    const reader = body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done || this.closed) return;
      this.lastByteAt = Date.now();
      const frames = framer.add(decoder.decode(value, { stream: true }));
      if (!frames.length) continue;
      const events = frames.map((frame) => JSON.parse(frame.data) as Event);
      // A frame without an id is not in a log, so it does not change the position.
      for (const frame of frames) if (frame.id) this.position = frame.id;
      this.listener.events(events);
    }
  }
}
