// The list of sessions: what waits comes first, and what a session started stands below it.

import { expect, it } from "vitest";
import { ancestors, below, grouped, needs, tree } from "../src/state/grouping";
import type { Session } from "../src/wire/types";

const NOW = Date.parse("2026-06-15T12:00:00Z");
const session = (id: string, fields: Partial<Session> = {}): Session => ({ id, state: "idle", status: "running", pending_prompts: 0, error: null, parent: null, last_active_at: "2026-06-15T11:00:00Z", ...fields }) as Session;

it("groups by what a person cares about, in this order", () => {
  const all = [session("old", { last_active_at: "2026-01-01T00:00:00Z" }), session("today"), session("next", { state: "accepted", waits_for: { code: "slots_full", message: "" } }), session("busy", { state: "processing" }), session("asks", { state: "processing", pending_prompts: 1 })];
  expect(grouped(tree(all), NOW).map((group) => [group.name, group.sessions.map((one) => one.id)])).toEqual([
    ["Waiting for you", ["asks"]],
    ["Working", ["busy"]],
    ["Waiting to begin", ["next"]],
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

it("puts a session where the most urgent one below it would stand, and by the newest", () => {
  const old = "2026-01-01T00:00:00Z";
  const all = [session("asks", { parent: "mid", pending_prompts: 1, state: "processing" }), session("new", { parent: "b" }), session("c"), session("mid", { parent: "a", last_active_at: old }), session("a", { last_active_at: old }), session("b", { last_active_at: old })];
  expect(grouped(tree(all), NOW).map((group) => [group.name, group.sessions.map((one) => one.id)])).toEqual([
    ["Waiting for you", ["a"]],
    ["Today", ["b", "c"]],
  ]);
});

it("counts what needs a look below a session, at any depth", () => {
  const { children } = tree([session("a"), session("b", { parent: "a", state: "processing" }), session("c", { parent: "b", pending_prompts: 1, state: "processing" }), session("d", { parent: "b", error: "It failed." })]);
  expect(below("a", children).map((one) => one.id)).toEqual(["b", "c", "d"]);
  expect(needs(below("a", children))).toEqual([["waiting", 1], ["working", 1], ["failed", 1]]);
});

it("loses no session to a circle of parents", () => {
  const all = [session("a", { parent: "b" }), session("b", { parent: "a" }), session("c", { parent: "a" }), session("own", { parent: "own" })];
  const made = tree(all);
  expect(made.roots.map((one) => one.id)).toEqual(["a", "b", "own"]);
  expect(below("a", made.children).map((one) => one.id)).toEqual(["c"]);
  expect(ancestors(all[2]!, new Map(all.map((one) => [one.id, one]))).map((one) => one.id)).toEqual(["a"]);
});
