// What was said may change where nobody looks: another tab edits, takes back, or a backup is put back.

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
  it("has older turns fetched again if what was said was changed meanwhile", () => {
    const before = upTo(edit.seq - 1);
    expect(missing(before)).toEqual([]);
    const now = reduce(before, after(edit.seq));
    expect(missing(now)).toEqual([1, 2]);
    expect(now.turns[0]!.message!.text).toBe("hello");
  });

  it("keeps older turns if nothing was changed", () => {
    const before = upTo(after(edit.seq).seq);
    const now = reduce(before, after(edit.seq));
    expect(missing(now)).toEqual([]);
    expect(now.turns[0]!.message!.text).toBe("hello there");
  });

  it("leaves nothing of a history that is longer than the log", () => {
    const now = reduce(upTo(events.length), moments[2]!);
    expect(now.turns.map((turn) => turn.turn)).toEqual([1]);
    expect(now.seq).toBe(moments[2]!.seq);
    expect(now.turns[0]!.rewound).toBe(false);
  });

  it("leaves nothing of a turn that has the number of another one", () => {
    const last = after(edit.seq);
    const other = { ...last, session: { ...last.session, turns: last.session.turns.map((turn: object) => ({ ...turn, message_id: "another" })) } };
    const now = reduce(upTo(last.seq), other);
    expect(missing(now)).toEqual([1, 2]);
    expect(now.turns.map((turn) => turn.turn)).toEqual([3]);
  });
});

describe("a change of what was said", () => {
  it("makes up no turn that is not here", () => {
    const opened = reduce(empty("s"), moments.find((moment) => moment.seq === edit.seq - 1)!);
    expect(missing(opened)).toEqual([1, 2]);
    const now = reduce(opened, edit);
    expect(missing(now)).toEqual([1, 2]);
    expect(now.turns.map((turn) => turn.turn)).toEqual([3]);
  });

  it("counts", () => {
    expect(upTo(edit.seq - 1).session!.revision).toBe(0);
    expect(upTo(edit.seq).session!.revision).toBe(1);
    expect(upTo(rewind.seq).session!.revision).toBe(2);
  });
});

describe("an event of no turn", () => {
  it("is put into no turn", () => {
    const seq = events.find((event) => event.type === "error" && event.turn === null)!.seq;
    const [before, now] = [upTo(seq - 1), upTo(seq)];
    expect(now.turns).toEqual(before.turns);
    expect(now.session!.error).toBe("The agent is gone.");
  });
});

describe("another agent", () => {
  it("that was here before the page looked has choices that must be asked for", () => {
    const second = moments.find((moment) => moment.session.agent === "two" && moment.session.state === "idle")!;
    const back = events.find((event) => event.type === "turn_start" && event.turn === 3)!;
    const now = reduceAll(reduce(empty("s"), second), events.filter((event) => event.seq > second.seq && event.seq <= back.seq));
    expect(now.stale).toBe(true);
  });
});

describe("the quiet clock", () => {
  it("goes on where it was when the page is loaded again", () => {
    const snapshot = { ...moments[3]!, at: "2026-01-01T01:00:00.000Z" };
    expect(reduce(empty("s"), snapshot).lastEventAt).toBe(events[snapshot.seq - 1]!.at);
  });
});
