// The page and the server fold events in the same way: the state after each event is what a reload shows. The server's
// code creates the log and the expected states (tests/core/page_log.py).

import { describe, expect, it } from "vitest";
import { empty, reduce, reduceAll, withHistory, type State } from "../src/state/session";
import type { Event, TranscriptTurn } from "../src/wire/types";
import golden from "./golden.json";

const events = golden.events as unknown as Event[];
const moments = golden.moments as unknown as { snapshot: Event; transcript: TranscriptTurn[] }[];
const opened = (moment: (typeof moments)[number]) => withHistory(reduce(empty("s"), moment.snapshot), moment.transcript, moment.snapshot.seq);

/** What the user sees. Only the server knows the event count and the duration of an ended session. */
function shown(state: State) {
  const { turns: _turns, event_count: _count, duration_ms: _duration, ...session } = state.session as unknown as Record<string, unknown>;
  const turns = state.turns.filter((turn) => state.visible.includes(turn.turn)).map(({ turn, info, message, parts }) => ({ turn, info, message, parts }));
  return { session, turns, visible: state.visible, prompts: state.prompts, queue: state.queue, commands: state.commands };
}

describe("the page's fold and the server's", () => {
  const until = (from: number, to: number) => events.filter((event) => event.seq > from && event.seq <= to);

  it.each(moments.slice(1).map((moment) => [moment.snapshot.seq, moment] as const))("are the same at event %i", (seq, moment) => {
    const live = reduceAll(opened(moments[0]!), until(moments[0]!.snapshot.seq, seq));
    expect(live.stale).toBe(false);
    expect(shown(live)).toEqual(shown(opened(moment)));
  });

  it.each(moments.slice(1).map((moment, index) => [moment.snapshot.seq, moments[index]!, moment] as const))("are the same from one snapshot to the next, at event %i", (seq, before, moment) => {
    const live = reduceAll(opened(before), until(before.snapshot.seq, seq));
    // The page may know that it must fetch something, and then does.
    if (!live.stale) expect(shown(live)).toEqual(shown(opened(moment)));
  });
});
