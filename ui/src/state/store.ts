// The store of one session: the fold, fed by the link, shown to React. Above: views subscribe with useSession. Below:
// session.ts decides what events mean; link.ts brings them; api.ts fetches older turns. Events are folded once per frame,
// however many come.

import { useEffect, useState, useSyncExternalStore } from "react";
import { at, get, Problem, sentence } from "../wire/api";
import { again, listen } from "../wire/link";
import type { Event, TranscriptTurn } from "../wire/types";
import { empty, lacking, missing, reduceAll, withHistory, type State } from "./session";

const PAGE_TURNS = 30;
const KEPT_STORES = 6;
const HIDDEN_FLUSH_MS = 200;
const CALM_MS = 250;
const FIRST_RETRY_MS = 1000;
const LAST_RETRY_MS = 30_000;

/** What does not change while a text streams: all but the conversation looks at this alone. */
export type Head = Pick<State, "session" | "prompts" | "queue" | "commands"> & { gone: false | "erased" | "damaged" };

export class SessionStore {
  state: State;
  head: Head;
  gone: Head["gone"] = false;
  loading = false;
  /** Why older turns could not be had; they are asked for again. */
  trouble = "";
  /** The turn that somebody went to: it and all after it are wanted. */
  private from = Infinity;
  private retryMs = FIRST_RETRY_MS;
  private retrying: ReturnType<typeof setTimeout> | null = null;
  private queue: Event[] = [];
  private scheduled = false;
  private held = false;
  private loads: Promise<void> = Promise.resolve();
  private readonly listeners = new Set<() => void>();

  constructor(readonly id: string) {
    this.state = empty(id);
    const { session, prompts, queue, commands } = this.state;
    this.head = { session, prompts, queue, commands, gone: false };
  }

  readonly subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  private tell(): void {
    const { session, prompts, queue, commands } = this.state;
    const before = this.head;
    if (before.session !== session || before.prompts !== prompts || before.queue !== queue || before.commands !== commands || before.gone !== this.gone) {
      this.head = { session, prompts, queue, commands, gone: this.gone };
    }
    for (const listener of this.listeners) listener();
  }

  hear(events: Event[]): void {
    for (const event of events) this.queue.push(event);
    this.schedule();
  }

  lost(damaged: boolean): void {
    this.gone = damaged ? "damaged" : "erased";
    this.state = { ...this.state };
    this.tell();
  }

  private schedule(): void {
    if (this.scheduled || this.held) return;
    this.scheduled = true;
    const flush = () => {
      this.scheduled = false;
      this.flush();
    };
    // A hidden tab gets no frames, and must still know when a turn ends.
    if (document.visibilityState === "visible") requestAnimationFrame(flush);
    else setTimeout(flush, HIDDEN_FLUSH_MS);
  }

  private flush(): void {
    if (this.held || !this.queue.length) return;
    const events = this.queue;
    this.queue = [];
    this.state = reduceAll(this.state, events);
    if (this.state.stale) {
      this.state = { ...this.state, stale: false };
      again();
    }
    this.tell();
    // What has just failed is not tried again with every frame.
    if (!this.retrying) this.fill();
  }

  /** The newest turns are always here; the ones before come when they are scrolled to. What is shown and no longer holds
   * is fetched again. */
  fill(): void {
    if (this.loading || this.gone) return;
    const unasked = new Set(lacking(this.state));
    const absent = new Set(missing(this.state));
    const recent = new Set(this.state.visible.slice(-PAGE_TURNS));
    for (const turn of this.state.turns) if (turn.message || turn.parts.length) recent.add(turn.turn);
    const wanted = this.state.visible.filter((turn) => (unasked.has(turn) && recent.has(turn)) || (absent.has(turn) && turn >= this.from));
    if (wanted.length) void this.load(wanted[0]!, wanted[wanted.length - 1]!);
  }

  /** The server is there again. */
  retry(): void {
    if (this.retrying) clearTimeout(this.retrying);
    this.retrying = null;
    this.retryMs = FIRST_RETRY_MS;
    this.fill();
  }

  /** The history that a person sees, and means, when they change it. */
  get revision(): { revision?: number } {
    const revision = this.state.session?.revision;
    return revision === undefined ? {} : { revision };
  }

  get earlier(): number {
    return lacking(this.state).length;
  }

  /** The page of turns before the ones that are here. */
  async loadEarlier(): Promise<void> {
    const some = lacking(this.state).slice(-PAGE_TURNS);
    if (!some.length) return;
    await this.load(some[0]!, some[some.length - 1]!);
  }

