// Sessions grouped by urgency, and as a tree of parents and children. Above: the sidebar. Below: attention.

import type { Session } from "../wire/types";
import { attention, type Attention } from "./attention";

const DAY_MS = 86_400_000;

interface Group {
  name: string;
  sessions: Session[];
}

export interface Tree {
  /** Sessions without a listed parent, ordered by the latest activity in their tree. */
  roots: Session[];
  children: Map<string, Session[]>;
}

/** Groups, most urgent first. A tree goes into the group of its most urgent session. */
export function grouped({ roots, children }: Tree, now: number): Group[] {
  const groups: Group[] = [
    { name: "Waiting for you", sessions: [] },
    { name: "Working", sessions: [] },
    { name: "Waiting to start", sessions: [] },
    { name: "Today", sessions: [] },
    { name: "Last seven days", sessions: [] },
    { name: "Older", sessions: [] },
  ];
  for (const root of roots) {
    const all = [root, ...below(root.id, children)];
    const marks = new Set(all.map(attention));
    const age = now - Math.max(...all.map((session) => Date.parse(session.last_active_at)));
    const index = marks.has("waiting") ? 0 : marks.has("working") ? 1 : marks.has("accepted") ? 2 : age < DAY_MS ? 3 : age < 7 * DAY_MS ? 4 : 5;
    groups[index]!.sessions.push(root);
  }
  return groups.filter((group) => group.sessions.length);
}

/** Child sessions go below their parent if the parent is in the list. */
export function tree(sessions: Session[]): Tree {
  const known = new Map(sessions.map((session) => [session.id, session]));
  const children = new Map<string, Session[]>();
  const roots = new Set<Session>();
  for (const session of sessions) {
    const line = ancestors(session, known);
    roots.add(line[line.length - 1] ?? session);
    if (line.length) children.set(line[0]!.id, [...(children.get(line[0]!.id) ?? []), session]);
  }
  return { roots: [...roots], children };
}

/** The parent, its parent, and so on. Imported sessions may form a cycle; sessions in a cycle have no ancestors. */
export function ancestors(session: Session, known: Map<string, Session>): Session[] {
  const line: Session[] = [];
  let above = session.parent ? known.get(session.parent) : undefined;
  while (above && above !== session && !line.includes(above)) {
    line.push(above);
    above = above.parent ? known.get(above.parent) : undefined;
  }
  if (above === session) return [];
  return above ? line.slice(0, line.indexOf(above) + 1) : line;
}

/** All descendants of a session. */
export function below(id: string, children: Map<string, Session[]>): Session[] {
  return (children.get(id) ?? []).flatMap((session) => [session, ...below(session.id, children)]);
}

/** How many need attention, most urgent state first. */
export function needs(sessions: Session[]): [Attention, number][] {
  const count = (mark: Attention) => sessions.filter((session) => attention(session) === mark).length;
  return (["waiting", "working", "accepted", "failed"] as const).map((mark): [Attention, number] => [mark, count(mark)]).filter(([, number]) => number > 0);
}
