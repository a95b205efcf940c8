// Folding a session: snapshots and events lead to the same view in any order that a server may send them.

import { describe, expect, it } from "vitest";
import { attention } from "../src/state/attention";
import { empty, joined, missing, reduce, reduceAll, withHistory, type State } from "../src/state/session";
import type { Event, Session, TextPart } from "../src/wire/types";

const AT = "2026-01-01T00:00:00.000Z";
let seq = 0;

function event(type: string, turn: number | null, fields: object = {}): Event {
  return { seq: ++seq, type, at: AT, session_id: "s", turn, ...fields };
}

const session = (): Session => ({ id: "s", state: "idle", turn_count: 0, title: "", queue_length: 0, pending_prompts: 0, turns: [] }) as unknown as Session;

function conversation(deltas: number): Event[] {
  seq = 0;
  return [
    event("session_created", null, { session: session() }),
    event("user_message", 1, { message_id: "m1", text: "hello", agent: "a", attachments: [] }),
    event("turn_start", 1, { run_id: "r", message_id: "m1", agent: "a", context: "fresh", context_reason: "first_turn" }),
    ...Array.from({ length: deltas }, (_, index) => event("assistant_text", 1, { block: 0, delta: `w${index} ` })),
    event("tool_use", 1, { tool_id: "t", name: "Bash", kind: "execute", title: "Bash", input: {}, parent_tool_id: null }),
    event("tool_result", 1, { tool_id: "t", status: "completed", content: "ok", is_error: false }),
    event("assistant_text", 1, { block: 1, delta: "end" }),
    event("turn_end", 1, { stop_reason: "end_turn", exit_code: null, duration_ms: 5, usage: null, cost_usd: null }),
    event("waiting_for_input", 1),
  ];
}

const textOf = (state: State, turn = 1) => state.turns.find((one) => one.turn === turn)!.parts.filter((part): part is TextPart => part.type === "text").map((part) => part.text).join("");

const snapshotAt = (state: State): Event => {
  const turn = state.turns[state.turns.length - 1]!;
  return {
    seq: state.seq,
    type: "snapshot",
    at: AT,
    session_id: "s",
    turn: turn.turn,
    session: { ...state.session!, turns: [turn.info!] },
    visible_turns: state.visible,
    message: turn.message,
    parts: turn.parts,
    text: textOf(state, turn.turn),
    text_offset: 0,
    tools: [],
    pending_prompts: state.prompts,
    queue: state.queue,
  };
};

describe("folding", () => {
  it("gives the text once", () => {
    const state = reduceAll(empty("s"), conversation(50));
    expect(textOf(state)).toBe(Array.from({ length: 50 }, (_, index) => `w${index} `).join("") + "end");
    expect(state.session!.state).toBe("idle");
  });

  it("gives the same state however the stream is cut, with repeats", () => {
    const events = conversation(20);
    const whole = reduceAll(empty("s"), events);
    for (let cut = 1; cut < events.length; cut++) {
      const first = reduceAll(empty("s"), events.slice(0, cut));
      const again = reduceAll(first, events.slice(Math.max(0, cut - 5)));
      expect(again).toEqual(whole);
    }
  });

  it("gives the same state after a snapshot at any point", () => {
    const events = conversation(20);
    const whole = reduceAll(empty("s"), events);
    for (let cut = 3; cut < events.length; cut++) {
      const before = reduceAll(empty("s"), events.slice(0, cut));
      for (const start of [empty("s"), reduceAll(empty("s"), events.slice(0, cut - 2))]) {
        const after = reduceAll(reduce(start, snapshotAt(before)), events.slice(cut));
        expect(textOf(after)).toBe(textOf(whole));
        expect(after.session!.state).toBe("idle");
        expect(after.turns.length).toBe(1);
      }
    }
  });

  it("detects a gap and requests a new snapshot", () => {
    const events = conversation(5);
    const state = reduceAll(empty("s"), [...events.slice(0, 4), ...events.slice(5)]);
    expect(state.stale).toBe(true);
  });

  it("keeps unchanged turns as they are", () => {
    const events = conversation(3);
    const one = reduceAll(empty("s"), events);
    seq = one.seq;
    const two = reduce(one, event("user_message", 2, { message_id: "m2", text: "more", agent: "a", attachments: [] }));
    expect(two.turns[0]).toBe(one.turns[0]);
  });

  it("joins consecutive deltas of one block only", () => {
    const all = joined(conversation(30));
    expect(all.filter((one) => one.type === "assistant_text").length).toBe(2);
    expect(all.find((one) => one.type === "assistant_text")!.first_seq).toBe(4);
  });
});

