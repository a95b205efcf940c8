// The router: each view has a path, read from and written to the browser's history. Above: the app and every link.
// Below: the History API. No path collides with one of the server's API.

import { useSyncExternalStore } from "react";

export type Route =
  | { view: "home" }
  | { view: "nowhere" }
  | { view: "new"; project?: string; agent?: string }
  | { view: "inbox" }
  | { view: "search"; q: string }
  | { view: "usage" }
  | { view: "jobs" }
  | { view: "newjob" }
  | { view: "job"; job: string }
  | { view: "editjob"; job: string }
  | { view: "nodes" }
  | { view: "agents" }
  | { view: "projects" }
  | { view: "settings" }
  | { view: "session"; id: string; place: Place | null; changes: ChangesPlace | null }
  | { view: "inspector"; id: string };

/** A place in a session: a turn, and the search terms or the tool to find in it. Each navigation creates a new object. */
export interface Place {
  turn: number;
  q: string;
  tool?: string;
}

/** A place in the changes of a turn, or of the whole session (null). Each navigation creates a new object. */
export interface ChangesPlace {
  turn: number | null;
  /** As a tool named it, or from the top of the repository. */
  file: string | null;
  /** The tool whose change is wanted. */
  edit: string | null;
}

export function routeOf(path: string, search: string): Route {
  const given = new URLSearchParams(search);
  const [first, second, third, fourth] = path.split("/").filter(Boolean).map(decode);
  if (first === "s" && second) return third === "events" ? { view: "inspector", id: second } : inSession(second, third, fourth, given);
  if (first === "new") return { view: "new", project: given.get("project") ?? undefined, agent: given.get("agent") ?? undefined };
  if (first === "inbox") return { view: "inbox" };
  if (first === "search") return { view: "search", q: given.get("q") ?? "" };
  if (first === "usage") return { view: "usage" };
  if (first === "jobs") return !second ? { view: "jobs" } : second === "new" && !third ? { view: "newjob" } : third === "edit" ? { view: "editjob", job: second } : { view: "job", job: second };
  if (first === "nodes" && !second) return { view: "nodes" };
  if (first === "settings") return { view: second === "agents" ? "agents" : second === "projects" ? "projects" : "settings" };
  return { view: first ? "nowhere" : "home" };
}

function inSession(id: string, part: string | undefined, number: string | undefined, given: URLSearchParams): Route {
  const turnOf = (text: string | null | undefined) => (/^[1-9]\d{0,8}$/.test(text ?? "") ? Number(text) : null);
  const changes = part === "changes" ? { turn: turnOf(number), file: given.get("file"), edit: given.get("edit") } : null;
  const turn = part === "turn" ? turnOf(number) : changes ? turnOf(given.get("at")) : null;
  return { view: "session", id, changes, place: turn === null ? null : { turn, q: given.get("q") ?? "", tool: given.get("tool") ?? undefined } };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const NAMES: Partial<Record<Route["view"], string>> = { new: "New session", inbox: "Inbox", search: "Search", usage: "Usage", jobs: "Jobs", newjob: "New job", job: "Job", editjob: "Edit job", nodes: "Nodes", agents: "Agents", projects: "Projects", settings: "Settings", inspector: "Events", nowhere: "Not found" };

/** The tab title for views other than a session. */
export const nameOf = (route: Route) => (NAMES[route.view] ? `${NAMES[route.view]} · Perdure` : "Perdure");

export const pathOf = (id: string) => `/s/${encodeURIComponent(id)}`;
export const pathOfTurn = (id: string, turn: number, q = "") => `${pathOf(id)}/turn/${turn}${q && "?q=" + encodeURIComponent(q)}`;
/** A tool in the conversation. */
export const pathOfTool = (id: string, turn: number, tool: string) => `${pathOf(id)}/turn/${turn}?tool=${encodeURIComponent(tool)}`;
/** The changes of a turn, or of the whole session (null), or in them those of a file, made by the tool `edit`. `tool`:
 * show this tool in the conversation beside them. */
export function pathOfChanges(id: string, turn: number | null = null, file: string | null = null, tool: { turn: number; tool_id: string } | null = null, edit: string | null = null): string {
  const given = new URLSearchParams({ ...(file === null ? {} : { file }), ...(edit === null ? {} : { edit }), ...(tool ? { at: String(tool.turn), tool: tool.tool_id } : {}) });
  return `${pathOf(id)}/changes${turn === null ? "" : `/${turn}`}${given.size ? `?${given.toString()}` : ""}`;
}
/** No job has the id "new": that path is the form. */
export const pathOfJob = (id: string) => `/jobs/${encodeURIComponent(id)}`;

const listeners = new Set<() => void>();
let route = routeOf(location.pathname, location.search);

function look(): void {
  route = routeOf(location.pathname, location.search);
  for (const listener of listeners) listener();
}

addEventListener("popstate", look);

let browsing = false;
/** Whether the last navigation stepped through the session list. If so, don't focus the composer. */
export const isBrowsing = () => browsing;

export function go(path: string, replace = false, browses = false): void {
  browsing = browses;
  if (path !== location.pathname + location.search) history[replace ? "replaceState" : "pushState"](null, "", path);
  look();
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export const useRoute = () => useSyncExternalStore(subscribe, () => route);
export const routeNow = () => route;
