// The list of sessions: what waits comes first, and what a session started stands below it.

import { expect, it } from "vitest";
import { grouped, tree } from "../src/state/grouping";
import type { Session } from "../src/wire/types";

const NOW = Date.parse("2026-06-15T12:00:00Z");
const session = (id: string, fields: Partial<Session> = {}): Session => ({ id, state: "idle", status: "running", pending_prompts: 0, error: null, parent: null, last_active_at: "2026-06-15T11:00:00Z", ...fields }) as Session;

it("groups by what a person cares about, in this order", () => {
  const all = [session("old", { last_active_at: "2026-01-01T00:00:00Z" }), session("today"), session("busy", { state: "processing" }), session("asks", { state: "processing", pending_prompts: 1 })];
  expect(grouped(all, NOW).map((group) => [group.name, group.sessions.map((one) => one.id)])).toEqual([
    ["Waiting for you", ["asks"]],
    ["Working", ["busy"]],
    ["Today", ["today"]],
    ["Older", ["old"]],
  ]);
});

it("puts started sessions below the one that started them, if that is here", () => {
  const { roots, children } = tree([session("a"), session("b", { parent: "a" }), session("c", { parent: "b" }), session("d", { parent: "gone" })]);
  expect(roots.map((one) => one.id)).toEqual(["a", "d"]);
  expect(children.get("a")!.map((one) => one.id)).toEqual(["b"]);
  expect(children.get("b")!.map((one) => one.id)).toEqual(["c"]);
});
