// Sessions in the order in which a person cares, and as a tree of who started whom. Above: the sidebar. Below: nothing.

import type { Session } from "../wire/types";
import { attention } from "./attention";

const DAY_MS = 86_400_000;

interface Group {
  name: string;
  sessions: Session[];
}

/** In the order in which a person cares. */
export function grouped(sessions: Session[], now: number): Group[] {
  const groups: Group[] = [
    { name: "Waiting for you", sessions: [] },
    { name: "Working", sessions: [] },
    { name: "Today", sessions: [] },
    { name: "Last seven days", sessions: [] },
    { name: "Older", sessions: [] },
  ];
  for (const session of sessions) {
    const mark = attention(session);
    const age = now - Date.parse(session.last_active_at);
    const index = mark === "waiting" ? 0 : mark === "working" ? 1 : age < DAY_MS ? 2 : age < 7 * DAY_MS ? 3 : 4;
    groups[index]!.sessions.push(session);
  }
  return groups.filter((group) => group.sessions.length);
}

/** Sessions that another one started stand below it, if that is here too. */
export function tree(sessions: Session[]): { roots: Session[]; children: Map<string, Session[]> } {
  const known = new Set(sessions.map((session) => session.id));
  const children = new Map<string, Session[]>();
  const roots: Session[] = [];
  for (const session of sessions) {
    if (!session.parent || !known.has(session.parent)) roots.push(session);
    else children.set(session.parent, [...(children.get(session.parent) ?? []), session]);
  }
  return { roots, children };
}
