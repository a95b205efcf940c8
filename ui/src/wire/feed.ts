// The feed: two streams for the whole browser, whatever its tabs watch. Above: the shared worker, or a tab if there is
// no worker. Below: streams. A browser opens at most six connections to one host, so a stream per tab would soon block
// all requests. The feed stores no conversations: when a tab starts watching a session, a new stream sends a snapshot.

import { ask } from "./ask";
import { Refresher } from "./refresher";
import { Stream, type StreamState } from "./stream";
import type { Event, Session } from "./types";

const LIST_LIMIT = 200;
const LIST_TIMEOUT_MS = 15_000;
const TAB_SILENT_MS = 180_000;
/** How long a stream may include sessions no tab watches. Switching sessions opens a new stream anyway. */
const SHRINK_MS = 5_000;

export type ToFeed =
  | { kind: "watch"; sessions: string[] }
  // These two repeat what the tab watches, in case the feed has dropped the tab.
  | { kind: "ping"; sessions: string[] }
  | { kind: "nudge"; sessions: string[] }
  | { kind: "again" }
  | { kind: "relist" }
  /** `back`: the tab may return, so its port stays open. */
  | { kind: "bye"; back: boolean };

export type FromFeed =
  | { kind: "events"; session: string; events: Event[] }
  | { kind: "changes"; events: Event[] }
  | { kind: "sessions"; sessions: Session[]; cursor: string | null }
  | { kind: "link"; state: LinkState; at: number }
  | { kind: "missing" | "damaged"; session: string };

export type LinkState = "connecting" | "live" | "lost" | "unauthorized";

export interface Tab {
  send(message: FromFeed): void;
  /** Called when nothing more will be sent. */
  close?(): void;
}

interface Watcher {
  sessions: string[];
  /** The sessions it requested, including any that turned out to be missing. */
  asked: string;
  heardAt: number;
}

export class Feed {
  private readonly tabs = new Map<Tab, Watcher>();
  private changes: Stream | null = null;
  private watching: Stream | null = null;
  private watched: string[] = [];
  private link: LinkState = "connecting";
  private lastEventAt = Date.now();
  private list: FromFeed | null = null;
  private readonly lists = new Refresher((signal) => this.fetchList(signal));
  private shrinking: ReturnType<typeof setTimeout> | null = null;
  private sweptAt = Date.now();

  constructor() {
    this.open();
    setInterval(() => this.forgetSilentTabs(), TAB_SILENT_MS / 3);
  }

  open(): void {
    this.hearAll();
    if (!this.watching) this.restart();
  }

  private hearAll(): void {
    this.changes ??= new Stream("/api/events?all=true", {
      events: (events) => {
        this.lastEventAt = Date.now();
        this.tell({ kind: "changes", events });
        this.lists.want();
        // The stream of ended sessions has closed, but they can still be renamed, labelled and archived.
        if (this.watching?.state === "ended" && events.some((event) => this.watched.includes(event.session_id))) this.restart();
      },
      state: (state) => {
        if (state === "live") this.lists.hurry();
        // If one stream connects, the other one can too.
        if (state === "live" && this.watching?.state === "lost") this.watching.nudge();
        this.relink();
      },
    });
  }

  /** Close the connections. After reopening, snapshots bring what was missed. */
  close(): void {
    this.changes?.close();
    this.changes = null;
    this.watching?.close();
    this.watching = null;
    this.lists.stop();
  }

  /** Stop watching sessions until reopened, but still receive changes across all sessions. */
  rest(): void {
    this.watching?.close();
    this.watching = null;
    this.hearAll();
  }

  join(tab: Tab): void {
    this.tabs.set(tab, { sessions: [], asked: "", heardAt: Date.now() });
    tab.send({ kind: "link", state: this.link, at: this.lastEventAt });
    if (this.list) tab.send(this.list);
  }

  hear(tab: Tab, message: ToFeed): void {
    if (message.kind === "bye") {
      this.tabs.delete(tab);
      if (!message.back) tab.close?.();
      this.shrinkLater();
      return;
    }
    const known = this.tabs.has(tab);
    // A frozen tab that was dropped rejoins with its first message, and has missed everything since.
    if (!known) this.join(tab);
    const watcher = this.tabs.get(tab)!;
    watcher.heardAt = Date.now();
    if ("sessions" in message) this.watch(watcher, message.sessions, !known || message.kind === "watch");
    if (message.kind === "again") this.restart();
    else if (message.kind === "relist") this.lists.want();
    else if (message.kind === "nudge") this.nudge();
  }

