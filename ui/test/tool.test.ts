// Texts for tools that did not run, and how long a tool ran.

import { expect, test } from "vitest";
import { changes, describe as describeTool, isFailed, took } from "../src/text/tool";
import type { ToolPart } from "../src/wire/types";

const EDIT: ToolPart = {
  type: "tool",
  tool_id: "t",
  name: "Edit",
  kind: "edit",
  title: "Edit a.py",
  status: "completed",
  input: { file_path: "/w/a.py" },
  parent_tool_id: null,
  started_at: "2026-01-01T00:00:00.000Z",
  ended_at: "2026-01-01T00:01:01.000Z",
  waited_ms: 60_000,
  diff: [{ path: "/w/a.py", old_text: "one", new_text: "two" }],
};

test("time spent waiting for a person does not count", () => {
  expect(took(EDIT)).toBe(1000);
  expect(took({ ...EDIT, waited_ms: 90_000 })).toBe(0);
});

test("a denied edit is shown as denied, with no changes and no failure", () => {
  const denied: ToolPart = { ...EDIT, status: "failed", is_error: true, outcome: "denied" };
  expect(describeTool(denied, "/w")).toEqual({ verb: "Denied", subject: "a.py", code: true });
  expect([isFailed(denied), changes(denied), took(denied)]).toEqual([false, [], null]);
  expect(describeTool({ ...denied, kind: "other", input: null, diff: undefined }, "/w").subject).toBe("Edit a.py");
});

test("a failed edit shows no changes either", () => {
  expect(changes(EDIT)).toHaveLength(1);
  expect(changes({ ...EDIT, status: "failed" })).toEqual([]);
  expect(isFailed({ ...EDIT, status: "failed" })).toBe(true);
  expect(changes({ ...EDIT, is_error: true })).toEqual([]);
});

test("an edit that waits for permission has changed nothing yet", () => {
  expect(changes({ ...EDIT, status: "pending" })).toEqual([]);
  expect(changes({ ...EDIT, status: "in_progress" })).toEqual([]);
});

test("a denied sub-agent is not shown as delegated", () => {
  const agent: ToolPart = { ...EDIT, name: "Agent", kind: "other", input: { description: "Review", subagent_type: "critic" }, status: "failed" };
  expect(describeTool({ ...agent, outcome: "denied" }, "/w")).toEqual({ verb: "Denied", subject: "Review", code: false });
  expect(describeTool(agent, "/w").verb).toBe("Delegated to critic");
});
