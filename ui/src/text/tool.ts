// Texts about tools: the action, its subject, outcome and duration. Above: the views that show tools. Below: nothing.

import type { Json, ToolPart } from "../wire/types";
import { shortPath } from "./words";

const VERBS: Record<string, [string, string]> = {
  execute: ["Ran", "Running"],
  edit: ["Edited", "Editing"],
  read: ["Read", "Reading"],
  search: ["Searched", "Searching"],
  delete: ["Deleted", "Deleting"],
  move: ["Moved", "Moving"],
  fetch: ["Fetched", "Fetching"],
};

/** For tools that did not run, or did not finish. */
const OUTCOMES = { denied: "Denied", interrupted: "Interrupted" } as const;

export const field = (input: Json, ...names: string[]): string => {
  if (!input || typeof input !== "object" || Array.isArray(input)) return "";
  for (const name of names) if (typeof input[name] === "string" && input[name]) return input[name] as string;
  return "";
};

/** Claude Code's names for tools that start a sub-agent. */
export const DELEGATING = ["Agent", "Task"];
const EVERYBODY = "general-purpose";

/** The action and its subject. `code`: show the subject in a monospace font. */
export function describe(tool: ToolPart, workdir: string): { verb: string; subject: string; code: boolean } {
  const done = tool.status === "completed" || tool.status === "failed";
  if (DELEGATING.includes(tool.name)) {
    const to = field(tool.input, "subagent_type");
    const verb = tool.outcome ? OUTCOMES[tool.outcome] : (done ? "Delegated" : "Delegating") + (to && to !== EVERYBODY ? ` to ${to}` : "");
    return { verb, subject: field(tool.input, "description") || tool.title, code: false };
  }
  const path = tool.diff?.[0]?.path ?? field(tool.input, "file_path", "path", "notebook_path");
  const subject = tool.kind === "execute" ? field(tool.input, "command") : tool.kind === "search" ? field(tool.input, "pattern", "query") : tool.kind === "fetch" ? field(tool.input, "url") : path ? shortPath(path, workdir) : "";
  const verbs = VERBS[tool.kind];
  if (tool.outcome) return { verb: OUTCOMES[tool.outcome], subject: verbs && subject ? subject.split("\n")[0]! : tool.title || tool.name, code: !!(verbs && subject) };
  if (verbs && subject) return { verb: verbs[done ? 0 : 1], subject: subject.split("\n")[0]!, code: true };
  return { verb: tool.title || tool.name, subject: "", code: false };
}

export const isRunning = (tool: ToolPart) => tool.status === "pending" || tool.status === "in_progress";
export const isFailed = (tool: ToolPart) => !tool.outcome && (tool.status === "failed" || !!tool.is_error);

/** How long it ran, without the time it waited for a person. Null if it was denied, and so never ran. */
export function took(tool: ToolPart): number | null {
  if (!tool.started_at || !tool.ended_at || tool.outcome === "denied") return null;
  return Math.max(0, Date.parse(tool.ended_at) - Date.parse(tool.started_at) - (tool.waited_ms ?? 0));
}

/** The changes a tool made; empty if it did not succeed, or not yet: an edit that was denied changed nothing. */
export const changes = (tool: ToolPart) => (tool.status === "completed" && !tool.outcome && !tool.is_error ? (tool.diff ?? []) : []);
