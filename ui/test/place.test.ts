// Going to a turn that is not loaded: the page loads it, or reports that it does not exist.

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { TranscriptTurn } from "../src/wire/types";

const said: string[] = [];
vi.mock("../src/shell/toast", () => ({ say: (text: string) => void said.push(text) }));
import { bring } from "../src/views/place";
import { Problem, Unreachable } from "../src/wire/api";

beforeEach(() => {
  vi.useFakeTimers();
  said.length = 0;
});
afterEach(() => void vi.useRealTimers());

/** A store that knows turn 1, and a server that has these turns. */
function session(...turns: { turn: number; rewound?: boolean }[]) {
  const done: string[] = [];
  const store = {
    state: { visible: [1] },
    trouble: null as Error | null,
    loadFrom: async (turn: number) => void done.push(`load ${turn}`),
    loadRewound: async ([turn]: number[]) => {
      done.push(`ask ${turn}`);
      if (store.trouble) throw store.trouble;
      return turns.filter((one) => one.turn === turn) as unknown as TranscriptTurn[];
    },
  };
  return { store, done, show: (turn: number) => void done.push(`show ${turn}`) };
}

describe("a turn", () => {
  it("that is known is loaded, and a rewound one is shown", async () => {
    const { store, done, show } = session({ turn: 2, rewound: true });
    await bring(store, 1, show, () => true);
    await bring(store, 2, show, () => true);
    expect(done).toEqual(["load 1", "ask 2", "show 2"]);
    expect(said).toEqual([]);
  });

  it("newer than the known ones is waited for", async () => {
    const { store, done, show } = session({ turn: 2 });
    await bring(store, 2, show, () => true);
    expect(done).toEqual(["ask 2", "load 2"]);
    expect(said).toEqual([]);
  });

  it("that does not exist is reported as missing", async () => {
    const { store, show } = session();
    await bring(store, 2, show, () => true);
    expect(said).toEqual(["This session has no turn 2."]);
  });

  it("is requested again until the server answers, or the user goes elsewhere", async () => {
    const { store, done, show } = session({ turn: 2, rewound: true });
    store.trouble = new Unreachable();
    let here = true;
    const brought = bring(store, 2, show, () => here);
    await vi.advanceTimersByTimeAsync(1_500);
    store.trouble = null;
    await vi.advanceTimersByTimeAsync(5_000);
    await brought;
    expect(done).toEqual(["ask 2", "ask 2", "ask 2", "show 2"]);
    expect(said).toEqual(["Can't reach the server."]);
    store.trouble = new Unreachable();
    done.length = 0;
    const left = bring(store, 2, show, () => here);
    await vi.advanceTimersByTimeAsync(0);
    here = false;
    await vi.advanceTimersByTimeAsync(60_000);
    await left;
    expect(done).toEqual(["ask 2"]);
  });

  it("of a session that is gone is requested once", async () => {
    const { store, done, show } = session();
    store.trouble = new Problem("No such session.", 404, "not_found");
    await bring(store, 2, show, () => true);
    expect([done, said]).toEqual([["ask 2"], ["No such session."]]);
  });
});
