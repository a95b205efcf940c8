// A session's state: a pure fold of snapshots, events and fetched turns. Above: the store holds one per open session
// and views read it. Below: folding.ts applies each event. There is no clock and no request here.

import type { AskedPart, Event, Part, Prompt, Session, TranscriptTurn, TurnInfo } from "../wire/types";
import { fold } from "./folding";
import { empty, find, type State, type Turn } from "./model";

export { empty, type State, type Turn } from "./model";

/** Fold events in order. Consecutive deltas of one block are joined first. */
export function reduceAll(state: State, events: Event[]): State {
  // Don't join events across a point up to which a turn or the state is already known.
  const ends = new Set([state.seq, ...state.turns.map((turn) => turn.upTo)]);
  for (const event of events) if (event.type === "snapshot") ends.add(event.seq);
  for (const event of joined(events, ends)) state = reduce(state, event);
  return state;
}

const isDelta = (event: Event) => event.type === "assistant_text" || event.type === "assistant_thinking";

export function joined(events: Event[], ends: Set<number> = new Set()): Event[] {
  const out: Event[] = [];
  for (const event of events) {
    const last = out[out.length - 1];
    if (last && isDelta(event) && !ends.has(last.seq) && last.type === event.type && last.block === event.block && last.turn === event.turn && (event.first_seq ?? event.seq) === last.seq + 1) {
      out[out.length - 1] = { ...last, first_seq: last.first_seq ?? last.seq, seq: event.seq, at: event.at, delta: last.delta + event.delta };
    } else out.push(event);
  }
  return out;
}

export function reduce(state: State, event: Event): State {
  if (event.type === "snapshot") return snapshot(state, event);
  if (event.seq <= state.seq) return state;
  if ((event.first_seq ?? event.seq) > state.seq + 1) return { ...state, stale: true };
  return fold({ ...state, seq: event.seq, lastEventAt: event.at }, event);
}

// Snapshots -------------------------------------------------------------------------------------------------------------

function snapshot(before: State, event: Event): State {
  // A log shorter than what was seen is a different one (a backup was restored): discard the old state.
  const state = event.seq < before.seq ? empty(before.id) : before;
  const session = event.session as Session;
  const visible = event.visible_turns as number[];
  const shown = new Set(visible);
  const infos = new Map((session.turns ?? []).map((info) => [info.turn, info]));
  const asked = { ...state.asked };
  for (const prompt of event.pending_prompts as Prompt[]) asked[prompt.prompt_id] = prompt;
  // The history changed while this page was not connected: show the old turns until they are fetched again.
  const changed = state.session !== null && (state.session.revision ?? 0) !== (session.revision ?? 0);
  const turns: Turn[] = [];
  for (const known of state.turns) {
    const info = infos.get(known.turn) ?? known.info;
    if (known.turn === event.turn || !same(known.info, info)) continue;
    const ended = known.info?.stop_reason != null;
    if (!shown.has(known.turn)) turns.push({ ...known, rewound: true });
    else turns.push({ ...known, info, loaded: known.loaded && ended && !changed, rewound: false });
  }
  if (event.turn !== null && shown.has(event.turn)) turns.push(current(state, event, infos.get(event.turn) ?? null));
  turns.sort((a, b) => a.turn - b.turn);
  return {
    ...state,
    seq: event.seq,
    session,
    turns,
    visible,
    prompts: event.pending_prompts,
    queue: event.queue,
    asked,
    commands: session.commands ?? state.commands,
    lastEventAt: event.last_event_at ?? event.at,
    stale: false,
  };
}

/** Whether both are the same turn. The number alone is not enough: a different log may reuse it. */
function same(one: TurnInfo | null, other: TurnInfo | null): boolean {
  if (!one || !other) return true;
  // The start time of a turn that waited changes when it starts.
  const waited = one.context === null || other.context === null;
  return one.run_id === other.run_id && one.message_id === other.message_id && (waited || one.started_at === other.started_at);
}

/** The running or last turn, from the snapshot. The start of a very long turn may be missing. */
function current(state: State, event: Event, info: TurnInfo | null): Turn {
  const found = find(state, event.turn);
  const known = found && same(found.info, info) ? found : undefined;
  if (known?.loaded && known.info?.stop_reason != null && event.seq === state.seq) return { ...known, info };
  const parts = (event.parts as Part[]).slice();
  const waiting = (event.pending_prompts as Prompt[]).filter((prompt) => prompt.turn === event.turn);
  for (const prompt of waiting) parts.push({ type: "asked", prompt_id: prompt.prompt_id });
  const cut = event.text_offset > 0 || parts.some((part) => "offset" in part && !!part.offset);
  // If the whole turn was loaded before, load all of it again.
  const skipped = known?.loaded ? 0 : ((event.parts_offset as number | undefined) ?? 0);
  const loaded = !cut && !event.parts_offset;
  return { turn: event.turn!, info, message: event.message ?? known?.message ?? null, parts, loaded, skipped, rewound: false, upTo: 0 };
}

// Fetched turns -----------------------------------------------------------------------------------------------------------

/** Add turns from the transcript, read when the log had `seq` events. */
export function withHistory(state: State, fetched: TranscriptTurn[], seq: number): State {
  const turns = new Map(state.turns.map((turn) => [turn.turn, turn]));
  for (const one of fetched) {
    const known = turns.get(one.turn);
    if (known?.loaded) continue;
    const { message, parts, rewound, ...info } = one;
    const waiting: AskedPart[] = state.prompts.filter((prompt) => prompt.turn === one.turn).map((prompt) => ({ type: "asked", prompt_id: prompt.prompt_id }));
    turns.set(one.turn, { turn: one.turn, info: known?.info ?? info, message, parts: [...parts, ...waiting], loaded: true, skipped: 0, rewound: rewound ?? known?.rewound ?? false, upTo: seq });
  }
  return { ...state, turns: [...turns.values()].sort((a, b) => a.turn - b.turn) };
}

/** The visible turns that are not loaded, newest last. */
export function missing(state: State): number[] {
  const here = new Set(state.turns.filter((turn) => turn.loaded).map((turn) => turn.turn));
  return state.visible.filter((turn) => !here.has(turn));
}

/** The missing turns to fetch automatically. A very long turn is shown from its end; the rest is fetched on request. */
export function lacking(state: State): number[] {
  const shown = new Set(state.turns.filter((turn) => turn.skipped).map((turn) => turn.turn));
  return missing(state).filter((turn) => !shown.has(turn));
}
