// The list of sessions: those that wait for the user come first, and child sessions go below their parent.

import { expect, it } from "vitest";
import { ancestors, below, grouped, needs, tree } from "../src/state/grouping";
import type { Session } from "../src/wire/types";

const NOW = Date.parse("2026-06-15T12:00:00Z");
const session = (id: string, fields: Partial<Session> = {}): Session => ({ id, state: "idle", status: "running", pending_prompts: 0, error: null, parent: null, last_active_at: "2026-06-15T11:00:00Z", ...fields }) as Session;

it("groups by urgency", () => {
  const all = [session("old", { last_active_at: "2026-01-01T00:00:00Z" }), session("today"), session("next", { state: "accepted", waits_for: { code: "slots_full", message: "" } }), session("busy", { state: "processing" }), session("asks", { state: "processing", pending_prompts: 1 })];
  expect(grouped(tree(all), NOW).map((group) => [group.name, group.sessions.map((one) => one.id)])).toEqual([
    ["Waiting for you", ["asks"]],
    ["Working", ["busy"]],
    ["Waiting to start", ["next"]],
    ["Today", ["today"]],
    ["Older", ["old"]],
  ]);
});

it("puts child sessions below their parent, if it is listed", () => {
  const { roots, children } = tree([session("a"), session("b", { parent: "a" }), session("c", { parent: "b" }), session("d", { parent: "gone" })]);
  expect(roots.map((one) => one.id)).toEqual(["a", "d"]);
  expect(children.get("a")!.map((one) => one.id)).toEqual(["b"]);
  expect(children.get("b")!.map((one) => one.id)).toEqual(["c"]);
});

it("sorts a tree by its most urgent session, then by its latest activity", () => {
  const old = "2026-01-01T00:00:00Z";
  const all = [session("asks", { parent: "mid", pending_prompts: 1, state: "processing" }), session("new", { parent: "b" }), session("c"), session("mid", { parent: "a", last_active_at: old }), session("a", { last_active_at: old }), session("b", { last_active_at: old })];
  expect(grouped(tree(all), NOW).map((group) => [group.name, group.sessions.map((one) => one.id)])).toEqual([
    ["Waiting for you", ["a"]],
    ["Today", ["b", "c"]],
  ]);
});

it("counts the descendants that need attention, at any depth", () => {
  const { children } = tree([session("a"), session("b", { parent: "a", state: "processing" }), session("c", { parent: "b", pending_prompts: 1, state: "processing" }), session("d", { parent: "b", error: "It failed." })]);
  expect(below("a", children).map((one) => one.id)).toEqual(["b", "c", "d"]);
  expect(needs(below("a", children))).toEqual([["waiting", 1], ["working", 1], ["failed", 1]]);
});

it("loses no session to a cycle of parents", () => {
  const all = [session("a", { parent: "b" }), session("b", { parent: "a" }), session("c", { parent: "a" }), session("own", { parent: "own" })];
  const made = tree(all);
  expect(made.roots.map((one) => one.id)).toEqual(["a", "b", "own"]);
  expect(below("a", made.children).map((one) => one.id)).toEqual(["c"]);
  expect(ancestors(all[2]!, new Map(all.map((one) => [one.id, one]))).map((one) => one.id)).toEqual(["a"]);
});
