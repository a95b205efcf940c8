// How each event changes the session state: one small function per event type. Above: session.ts checks that an event
// is the next one. Below: model.ts. Pure: no clock, no requests. core/view.py is the server's version in Python.

import type { Event, Message, NoticePart, Part, Prompt, ResolvedPart, TextPart, ToolPart, TurnInfo } from "../wire/types";
import { blank, find, type State, type Turn } from "./model";
import { accepted, active, edited, ofSession, queued, spent, started, unqueued, withSession } from "./ofsession";

/** Change the event's turn. A turn that is not loaded is left alone: it is fetched when it is shown. */
function inTurn(state: State, event: Event, change: (turn: Turn) => Turn): State {
  const index = event.turn === null ? -1 : state.turns.findLastIndex((turn) => turn.turn === event.turn);
  if (index < 0) return state;
  const known = state.turns[index]!;
  if (event.seq <= known.upTo) return state;
  const turns = state.turns.slice();
  turns[index] = change(known);
  return { ...state, turns };
}

/** For the two events that start a turn. From here on, every event of the turn is seen. */
function inNewTurn(state: State, event: Event, change: (turn: Turn) => Turn): State {
  if (event.turn === null) return state;
  const begun = find(state, event.turn) ? state : { ...state, turns: [...state.turns, blank(event.turn)].sort((a, b) => a.turn - b.turn) };
  const after = inTurn(begun, event, change);
  return after.visible.includes(event.turn) ? after : { ...after, visible: [...after.visible, event.turn] };
}

const add = (turn: Turn, part: Part): Turn => ({ ...turn, parts: [...turn.parts, part] });

function withInfo(turn: Turn, changes: Partial<TurnInfo>): Turn {
  return turn.info ? { ...turn, info: { ...turn.info, ...changes } } : turn;
}

/** Events that don't change what the page shows. Every other type has a case below or in ofsession.ts; types of a newer
 * server have none. ui/test/projection.test.ts checks both. */
export const NOT_SHOWN: ReadonlySet<string> = new Set(["waiting_for_input", "abort_requested", "driver_fallback", "unrecognised"]);

/** The state after this event, which must be the next one. */
export function fold(state: State, event: Event): State {
  if (NOT_SHOWN.has(event.type)) return state;
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
    case "image":
      return inTurn(state, event, (turn) => add(turn, { type: "image", mime_type: event.mime_type, size: event.size, data: event.data, tool_id: event.tool_id }));
    case "usage":
      return inTurn(state, event, (turn) => usage(turn, event));
    case "turn_end":
      return turnEnd(state, event);
    case "pending_prompt":
      return asked(state, event);
    case "prompt_resolved":
      return resolved(state, event);
    case "message_queued":
      return queued(state, event);
    case "queued_message_edited":
      return edited(state, event);
    case "message_unqueued":
      return unqueued(state, event);
    case "error":
      return withSession(notice(state, event, () => ({ error: event.message })), { error: event.message });
    case "system":
      return notice(state, event);
    case "context_fallback":
      return withSession(
        notice(state, event, () => ({ context: "fresh", context_reason: event.reason, catch_up: 0 })),
        event.poisoned ? { native_session_id: null } : {},
      );
    case "history_shortened":
      return notice(state, event, () => ({ digested: event.digested?.length ?? 0, left_out: event.left_out?.length ?? 0 }));
    case "history_changed":
      return historyChanged(state, event);
    case "turn_changes":
      return turnChanges(state, event);
    default:
      return ofSession(state, event);
  }
}

/** What the turn changed was recorded, or can't be known. */
function turnChanges(state: State, event: Event): State {
  const { turn, state: known, reason, files, added, removed } = event;
  return turn === null ? state : { ...state, changes: { ...state.changes, [turn]: { turn, state: known, reason, file_count: files, added, removed, rewound: false } } };
}

/** Add a notice to the event's turn, with changes to the turn's info. An event without a turn is not shown. */
function notice(state: State, event: Event, changes: () => Partial<TurnInfo> = () => ({})): State {
  return inTurn(state, event, (turn) => withInfo(add(turn, told(event) as unknown as NoticePart), changes()));
}

/** An event as a part: without the fields that are the same for the whole turn. */
function told(event: Event): Record<string, unknown> {
  const { seq: _seq, first_seq: _first, session_id: _session, turn: _turn, answer: _answer, ...rest } = event;
  return rest;
}

