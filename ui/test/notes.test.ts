// Notifications: not shown for what is visible in another tab or already over, and closed when no longer true.

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Notes, type Seen } from "../src/shell/notes";
import type { Event } from "../src/wire/types";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());
const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);

const event = (type: string, fields: object = {}): Event => ({ seq: 1, type, at: "", session_id: "s", turn: 1, ...fields });
const prompt = (id = "p") => event("pending_prompt", { prompt_id: id, title: "rm x" });
const answered = (id = "p") => event("prompt_resolved", { prompt_id: id });
const done = (turn = 1) => event("turn_end", { stop_reason: "end_turn", turn });

function tab(others: { seen(seen: Seen): void }[] = []) {
  const made = {
    shown: new Set<string>(),
    ever: [] as string[],
    looks: false,
    notes: null as unknown as Notes,
    seen: (seen: Seen) => made.notes.seen(seen),
  };
  made.notes = new Notes({
    looking: () => made.looks,
    tell: (seen) => others.forEach((other) => other.seen(seen)),
    show: async (_event, words) => {
      made.shown.add(words);
      made.ever.push(words);
      return { close: () => void made.shown.delete(words) };
    },
  });
  return made;
}

describe("a notification", () => {
  it("appears when a prompt waits, and closes when it is answered", async () => {
    const one = tab();
    one.notes.hear(prompt());
    await pass(600);
    expect([...one.shown]).toEqual(["Waiting for you: rm x"]);
    one.notes.hear(answered("another"));
    expect(one.shown.size).toBe(1);
    one.notes.hear(answered());
    expect(one.shown.size).toBe(0);
  });

  it("does not appear for what was answered, or followed by another turn, while disconnected", async () => {
    const one = tab();
    for (const missed of [prompt(), answered(), done(1), event("turn_start", { turn: 2 }), prompt("q"), answered("q"), done(2)]) one.notes.hear(missed);
    await pass(600);
    expect(one.ever).toEqual(["Turn finished."]);
  });

  it("does not appear for a message that waits to start", async () => {
    const one = tab();
    for (const heard of [done(1), event("waiting_to_begin", { turn: 2, code: "slots_full", message: "" }), event("turn_end", { turn: 2, stop_reason: "cancelled" })]) one.notes.hear(heard);
    await pass(600);
    expect(one.ever).toEqual([]);
  });

  it("does not appear if another tab shows the session", async () => {
    const hidden = tab();
    const looked = tab([hidden]);
    looked.looks = true;
    hidden.notes.hear(prompt());
    looked.notes.hear(prompt());
    looked.notes.hear(done());
    hidden.notes.hear(done());
    await pass(600);
    expect([...hidden.ever, ...looked.ever]).toEqual([]);
  });

  it("closes when the session is opened", async () => {
    const one = tab();
    one.notes.hear(done());
    await pass(600);
    expect(one.shown.size).toBe(1);
    one.notes.seen({ session: "other" });
    expect(one.shown.size).toBe(1);
    one.notes.seen({ session: "s" });
    expect(one.shown.size).toBe(0);
    one.notes.hear(done(2));
    await pass(600);
    expect(one.ever).toHaveLength(2);
  });
});
