// The store of one session: connects the fold, the link and React. Above: views subscribe with useSession. Below:
// session.ts applies events, link.ts delivers them, api.ts fetches older turns. Events are applied once per frame,
// however many arrive.

import { useEffect, useState, useSyncExternalStore } from "react";
import { at, get, Problem, sentence } from "../wire/api";
import { again, listen } from "../wire/link";
import type { TurnChanges } from "../wire/changes";
import type { Event, TranscriptTurn } from "../wire/types";
import { empty, lacking, missing, reduceAll, withHistory, type State } from "./session";

const PAGE_TURNS = 30;
const KEPT_STORES = 6;
const HIDDEN_FLUSH_MS = 200;
const CALM_MS = 250;
const FIRST_RETRY_MS = 1000;
const LAST_RETRY_MS = 30_000;

/** The state that does not change while text streams. Only the conversation needs more. */
export type Head = Pick<State, "session" | "prompts" | "queue" | "commands"> & { gone: false | "erased" | "damaged" };

export class SessionStore {
  state: State;
  head: Head;
  gone: Head["gone"] = false;
  loading = false;
  /** Why fetching older turns failed. It is retried. */
  trouble = "";
  /** The turn the user jumped to: load it and all later ones. */
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
    // A hidden tab gets no animation frames but must still notice when a turn ends.
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
    // Don't retry a failed request on every frame.
    if (!this.retrying) this.fill();
  }

  /** Load the newest turns, and reload shown turns that are out of date. Older turns are loaded when the user scrolls
   * to them. */
  fill(): void {
    if (this.loading || this.gone) return;
    const unasked = new Set(lacking(this.state));
    const absent = new Set(missing(this.state));
    const recent = new Set(this.state.visible.slice(-PAGE_TURNS));
    for (const turn of this.state.turns) if (turn.message || turn.parts.length) recent.add(turn.turn);
    const wanted = this.state.visible.filter((turn) => (unasked.has(turn) && recent.has(turn)) || (absent.has(turn) && turn >= this.from));
    if (wanted.length) void this.load(wanted[0]!, wanted[wanted.length - 1]!);
  }

  /** The server is reachable again. */
  retry(): void {
    if (this.retrying) clearTimeout(this.retrying);
    this.retrying = null;
    this.retryMs = FIRST_RETRY_MS;
    this.fill();
  }

  /** The history revision the user sees, sent with every change to it. */
  get revision(): { revision?: number } {
    const revision = this.state.session?.revision;
    return revision === undefined ? {} : { revision };
  }

  get earlier(): number {
    return lacking(this.state).length;
  }

  /** Load one more page of earlier turns. */
  async loadEarlier(): Promise<void> {
    const some = lacking(this.state).slice(-PAGE_TURNS);
    if (!some.length) return;
    await this.load(some[0]!, some[some.length - 1]!);
  }

  /** Load everything from this turn on, now or as soon as the server responds. */
  async loadFrom(turn: number): Promise<void> {
    this.from = Math.min(this.from, turn);
    const absent = missing(this.state).filter((one) => one >= turn);
    if (absent.length) await this.load(absent[0]!, absent[absent.length - 1]!);
  }

  /** Load all of a very long turn of which only the end is loaded. */
  async loadWhole(turn: number): Promise<void> {
    await this.load(turn, turn);
  }

  /** What the server knows about the changes of all turns. */
  learn(turns: TurnChanges[]): void {
    const known = turns.filter((one) => JSON.stringify(this.state.changes[one.turn]) !== JSON.stringify(one));
    if (!known.length) return;
    this.state = { ...this.state, changes: { ...this.state.changes, ...Object.fromEntries(known.map((one) => [one.turn, one])) } };
    this.tell();
  }

  /** Whether this turn is fully loaded. */
  has(turn: number): boolean {
    return this.state.turns.some((one) => one.turn === turn && one.loaded);
  }

  /** Load rewound turns in this range. Returns everything the server has there, including turns not rewound. */
  async loadRewound(turns: number[]): Promise<TranscriptTurn[]> {
    const found = await get<{ turns: TranscriptTurn[] }>(at(this.id, `/transcript?rewound=true&from_turn=${turns[0]}&to_turn=${turns[turns.length - 1]}`));
    const rewound = found.turns.filter((turn) => turn.rewound);
    this.state = withHistory(this.state, rewound, this.state.seq);
    this.tell();
    return found.turns;
  }

  /** Loads run one at a time, and skip turns an earlier load has fetched. */
  private load(from: number, to: number): Promise<void> {
    const next = this.loads.then(() => {
      const absent = missing(this.state).filter((turn) => turn >= from && turn <= to);
      if (!absent.length) return;
      // While loading the start of the running turn, hold back events so that none is missed. Set this only now,
      // because the end of the previous load releases the hold.
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
      // The history changed during the request, and the change was not applied to turns that were not loaded.
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

  /** Redraw after a change outside the folded state. */
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

/** The state, updated a few times per second, for views that don't need every frame. */
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