  /** Everything from this turn on, now or as soon as the server gives it. */
  async loadFrom(turn: number): Promise<void> {
    this.from = Math.min(this.from, turn);
    const absent = missing(this.state).filter((one) => one >= turn);
    if (absent.length) await this.load(absent[0]!, absent[absent.length - 1]!);
  }

  /** All of a very long turn, of which only the end is here. */
  async loadWhole(turn: number): Promise<void> {
    await this.load(turn, turn);
  }

  /** Whether this turn is here, whole. */
  has(turn: number): boolean {
    return this.state.turns.some((one) => one.turn === turn && one.loaded);
  }

  /** Turns that were taken back, to be looked at; all that the server has of these, also those that were not. */
  async loadRewound(turns: number[]): Promise<TranscriptTurn[]> {
    const found = await get<{ turns: TranscriptTurn[] }>(at(this.id, `/transcript?rewound=true&from_turn=${turns[0]}&to_turn=${turns[turns.length - 1]}`));
    const rewound = found.turns.filter((turn) => turn.rewound);
    this.state = withHistory(this.state, rewound, this.state.seq);
    this.tell();
    return found.turns;
  }

  /** One after the other; what an earlier one has brought is not fetched again. */
  private load(from: number, to: number): Promise<void> {
    const next = this.loads.then(() => {
      const absent = missing(this.state).filter((turn) => turn >= from && turn <= to);
      if (!absent.length) return;
      // The beginning of a very long running turn: nothing is folded until it is here, so that nothing is missed. Only now,
      // as the end of the load before lets go.
      this.held = absent[absent.length - 1] === this.state.visible[this.state.visible.length - 1];
      return this.fetch(absent[0]!, absent[absent.length - 1]!);
    });
    this.loads = next;
    return next;
  }

  private release(): void {
    this.held = false;
    this.schedule();
  }

  private async fetch(from: number, to: number): Promise<void> {
    this.loading = true;
    this.show();
    try {
      const found = await get<{ turns: TranscriptTurn[]; seq?: number; revision?: number }>(at(this.id, `/transcript?from_turn=${from}&to_turn=${to}`));
      const old = found.revision !== undefined && found.revision < (this.state.session?.revision ?? 0);
      // What was said was changed while this was on its way, and the change was not folded into turns that were not here.
      if (old) return this.tryLater();
      this.state = withHistory(this.state, found.turns.filter((turn) => turn.turn <= to), found.seq ?? 0);
      this.trouble = "";
      this.retryMs = FIRST_RETRY_MS;
    } catch (error) {
      this.trouble = sentence(error);
      if (error instanceof Problem && (error.status === 404 || error.status === 410)) this.gone = error.status === 404 ? "erased" : "damaged";
      else this.tryLater();
    } finally {
      this.loading = false;
      this.show();
      this.release();
    }
  }

  private tryLater(): void {
    this.retrying ??= setTimeout(() => {
      this.retrying = null;
      if (this.listeners.size) this.fill();
    }, this.retryMs);
    this.retryMs = Math.min(LAST_RETRY_MS, this.retryMs * 2);
  }

  /** What is beside the fold has changed, and is to be drawn. */
  private show(): void {
    this.state = { ...this.state };
    this.tell();
  }
}

const stores = new Map<string, SessionStore>();

export function storeOf(id: string): SessionStore {
  const known = stores.get(id);
  if (known) {
    stores.delete(id);
    stores.set(id, known);
    return known;
  }
  const made = new SessionStore(id);
  stores.set(id, made);
  if (stores.size > KEPT_STORES) stores.delete(stores.keys().next().value!);
  return made;
}

listen((message) => {
  if (message.kind === "events") stores.get(message.session)?.hear(message.events);
  else if (message.kind === "link" && message.state === "live") for (const store of stores.values()) store.retry();
  else if (message.kind === "missing" || message.kind === "damaged") stores.get(message.session)?.lost(message.kind === "damaged");
});

export function useHead(store: SessionStore): Head {
  return useSyncExternalStore(store.subscribe, () => store.head);
}

/** The state of a moment ago: for what need not be drawn with every frame. */
export function useCalmly(store: SessionStore): State {
  const [state, setState] = useState(store.state);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | null = null;
    let more = false;
    const look = () => {
      more = timer !== null;
      if (more) return;
      setState(store.state);
      timer = setTimeout(() => {
        timer = null;
        if (more) look();
      }, CALM_MS);
    };
    setState(store.state);
    const leave = store.subscribe(look);
    return () => {
      leave();
      if (timer) clearTimeout(timer);
    };
  }, [store]);
  return state;
}

export function useSession(store: SessionStore): State {
  return useSyncExternalStore(store.subscribe, () => store.state);
}
