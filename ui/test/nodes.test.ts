// Texts about nodes: their state, their load, and what a confirmation dialog says.

import { describe, expect, it } from "vitest";
import { drainWords, isGone, lastSeen, loadWords, moveCommand, removeWords, stateOf, waitingWords } from "../src/text/nodes";
import { atNode, type Node } from "../src/wire/nodes";

const NODE: Node = { id: "n1", name: "north", url: "http://10.0.0.1:7433", version: "0.1.0", state: "alive", draining: false, this: false, started_at: null, last_seen_s: 2.1, sessions: 3, running: 1, slots: 4, labels: [], workdirs: "local" };
const SILENT: Node = { ...NODE, state: "silent", last_seen_s: 42.4 };

describe("a node", () => {
  it("has a label and a colour for each state", () => {
    expect((["alive", "draining", "silent", "dead"] as const).map((state) => stateOf({ ...NODE, state }).word)).toEqual(["Alive", "Draining", "Silent", "Dead"]);
    expect(new Set((["alive", "draining", "silent", "dead"] as const).map((state) => stateOf({ ...NODE, state }).tone)).size).toBe(4);
  });

  it("shows when it was last seen only if it is gone", () => {
    expect([NODE, { ...NODE, state: "draining" as const }].map(lastSeen)).toEqual(["", ""]);
    expect(lastSeen(SILENT)).toBe("last seen 42 s ago");
    expect(lastSeen({ ...SILENT, last_seen_s: 7300 })).toMatch(/^last seen 2 h.* ago$/);
    expect(lastSeen({ ...SILENT, state: "dead", last_seen_s: null })).toBe("");
  });

  it("shows its running turns and its slots", () => {
    expect(loadWords(NODE)).toBe("3 sessions · 1 of 4 slots in use");
    expect(loadWords({ ...NODE, sessions: 1, running: 0, slots: 0 })).toBe("1 session · 0 turns running");
    expect(loadWords({ ...NODE, slots: null })).toBe("3 sessions · 1 turn running");
    expect(loadWords(SILENT)).toBe("3 sessions");
  });

  it("is gone if it is silent or dead", () => {
    expect((["alive", "draining", "silent", "dead"] as const).map((state) => isGone({ ...NODE, state }))).toEqual([false, false, true, true]);
  });
});

describe("a node that is gone", () => {
  it("shows the sessions that wait for it", () => {
    expect(waitingWords(SILENT)).toMatch(/^3 sessions wait for this node, which has their working directories\./);
    expect(waitingWords({ ...SILENT, sessions: 1 })).toMatch(/^1 session waits .* move the session:$/);
    expect([NODE, { ...SILENT, sessions: 0 }, { ...SILENT, workdirs: "shared" as const }].map(waitingWords)).toEqual(["", "", ""]);
  });

  it("is named in the command as one shell word", () => {
    expect(moveCommand(SILENT)).toBe("perdure nodes move --from north --to NODE");
    expect(moveCommand({ ...SILENT, name: "the north; rm" })).toBe("perdure nodes move --from n1 --to NODE");
  });
});

describe("a confirmation", () => {
  it("explains what happens to turns and sessions", () => {
    expect(drainWords(NODE)).toContain("1 running turn finishes first.");
    expect(drainWords({ ...NODE, running: 2 })).toContain("2 running turns finish first.");
    expect(drainWords({ ...NODE, running: 0 })).toContain("No turn is running now.");
    expect(removeWords(SILENT)).toContain("Its 3 sessions have no owner until another node takes them over. Working directories on that machine are not moved.");
    expect(removeWords({ ...SILENT, sessions: 0 })).toContain("It has no sessions.");
    expect(removeWords({ ...SILENT, workdirs: "shared" })).not.toContain("not moved");
  });
});

describe("the address of a node", () => {
  it("is safe for any id", () => {
    expect(atNode("a/b", "/drain")).toBe("/api/nodes/a%2Fb/drain");
  });
});
