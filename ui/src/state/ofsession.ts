// How events change the session itself: its agent, options, usage and queue. Above: folding.ts calls these functions.
// Below: model.ts. Pure. core/evolve.py is the server's version in Python.

import type { Event, Queued, Session, Usage } from "../wire/types";
import type { State } from "./model";

export const withSession = (state: State, changes: Partial<Session>): State =>
  state.session ? { ...state, session: { ...state.session, ...changes } } : state;

const TOTALS = ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd"] as const;
const CHOICES = ["model", "mode", "models", "modes", "config_options", "commands"] as const;

/** Times are formatted so that string order is time order. */
const later = (one: string, other: string | undefined) => (other && other > one ? other : one);

export function ofSession(state: State, event: Event): State {
  const session = state.session;
  if (!session) return state;
  switch (event.type) {
    case "title":
      return withSession(state, { title: event.title });
    case "session_updated":
      return withSession(state, given(event, ["summary", "labels", "archived"]));
    case "config":
      return config(state, session, event);
    case "agent_launched":
      return withSession(state, { attached: attachedNow(session, "live"), pid: null, native_session_id: event.native_session_id ?? session.native_session_id });
    case "agent_attached":
      return withSession(state, { attached: attachedNow(session, "live"), pid: event.pid, native_session_id: event.native_session_id ?? session.native_session_id, ...given(event, ["models", "modes", "config_options"]) });
    case "agent_detached":
      return withSession(state, { attached: attachedNow(session, "suspended"), pid: null });
    case "waiting_to_begin":
      return withSession(state, { waits_for: { code: event.code, message: event.message } });
    case "waiting_until":
      return withSession(state, { waiting_until: event.until, waiting_reason: event.until === null ? null : event.reason });
    case "files_requested":
      return withSession(state, { file_operation: { operation_id: event.operation_id, action: event.action } });
    case "files_changed":
      return withSession(state, { file_operation: null });
    case "session_end":
      return ended(state, session, event);
    default:
      return state;
  }
}

/** The fields the event sets. Null fields did not change. */
function given(event: Event, keys: (keyof Session)[]): Partial<Session> {
  return Object.fromEntries(keys.filter((key) => event[key] !== null && event[key] !== undefined).map((key) => [key, event[key]]));
}

const attachedNow = (session: Session, attached: Session["attached"]) => (session.ended_at ? "ended" : attached);

function ended(state: State, session: Session, event: Event): State {
  const failed = event.status === "failed" || String(event.reason ?? "").startsWith("Server restarted");
  const after = withSession(state, {
    state: "ended",
    status: event.status,
    attached: "ended",
    ended_at: event.at,
    error: failed ? event.reason : session.error,
    pending_prompts: 0,
    queue_length: 0,
  });
  return { ...after, prompts: [], queue: [] };
}

/** Update the last activity, which lists are sorted by: a message, prompt, answer, turn end or history change. */
export function active(state: State, event: Event, changes: Partial<Session> = {}): State {
  return withSession(state, { last_active_at: later(event.at, state.session?.created_at), ...changes });
}

/** A message was accepted: it has a turn that has not started yet. */
export const accepted = (state: State, event: Event): State =>
  active(state, event, { state: "accepted", waits_for: null, error: null, turn_count: state.visible.length });

/** A turn of this agent starts. One agent's options don't apply to another. */
export function started(state: State, event: Event): State {
  const session = state.session;
  if (!session) return state;
  const changes: Partial<Session> = { state: "processing", waits_for: null, turn_count: state.visible.length, started_at: session.started_at ?? later(event.at, session.created_at) };
  if (event.agent === session.agent || event.taken_over) return withSession(state, changes);
  const before = state.choices[event.agent];
  const choices = { ...state.choices, [session.agent]: Object.fromEntries(CHOICES.map((key) => [key, session[key]])) };
  // The agent worked here before this page was opened, so only the server knows its options.
  const unknown = !before && !!session.turns?.some((turn) => turn.agent === event.agent && turn.turn !== event.turn);
  const chosen: Partial<Session> = { ...Object.fromEntries(CHOICES.map((key) => [key, null])), commands: [], ...before };
  const after = withSession(state, { ...changes, agent: event.agent, native_session_id: event.native_session_id ?? null, ...chosen });
  return { ...after, commands: chosen.commands ?? [], choices, stale: state.stale || unknown };
}

/** The session's usage, plus that of one turn. */
export function spent(session: Session, usage: Usage | null): Session["usage"] {
  const total = { ...session.usage };
  for (const key of TOTALS) {
    const value = usage?.[key];
    if (value !== null && value !== undefined) total[key] = (total[key] ?? 0) + value;
  }
  return total;
}

function config(state: State, session: Session, event: Event): State {
  const changes: Partial<Session> = {};
  if (event.options) changes.config_options = event.options;
  if (event.config_id === "available_commands") {
    const commands = Array.isArray(event.value) ? event.value : [];
    return { ...withSession(state, { ...changes, commands }), commands };
  }
  const options = changes.config_options ?? session.config_options;
  // A requested option takes effect only when the agent confirms it.
  if (options && !event.requested && !event.refused) {
    changes.config_options = options.map((option) => (option.id === event.config_id ? { ...option, currentValue: event.value } : option));
  }
  if (event.config_id === "model") changes.model = event.value;
  if (event.config_id === "mode") changes.mode = event.value;
  return withSession(state, changes);
}

export function queued(state: State, event: Event): State {
  const entry: Queued = { message_id: event.message_id, text: event.text, agent: event.agent, attachments: event.attachments ?? [], queued_at: event.at, first: !!event.first };
  const queue = state.queue.filter((one) => one.message_id !== event.message_id);
  // Messages that interrupt go before the others, in the order they were sent.
  queue.splice(event.first ? queue.filter((one) => one.first).length : queue.length, 0, entry);
  return { ...active(state, event, { queue_length: queue.length }), queue };
}

export function edited(state: State, event: Event): State {
  const queue = state.queue.map((one) => (one.message_id === event.message_id ? { ...one, text: event.text } : one));
  return { ...active(state, event), queue };
}

export function unqueued(state: State, event: Event): State {
  const queue = state.queue.filter((one) => one.message_id !== event.message_id);
  return { ...withSession(state, { queue_length: queue.length }), queue };
}
