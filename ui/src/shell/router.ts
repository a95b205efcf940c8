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
  | { view: "session"; id: string; place: Place | null }
  | { view: "inspector"; id: string };

/** A place in a session: a turn and the search terms to find in it. Each navigation creates a new object. */
export interface Place {
  turn: number;
  q: string;
}

export function routeOf(path: string, search: string): Route {
  const given = new URLSearchParams(search);
  const [first, second, third, fourth] = path.split("/").filter(Boolean).map(decode);
  if (first === "s" && second) return third === "events" ? { view: "inspector", id: second } : { view: "session", id: second, place: third === "turn" && /^[1-9]\d{0,8}$/.test(fourth ?? "") ? { turn: Number(fourth), q: given.get("q") ?? "" } : null };
  if (first === "new") return { view: "new", project: given.get("project") ?? undefined, agent: given.get("agent") ?? undefined };
  if (first === "inbox") return { view: "inbox" };
  if (first === "search") return { view: "search", q: given.get("q") ?? "" };
  if (first === "usage") return { view: "usage" };
  if (first === "jobs") return !second ? { view: "jobs" } : second === "new" && !third ? { view: "newjob" } : third === "edit" ? { view: "editjob", job: second } : { view: "job", job: second };
  if (first === "nodes" && !second) return { view: "nodes" };
  if (first === "settings") return { view: second === "agents" ? "agents" : second === "projects" ? "projects" : "settings" };
  return { view: first ? "nowhere" : "home" };
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
