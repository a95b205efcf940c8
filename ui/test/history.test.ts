// The history may change elsewhere: another tab edits or rewinds, or a backup is restored.

import { describe, expect, it } from "vitest";
import { empty, missing, reduce, reduceAll, type State } from "../src/state/session";
import type { Event } from "../src/wire/types";
import golden from "./golden.json";

const events = golden.events as unknown as Event[];
const moments = golden.moments.map((moment) => moment.snapshot) as unknown as Event[];
const upTo = (seq: number): State => reduceAll(reduce(empty("s"), moments[0]!), events.filter((event) => event.seq > moments[0]!.seq && event.seq <= seq));
const edit = events.find((event) => event.type === "history_changed" && event.change === "edit")!;
const rewind = events.find((event) => event.type === "history_changed" && event.change === "rewind")!;
const after = (seq: number) => moments.find((moment) => moment.seq >= seq)!;

describe("a snapshot", () => {
  it("makes the page fetch older turns again if the history changed meanwhile", () => {
    const before = upTo(edit.seq - 1);
    expect(missing(before)).toEqual([]);
    const now = reduce(before, after(edit.seq));
    expect(missing(now)).toEqual([1, 2]);
    expect(now.turns[0]!.message!.text).toBe("hello");
  });

  it("keeps older turns if nothing changed", () => {
    const before = upTo(after(edit.seq).seq);
    const now = reduce(before, after(edit.seq));
    expect(missing(now)).toEqual([]);
    expect(now.turns[0]!.message!.text).toBe("hello there");
  });

  it("discards a history that is longer than the log", () => {
    const now = reduce(upTo(events.length), moments[2]!);
    expect(now.turns.map((turn) => turn.turn)).toEqual([1]);
    expect(now.seq).toBe(moments[2]!.seq);
    expect(now.turns[0]!.rewound).toBe(false);
  });

  it("discards a turn whose number now belongs to another turn", () => {
    const last = after(edit.seq);
    const other = { ...last, session: { ...last.session, turns: last.session.turns.map((turn: object) => ({ ...turn, message_id: "another" })) } };
    const now = reduce(upTo(last.seq), other);
    expect(missing(now)).toEqual([1, 2]);
    expect(now.turns.map((turn) => turn.turn)).toEqual([3]);
  });
});

describe("a history change", () => {
  it("creates no turn that is not loaded", () => {
    const opened = reduce(empty("s"), moments.find((moment) => moment.seq === edit.seq - 1)!);
    expect(missing(opened)).toEqual([1, 2]);
    const now = reduce(opened, edit);
    expect(missing(now)).toEqual([1, 2]);
    expect(now.turns.map((turn) => turn.turn)).toEqual([3]);
  });

  it("increments the revision", () => {
    expect(upTo(edit.seq - 1).session!.revision).toBe(0);
    expect(upTo(edit.seq).session!.revision).toBe(1);
    expect(upTo(rewind.seq).session!.revision).toBe(2);
  });
});

describe("an event without a turn", () => {
  it("is added to no turn", () => {
    const seq = events.find((event) => event.type === "error" && event.turn === null)!.seq;
    const [before, now] = [upTo(seq - 1), upTo(seq)];
    expect(now.turns).toEqual(before.turns);
    expect(now.session!.error).toBe("The agent is gone.");
  });
});

describe("another agent", () => {
  it("that ran before the page loaded has options that must be fetched", () => {
    const second = moments.find((moment) => moment.session.agent === "two" && moment.session.state === "idle")!;
    const back = events.find((event) => event.type === "turn_start" && event.turn === 3)!;
    const now = reduceAll(reduce(empty("s"), second), events.filter((event) => event.seq > second.seq && event.seq <= back.seq));
    expect(now.stale).toBe(true);
  });
});

describe("the inactivity clock", () => {
  it("continues after a reload", () => {
    const snapshot = { ...moments[3]!, at: "2026-01-01T01:00:00.000Z" };
    expect(reduce(empty("s"), snapshot).lastEventAt).toBe(events[snapshot.seq - 1]!.at);
  });
});
