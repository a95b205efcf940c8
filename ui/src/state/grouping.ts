// Sessions in the order in which a person cares, and as a tree of who started whom. Above: the sidebar. Below: attention.

import type { Session } from "../wire/types";
import { attention, type Attention } from "./attention";

const DAY_MS = 86_400_000;

interface Group {
  name: string;
  sessions: Session[];
}

export interface Tree {
  /** Those that nobody here started, in the order of the newest activity of what they are the root of. */
  roots: Session[];
  children: Map<string, Session[]>;
}

/** In the order in which a person cares. A session stands where the most urgent one of those below it would. */
export function grouped({ roots, children }: Tree, now: number): Group[] {
  const groups: Group[] = [
    { name: "Waiting for you", sessions: [] },
    { name: "Working", sessions: [] },
    { name: "Waiting to begin", sessions: [] },
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

/** Sessions that another one started stand below it, if that is here too. */
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

/** Who started a session, who started that one, and so on. Imported sessions may lead in a circle: those in it have none. */
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

/** All that a session started, and what those started. */
export function below(id: string, children: Map<string, Session[]>): Session[] {
  return (children.get(id) ?? []).flatMap((session) => [session, ...below(session.id, children)]);
}

/** How many of them need a look, most urgent first. */
export function needs(sessions: Session[]): [Attention, number][] {
  const count = (mark: Attention) => sessions.filter((session) => attention(session) === mark).length;
  return (["waiting", "working", "accepted", "failed"] as const).map((mark): [Attention, number] => [mark, count(mark)]).filter(([, number]) => number > 0);
}
