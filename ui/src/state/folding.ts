// What each event means for a session: one small function per type. Above: session.ts decides whether an event is the next
// one. Below: model.ts. Pure: no clock, no request. The server's own fold (core/view.py) says the same in Python.

import type { Event, Message, Part, Prompt, Queued, Session, TextPart, ToolPart, TurnInfo } from "../wire/types";
import { blank, type State, type Turn } from "./model";

function inTurn(state: State, event: Event, change: (turn: Turn) => Turn): State {
  const number = event.turn ?? state.turns[state.turns.length - 1]?.turn ?? null;
  if (number === null) return state;
  const index = state.turns.findLastIndex((turn) => turn.turn === number);
  const turns = state.turns.slice();
  if (index < 0) {
    turns.push(change(blank(number)));
    turns.sort((a, b) => a.turn - b.turn);
  } else {
    const known = turns[index]!;
    if (event.seq <= known.upTo) return state;
    turns[index] = change(known);
  }
  return { ...state, turns };
}

const withSession = (state: State, changes: Partial<Session>): State =>
  state.session ? { ...state, session: { ...state.session, ...changes } } : state;

const add = (turn: Turn, part: Part): Turn => ({ ...turn, parts: [...turn.parts, part] });

function withInfo(turn: Turn, changes: Partial<TurnInfo>): Turn {
  return turn.info ? { ...turn, info: { ...turn.info, ...changes } } : turn;
}

/** The state after this event, which is the next one. */
export function fold(state: State, event: Event): State {
  switch (event.type) {
    case "session_created":
      return { ...state, session: event.session };
    case "user_message":
      return userMessage(state, event);
    case "turn_start":
      return turnStart(state, event);
    case "assistant_text":
      return inTurn(state, event, (turn) => text(turn, "text", event));
    case "assistant_thinking":
      return inTurn(state, event, (turn) => text(turn, "thinking", event));
    case "tool_use":
      return inTurn(state, event, (turn) => toolUse(turn, event));
    case "tool_update":
    case "tool_result":
      return inTurn(state, event, (turn) => toolUpdate(turn, event));
    case "plan":
      return inTurn(state, event, (turn) => plan(turn, event));
    case "usage":
      return inTurn(state, event, (turn) => withInfo(turn, { usage: usageOf(event, turn.info?.usage ?? {}) }));
    case "turn_end":
      return turnEnd(state, event);
    case "waiting_for_input":
      return withSession(state, { state: "idle" });
    case "pending_prompt":
      return asked(state, event);
    case "prompt_resolved":
      return resolved(state, event);
    case "message_queued":
      return queued(state, event);
    case "message_unqueued":
      return unqueued(state, event);
    case "error":
    case "system":
    case "context_fallback":
    case "driver_fallback":
    case "history_shortened":
      return inTurn(state, event, (turn) => add(turn, { type: event.type as "error", message: event.message, reason: event.reason, code: event.code, detail: event.detail, at: event.at }));
    case "history_changed":
      return historyChanged(state, event);
    default:
      return ofSession(state, event);
  }
}

/** A message was edited in its place, or this turn and all after it were taken back. */
function historyChanged(state: State, event: Event): State {
  if (event.turn === null) return { ...state, stale: true };
  if (event.change === "edit") {
    return inTurn(state, event, (turn) => (turn.message ? { ...turn, message: { ...turn.message, text: event.text, edited_at: event.at } } : turn));
  }
  const turns = state.turns.map((turn) => (turn.turn >= event.turn! ? { ...turn, rewound: true } : turn));
  const visible = state.visible.filter((turn) => turn < event.turn!);
  return withSession({ ...state, turns, visible }, { turn_count: visible.length });
}

/** Events that say something of the session as a whole. */
function ofSession(state: State, event: Event): State {
  switch (event.type) {
    case "title":
      return withSession(state, { title: event.title });
    case "session_updated": {
      const changes: Partial<Session> = {};
      for (const key of ["summary", "labels", "archived"] as const) if (event[key] !== null && event[key] !== undefined) (changes as Record<string, unknown>)[key] = event[key];
      return withSession(state, changes);
    }
    case "config":
      return config(state, event);
    case "agent_attached":
      return withSession(state, { attached: "live", agent: event.agent, pid: event.pid, native_session_id: event.native_session_id, models: event.models ?? state.session?.models, modes: event.modes ?? state.session?.modes, config_options: event.config_options ?? state.session?.config_options });
    case "agent_detached":
      return withSession(state, { attached: "suspended", pid: null });
    case "waiting_until":
      return withSession(state, { waiting_until: event.until });
    case "session_end":
      return { ...withSession(state, { state: "ended", status: event.status, attached: "ended", ended_at: event.at, pending_prompts: 0 }), prompts: [], queue: [] };
    default:
      return state;
  }
}

function userMessage(state: State, event: Event): State {
  const message: Message = { message_id: event.message_id, text: event.text, at: event.at, attachments: event.attachments };
  const after = inTurn(state, event, (turn) => ({ ...turn, message }));
  return event.turn === null || after.visible.includes(event.turn) ? after : { ...after, visible: [...after.visible, event.turn] };
}

function turnStart(state: State, event: Event): State {
  const info: TurnInfo = {
    turn: event.turn!,
    run_id: event.run_id,
    message_id: event.message_id,
    agent: event.agent,
    started_at: event.at,
    ended_at: null,
    duration_ms: null,
    stop_reason: null,
    exit_code: null,
    error: null,
    usage: null,
    cost_usd: null,
    context: event.context,
    context_reason: event.context_reason,
    input_bytes: null,
  };
  let after = inTurn(state, event, (turn) => ({ ...turn, info }));
  if (!after.visible.includes(event.turn!)) after = { ...after, visible: [...after.visible, event.turn!] };
  return withSession(after, { state: "processing", agent: event.agent, turn_count: after.visible.length, last_active_at: event.at });
}