  /** Reconnect now instead of waiting: the network is back, or this browser has signed in. */
  nudge(): void {
    this.changes?.nudge();
    this.watching?.nudge();
  }

  private watch(watcher: Watcher, sessions: string[], again: boolean): void {
    if (!again && sessions.join() === watcher.asked) return;
    watcher.sessions = sessions;
    watcher.asked = sessions.join();
    if (sessions.length) this.restart();
    else this.shrinkLater();
  }

  private wanted(): string[] {
    return [...new Set([...this.tabs.values()].flatMap((watcher) => watcher.sessions))];
  }

  private shrinkLater(): void {
    this.shrinking ??= setTimeout(() => {
      this.shrinking = null;
      if (this.watching && this.wanted().length < this.watched.length) this.restart();
    }, SHRINK_MS);
  }

  private tell(message: FromFeed): void {
    for (const tab of this.tabs.keys()) tab.send(message);
  }

  private restart(): void {
    const wanted = this.wanted();
    this.watching?.close();
    this.watched = wanted;
    this.watching = null;
    // If the connections are closed, `open` starts them.
    if (wanted.length && this.changes) {
      this.watching = new Stream(`/api/events?sessions=${wanted.map(encodeURIComponent).join(",")}`, {
        events: (events) => this.pass(events),
        state: (state) => {
          if (state === "missing") void this.findMissing();
          if (state === "live" && this.changes?.state === "lost") this.changes.nudge();
          this.relink();
        },
      });
    }
  }

  private pass(events: Event[]): void {
    this.lastEventAt = Date.now();
    const bySession = new Map<string, Event[]>();
    for (const event of events) {
      const known = bySession.get(event.session_id);
      if (known) known.push(event);
      else bySession.set(event.session_id, [event]);
    }
    for (const [session, some] of bySession) {
      for (const [tab, watcher] of this.tabs) {
        if (watcher.sessions.includes(session)) tab.send({ kind: "events", session, events: some });
      }
    }
  }

  /** A missing session must not break the stream for the others. */
  private async findMissing(): Promise<void> {
    const stream = this.watching;
    let found = false;
    for (const session of this.watched) {
      const answer = await ask(`/api/sessions/${encodeURIComponent(session)}/queue`).catch(() => null);
      if (answer?.status !== 404 && answer?.status !== 410) continue;
      found = true;
      for (const watcher of this.tabs.values()) watcher.sessions = watcher.sessions.filter((one) => one !== session);
      this.tell({ kind: answer.status === 410 ? "damaged" : "missing", session });
    }
    // If all sessions exist after all, the stream's own retry recovers.
    if (found && this.watching === stream) this.restart();
  }

  private relink(): void {
    const states: StreamState[] = this.changes ? [this.changes.state] : [];
    if (this.watching && this.watching.state !== "ended") states.push(this.watching.state);
    let link: LinkState = "live";
    if (states.includes("unauthorized")) link = "unauthorized";
    else if (states.includes("lost")) link = "lost";
    else if (states.includes("connecting")) link = this.link === "lost" ? "lost" : this.link;
    if (link === this.link) return;
    this.link = link;
    this.tell({ kind: "link", state: link, at: this.lastEventAt });
  }

  private async fetchList(signal: AbortSignal): Promise<boolean> {
    const answer = await ask(`/api/sessions?archived=false&limit=${LIST_LIMIT}`, { signal: AbortSignal.any([signal, AbortSignal.timeout(LIST_TIMEOUT_MS)]) });
    if (!answer.ok) return answer.status === 401;
    const found = (await answer.json()) as { sessions: Session[]; next_cursor: string | null };
    this.list = { kind: "sessions", sessions: found.sessions, cursor: found.next_cursor };
    this.tell(this.list);
    return true;
  }

  private forgetSilentTabs(): void {
    const slept = Date.now() - this.sweptAt > TAB_SILENT_MS;
    this.sweptAt = Date.now();
    for (const [tab, watcher] of this.tabs) {
      // After the machine slept, no tab could have sent anything: restart each timeout.
      if (slept) watcher.heardAt = Date.now();
      else if (Date.now() - watcher.heardAt > TAB_SILENT_MS) this.tabs.delete(tab);
    }
    this.shrinkLater();
  }
}