describe("history", () => {
  it("marks rewound turns and applies an edit", () => {
    const one = reduceAll(empty("s"), conversation(1));
    seq = one.seq;
    const edited = reduce(one, event("history_changed", 1, { change: "edit", text: "hullo", bumped: [] }));
    expect(edited.turns[0]!.message!.text).toBe("hullo");
    const back = reduce(edited, event("history_changed", 1, { change: "rewind", bumped: [] }));
    expect(back.visible).toEqual([]);
    expect(back.turns[0]!.rewound).toBe(true);
  });

  it("knows which turns are missing, and loads them from the transcript", () => {
    const one = reduceAll(empty("s"), conversation(1));
    const snapshot = { ...snapshotAt(one), visible_turns: [1, 2, 3], turn: 3, message: { message_id: "m3", text: "x", at: AT }, session: { ...one.session!, turns: [] } };
    const state = reduce(empty("s"), snapshot as Event);
    expect(missing(state)).toEqual([1, 2]);
    const info = { ...one.turns[0]!.info!, message: one.turns[0]!.message, parts: one.turns[0]!.parts };
    const filled = withHistory(state, [info, { ...info, turn: 2 }], 99);
    expect(missing(filled)).toEqual([]);
    expect(filled.turns.map((turn) => turn.turn)).toEqual([1, 2, 3]);
  });

  it("does not apply an event twice that the transcript already contains", () => {
    const events = conversation(10);
    const before = reduceAll(empty("s"), events.slice(0, 8));
    const cut = { ...before, turns: before.turns.map((turn) => ({ ...turn, loaded: false, parts: [] })) };
    const whole = reduceAll(empty("s"), events.slice(0, 10));
    const turn = whole.turns[0]!;
    const filled = withHistory(cut, [{ ...turn.info!, message: turn.message, parts: turn.parts }], 10);
    expect(textOf(reduceAll(filled, events.slice(8)))).toBe(textOf(reduceAll(empty("s"), events)));
  });
});

describe("prompts and the queue", () => {
  it("are added and removed", () => {
    let state = reduceAll(empty("s"), conversation(1).slice(0, 3));
    seq = state.seq;
    state = reduce(state, event("pending_prompt", 1, { prompt_id: "p", kind: "permission", title: "Run", options: [], questions: [], input: {}, asked_at: AT }));
    expect(state.prompts.length).toBe(1);
    state = reduce(state, event("message_queued", 1, { message_id: "q", text: "later" }));
    expect(state.queue.map((one) => one.text)).toEqual(["later"]);
    state = reduce(state, event("prompt_resolved", 1, { prompt_id: "p", by: "person", outcome: "allowed", delivered: true }));
    state = reduce(state, event("message_unqueued", 1, { message_id: "q", text: "later" }));
    expect([state.prompts, state.queue]).toEqual([[], []]);
    expect(state.turns[0]!.parts.map((part) => part.type)).toEqual(["prompt_resolved"]);
  });
});

