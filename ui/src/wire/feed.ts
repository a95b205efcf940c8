// The feed: two streams for a whole browser, whatever its tabs watch. Above: the shared worker, or a tab where there is
// none. Below: streams. A browser opens at most six connections to one host, so a stream per tab would soon block every
// request. It keeps no conversation: a tab that begins to watch a session is given a snapshot by a new stream.

import { Stream, type StreamState } from "./stream";
import type { Event, Session } from "./types";

const LIST_LIMIT = 200;
const LIST_PAUSE_MS = 400;
const TAB_SILENT_MS = 180_000;

export type ToFeed =
  | { kind: "watch"; sessions: string[] }
  | { kind: "ping" }
  | { kind: "nudge" }
  | { kind: "again" }
  | { kind: "relist" }
  | { kind: "bye" };

export type FromFeed =
  | { kind: "events"; session: string; events: Event[] }
  | { kind: "changes"; events: Event[] }
  | { kind: "sessions"; sessions: Session[]; cursor: string | null }
  | { kind: "link"; state: LinkState; at: number }
  | { kind: "missing"; session: string };

export type LinkState = "connecting" | "live" | "lost" | "unauthorized";

export interface Tab {
  send(message: FromFeed): void;
}

interface Watcher {
  sessions: string[];
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
  private listTimer: ReturnType<typeof setTimeout> | null = null;
  private listWanted = false;

  constructor() {
    this.open();
    setInterval(() => this.forgetSilentTabs(), TAB_SILENT_MS / 3);
  }

  open(): void {
    if (this.changes) return;
    this.changes = new Stream("/api/events?all=true", {
      events: (events) => {
        this.lastEventAt = Date.now();
        this.tell({ kind: "changes", events });
        this.wantList();
      },
      state: (state) => {
        if (state === "live") this.wantList();
        this.relink();
      },
    });
    this.restart();
  }

  /** Let go of the connections; what was missed comes as snapshots when it is opened again. */
  close(): void {
    this.changes?.close();
    this.changes = null;
    this.watching?.close();
    this.watching = null;
  }

  join(tab: Tab): void {
    this.tabs.set(tab, { sessions: [], heardAt: Date.now() });
    tab.send({ kind: "link", state: this.link, at: this.lastEventAt });
    if (this.list) tab.send(this.list);
  }

  hear(tab: Tab, message: ToFeed): void {
    if (message.kind === "bye") {
      this.tabs.delete(tab);
      return;
    }
    // A tab that was frozen and taken for gone is back as soon as it speaks.
    const watcher = this.tabs.get(tab) ?? { sessions: [], heardAt: 0 };
    watcher.heardAt = Date.now();
    this.tabs.set(tab, watcher);
    if (message.kind === "watch") {
      watcher.sessions = message.sessions;
      if (message.sessions.length) this.restart();
    } else if (message.kind === "again") {
      this.restart();
    } else if (message.kind === "relist") {
      this.wantList();
    } else if (message.kind === "nudge") {
      this.changes?.nudge();
      this.watching?.nudge();
    }
  }

  private tell(message: FromFeed): void {
    for (const tab of this.tabs.keys()) tab.send(message);
  }

  private restart(): void {
    const wanted = [...new Set([...this.tabs.values()].flatMap((watcher) => watcher.sessions))];
    this.watching?.close();
    this.watched = wanted;
    this.watching = null;
    if (wanted.length) {
      this.watching = new Stream(`/api/events?sessions=${wanted.map(encodeURIComponent).join(",")}`, {
        events: (events) => this.pass(events),
        state: (state) => {
          if (state === "missing") void this.findMissing();
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

  /** One session that is gone must not take the others with it. */
  private async findMissing(): Promise<void> {
    for (const session of this.watched) {
      const answer = await fetch(`/api/sessions/${encodeURIComponent(session)}/queue`).catch(() => null);
      if (answer?.status !== 404) continue;
      for (const watcher of this.tabs.values()) watcher.sessions = watcher.sessions.filter((one) => one !== session);
      this.tell({ kind: "missing", session });
    }
    this.restart();
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

  private wantList(): void {
    this.listWanted = true;
    if (this.listTimer) return;
    void this.fetchList();
    this.listTimer = setTimeout(() => {
      this.listTimer = null;
      if (this.listWanted) this.wantList();
    }, LIST_PAUSE_MS);
  }

  private async fetchList(): Promise<void> {
    this.listWanted = false;
    try {
      const answer = await fetch(`/api/sessions?archived=false&limit=${LIST_LIMIT}`);
      if (!answer.ok) return;
      const found = (await answer.json()) as { sessions: Session[]; next_cursor: string | null };
      this.list = { kind: "sessions", sessions: found.sessions, cursor: found.next_cursor };
      this.tell(this.list);
    } catch {
      // The stream notices too, and asks again when it is back.
    }
  }

  private forgetSilentTabs(): void {
    for (const [tab, watcher] of this.tabs) {
      if (Date.now() - watcher.heardAt > TAB_SILENT_MS) this.tabs.delete(tab);
    }
  }
}