/** A message was edited in place, or this turn and all later ones were rewound. */
function historyChanged(before: State, event: Event): State {
  const state = active(before, event, { revision: (before.session?.revision ?? 0) + 1 });
  if (event.turn === null) return { ...state, stale: true };
  if (event.change === "edit") {
    return inTurn(state, event, (turn) => (turn.message ? { ...turn, message: { ...turn.message, text: event.text, edited_at: event.at } } : turn));
  }
  const gone = state.visible.some((turn) => turn >= event.turn!);
  const turns = state.turns.map((turn) => (turn.turn >= event.turn! ? { ...turn, rewound: true } : turn));
  const visible = state.visible.filter((turn) => turn < event.turn!);
  return withSession({ ...state, turns, visible }, { turn_count: visible.length, ...(gone ? { error: null } : {}) });
}

function userMessage(state: State, event: Event): State {
  const message: Message = { message_id: event.message_id, text: event.text, at: event.at, attachments: event.attachments ?? [], ...(event.origin === "agent" ? { origin: "agent" } : {}) };
  const info = infoOf(event, `${event.session_id}.${event.turn}`);
  return accepted(inNewTurn(state, event, (turn) => ({ ...turn, message, info })), event);
}

/** A new turn's info, from its first event. */
function infoOf(event: Event, run: string): TurnInfo {
  return {
    turn: event.turn!,
    run_id: run,
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
    context: event.context ?? null,
    context_reason: event.context_reason ?? "",
    input_bytes: null,
    model: null,
    catch_up: event.catch_up ?? 0,
    replayed: event.replayed ?? 0,
    digested: 0,
    left_out: 0,
  };
}

function turnStart(state: State, event: Event): State {
  // Imported logs may have turns without a message.
  const before = state.visible.includes(event.turn!) ? state : withSession(state, { error: null });
  const begun = started(inNewTurn(before, event, (turn) => ({ ...turn, info: infoOf(event, event.run_id) })), event);
  const model = event.taken_over ? null : begun.session?.model ?? null;
  return inTurn(begun, event, (turn) => withInfo(turn, { model }));
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
  for (const key of ["title", "input", "diff", "locations", "content"] as const) if (event[key] !== null && event[key] !== undefined) (tool as unknown as Record<string, unknown>)[key] = event[key];
  if (event.type === "tool_result") {
    tool.is_error = event.is_error;
    tool.ended_at = event.at;
    if (event.outcome) tool.outcome = event.outcome;
    if (event.waited_ms) tool.waited_ms = event.waited_ms;
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

const FIGURES = ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd", "context_used", "context_size"];

function usage(turn: Turn, event: Event): Turn {
  if (turn.info?.stop_reason != null) return turn;
  const figures: Record<string, unknown> = { ...turn.info?.usage };
  for (const key of FIGURES) if (event[key] !== null && event[key] !== undefined) figures[key] = event[key];
  return withInfo(turn, { usage: figures, cost_usd: event.cost_usd ?? turn.info?.cost_usd ?? null });
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
      input_bytes: event.input_bytes ?? null,
      model: event.model || (turn.info?.model ?? null),
    }),
  );
  if (!after.session) return after;
  const used = event.usage ?? find(after, event.turn)?.info?.usage ?? null;
  return active(after, event, { state: after.session.ended_at ? "ended" : "idle", waits_for: null, usage: spent(after.session, used) });
}

function asked(state: State, event: Event): State {
  const { seq: _seq, type: _type, at: _at, session_id: _id, ...rest } = event;
  const prompt = { ...rest, asked_at: event.asked_at || event.at } as unknown as Prompt;
  const after = inTurn(state, event, (turn) => add(turn, { type: "asked", prompt_id: prompt.prompt_id }));
  const prompts = [...state.prompts.filter((one) => one.prompt_id !== prompt.prompt_id), prompt];
  return { ...active(after, event, { pending_prompts: prompts.length }), prompts, asked: { ...state.asked, [prompt.prompt_id]: prompt } };
}

function resolved(state: State, event: Event): State {
  const part = { ...told(event), ...about(state.asked[event.prompt_id], event) } as unknown as ResolvedPart;
  const after = inTurn(state, event, (turn) => ({
    ...turn,
    parts: [...turn.parts.filter((one) => !(one.type === "asked" && one.prompt_id === event.prompt_id)), part],
  }));
  const prompts = state.prompts.filter((one) => one.prompt_id !== event.prompt_id);
  const waiting = { pending_prompts: prompts.length };
  return { ...(event.by === "person" ? active(after, event, waiting) : withSession(after, waiting)), prompts };
}

/** The question, and the answer or reason given. */
function about(prompt: Prompt | undefined, event: Event): Partial<ResolvedPart> {
  const said: Partial<ResolvedPart> = event.answer?.reason ? { reason: event.answer.reason } : {};
  if (!prompt) return said;
  const asked = { ...said, title: prompt.title, kind: prompt.kind };
  return prompt.questions?.length ? { ...asked, questions: prompt.questions, answers: event.answer?.answers ?? null } : asked;
}