describe("an accepted message", () => {
  const SLOT = { code: "slots_full", message: "Waiting for a free slot: the server runs 1 turn at a time (slots = 1)." };
  const begin = { run_id: "s.2", message_id: "m2", agent: "a", context: "live", context_reason: "live" };

  /** Turn 1 is done, and the message of turn 2 waits. */
  function waiting(fields: object = {}): State {
    const before = reduceAll(empty("s"), conversation(1));
    seq = before.seq;
    return reduceAll(before, [event("user_message", 2, { message_id: "m2", text: "more", agent: "a", attachments: [], fresh: false, ...fields }), event("waiting_to_begin", 2, SLOT)]);
  }

  it("has its turn and shows what it waits for", () => {
    const state = waiting();
    expect(state.session).toMatchObject({ state: "accepted", waits_for: SLOT, turn_count: 2, error: null });
    expect(state.visible).toEqual([1, 2]);
    expect(state.turns[1]).toMatchObject({ message: { text: "more" }, info: { run_id: "s.2", message_id: "m2", context: null, stop_reason: null } });
    expect(attention(state.session!)).toBe("accepted");
  });

  it("waits for something else when the server reports it", () => {
    const state = reduce(waiting(), event("waiting_to_begin", 2, { code: "agent", message: "The message waits for a node that can run its agent." }));
    expect(state.session!.waits_for!.code).toBe("agent");
  });

  it("runs when its turn starts", () => {
    const state = reduce(waiting(), event("turn_start", 2, begin));
    expect(state.session).toMatchObject({ state: "processing", waits_for: null, turn_count: 2 });
    expect(state.turns[1]).toMatchObject({ message: { text: "more" }, info: { context: "live", context_reason: "live" } });
    expect(attention(state.session!)).toBe("working");
  });

  it("leaves the session idle when it is cancelled before it starts", () => {
    const state = reduce(waiting(), event("turn_end", 2, { stop_reason: "cancelled", exit_code: null, duration_ms: 0, usage: null, cost_usd: null }));
    expect(state.session).toMatchObject({ state: "idle", waits_for: null });
    expect(state.turns[1]!.info).toMatchObject({ stop_reason: "cancelled", context: null });
    expect(attention(state.session!)).toBe("quiet");
  });

  it("can be edited while it waits", () => {
    const state = reduce(waiting(), event("history_changed", 2, { change: "edit", text: "less", bumped: [] }));
    expect(state.turns[1]!.message!.text).toBe("less");
    expect(state.session).toMatchObject({ state: "accepted", waits_for: SLOT });
  });

  it("counts as working for the moment before its turn starts", () => {
    const state = reduce(reduceAll(empty("s"), conversation(1)), event("user_message", 2, { message_id: "m2", text: "more", agent: "a" }));
    expect(state.session!.state).toBe("accepted");
    expect(attention(state.session!)).toBe("working");
  });

  it("stays the same turn in a snapshot taken after the start", () => {
    const state = waiting();
    const later = "2026-01-01T00:05:00.000Z";
    const begun = { ...state.turns[1]!.info!, context: "live" as const, started_at: later };
    const next = { ...begun, turn: 3, run_id: "s.3", message_id: "m3" };
    const snapshot = { ...snapshotAt(state), seq: 50, turn: 3, visible_turns: [1, 2, 3], message: { message_id: "m3", text: "third", at: later }, session: { ...state.session!, turns: [state.turns[0]!.info!, begun, next] } };
    const after = reduce(state, snapshot as Event);
    expect(after.turns.map((turn) => turn.message?.text)).toEqual(["hello", "more", "third"]);
    // Its answer is not loaded, so it is fetched.
    expect(missing(after)).toEqual([2]);
  });

  it("for a new agent needs no refresh when it starts, because that agent had no turn before", () => {
    const state = waiting({ agent: "b" });
    const looked = reduce(empty("s"), snapshotAt(state));
    expect(looked.session!.agent).not.toBe("b");
    const after = reduce(looked, event("turn_start", 2, { ...begin, agent: "b", context: "fresh" }));
    expect([after.stale, after.session!.agent]).toEqual([false, "b"]);
  });
});
