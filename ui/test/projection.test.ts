// The page decides for every type of event whether it changes what is shown. The log has every type
// (tests/core/page_log.py), so a new type fails here until someone has decided. tests/test_projections.py does the same
// for the server's own projections.

import { describe, expect, it } from "vitest";
import { NOT_SHOWN } from "../src/state/folding";
import { empty, reduce, type State } from "../src/state/session";
import type { Event } from "../src/wire/types";
import golden from "./golden.json";

const events = golden.events as unknown as Event[];
const types = [...new Set(events.map((event) => event.type))];

/** Everything but the position in the log, which every event changes. */
const shown = ({ seq: _seq, lastEventAt: _at, ...state }: State) => state;

/** Whether each event of the log changes what is shown, by its type. */
function effects(): Map<string, boolean[]> {
  const found = new Map<string, boolean[]>(types.map((type) => [type, []]));
  let state = empty("s");
  for (const event of events) {
    const after = reduce(state, event);
    found.get(event.type)!.push(JSON.stringify(shown(after)) !== JSON.stringify(shown(state)));
    state = after;
  }
  return found;
}

describe("every type of event", () => {
  const found = effects();

  it.each(types.filter((type) => !NOT_SHOWN.has(type)))("%s changes the page: otherwise add a case to fold in state/folding.ts, or the type to NOT_SHOWN", (type) => {
    expect(found.get(type)).toContain(true);
  });

  it.each([...NOT_SHOWN])("%s is listed in NOT_SHOWN, exists, and changes nothing", (type) => {
    expect(types).toContain(type);
    expect(found.get(type)).not.toContain(true);
  });
});