function text(turn: Turn, type: "text" | "thinking", event: Event): Turn {
  const last = turn.parts[turn.parts.length - 1];
  if (last && last.type === type && (last as TextPart).block === event.block) {
    const parts = turn.parts.slice();
    parts[parts.length - 1] = { ...(last as TextPart), text: (last as TextPart).text + event.delta };
    return { ...turn, parts };
  }
  return add(turn, { type, block: event.block, text: event.delta });
}

function toolUse(turn: Turn, event: Event): Turn {
  const index = turn.parts.findIndex((part) => part.type === "tool" && part.tool_id === event.tool_id);
  if (index >= 0) {
    const known = turn.parts[index] as ToolPart;
    const parts = turn.parts.slice();
    parts[index] = { ...known, name: event.name, kind: event.kind, title: event.title || known.title, input: event.input ?? known.input };
    return { ...turn, parts };
  }
  return add(turn, { type: "tool", tool_id: event.tool_id, name: event.name, kind: event.kind, title: event.title, status: "pending", input: event.input, parent_tool_id: event.parent_tool_id, started_at: event.at });
}

function toolUpdate(turn: Turn, event: Event): Turn {
  const index = turn.parts.findLastIndex((part) => part.type === "tool" && part.tool_id === event.tool_id);
  if (index < 0) return turn;
  const tool: ToolPart = { ...(turn.parts[index] as ToolPart), status: event.status };
  for (const key of ["title", "input", "diff", "content"] as const) if (event[key] !== null && event[key] !== undefined) (tool as unknown as Record<string, unknown>)[key] = event[key];
  if (event.type === "tool_result") {
    tool.is_error = event.is_error;
    tool.ended_at = event.at;
  }
  const parts = turn.parts.slice();
  parts[index] = tool;
  return { ...turn, parts };
}

function plan(turn: Turn, event: Event): Turn {
  const index = turn.parts.findIndex((part) => part.type === "plan");
  if (index < 0) return add(turn, { type: "plan", entries: event.entries });
  const parts = turn.parts.slice();
  parts[index] = { type: "plan", entries: event.entries };
  return { ...turn, parts };
}

function usageOf(event: Event, before: object): object {
  const usage: Record<string, unknown> = { ...before };
  for (const key of ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd", "context_used", "context_size"]) {
    if (event[key] !== null && event[key] !== undefined) usage[key] = event[key];
  }
  return usage;
}

function turnEnd(state: State, event: Event): State {
  const after = inTurn(state, event, (turn) =>
    withInfo(turn, {
      stop_reason: event.stop_reason,
      ended_at: event.at,
      duration_ms: event.duration_ms,
      exit_code: event.exit_code,
      usage: event.usage ?? turn.info?.usage ?? null,
      cost_usd: event.cost_usd ?? turn.info?.cost_usd ?? null,
      input_bytes: event.input_bytes ?? turn.info?.input_bytes ?? null,
    }),
  );
  return withSession(after, { state: "idle", last_active_at: event.at });
}

function asked(state: State, event: Event): State {
  const { seq: _seq, type: _type, at: _at, session_id: _id, ...rest } = event;
  const prompt = { ...rest, asked_at: event.asked_at || event.at } as unknown as Prompt;
  const after = inTurn(state, event, (turn) => add(turn, { type: "asked", prompt_id: prompt.prompt_id }));
  const prompts = [...state.prompts.filter((one) => one.prompt_id !== prompt.prompt_id), prompt];
  return { ...withSession(after, { pending_prompts: prompts.length }), prompts, asked: { ...state.asked, [prompt.prompt_id]: prompt } };
}

function resolved(state: State, event: Event): State {
  const part: Part = { type: "prompt_resolved", prompt_id: event.prompt_id, by: event.by, outcome: event.outcome, delivered: event.delivered, at: event.at };
  const after = inTurn(state, event, (turn) => ({
    ...turn,
    parts: [...turn.parts.filter((one) => !(one.type === "asked" && one.prompt_id === event.prompt_id)), part],
  }));
  const prompts = state.prompts.filter((one) => one.prompt_id !== event.prompt_id);
  return { ...withSession(after, { pending_prompts: prompts.length }), prompts };
}

function queued(state: State, event: Event): State {
  const entry: Queued = { message_id: event.message_id, text: event.text, agent: event.agent, queued_at: event.at };
  const rest = state.queue.filter((one) => one.message_id !== event.message_id);
  const queue = event.first ? [entry, ...rest] : [...rest, entry];
  return { ...withSession(state, { queue_length: queue.length }), queue };
}

function unqueued(state: State, event: Event): State {
  const queue = state.queue.filter((one) => one.message_id !== event.message_id);
  return { ...withSession(state, { queue_length: queue.length }), queue };
}

function config(state: State, event: Event): State {
  if (event.config_id === "available_commands") return { ...state, commands: Array.isArray(event.value) ? event.value : [] };
  if (!state.session) return state;
  const options = (event.options ?? state.session.config_options ?? []) as NonNullable<Session["config_options"]>;
  const changed = options.map((option) => (option.id === event.config_id ? { ...option, currentValue: event.value } : option));
  const changes: Partial<Session> = { config_options: changed.length ? changed : state.session.config_options };
  if (event.config_id === "model") changes.model = event.value;
  if (event.config_id === "mode") changes.mode = event.value;
  return withSession(state, changes);
}
