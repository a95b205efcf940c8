// The session list: waiting for you, working, waiting to start, then the rest, each with its child sessions below it.
// Above: the app. Below: the overview. It is navigation: each entry is a link.

import { useEffect, useLayoutEffect, useMemo, useState, type KeyboardEvent } from "react";
import { Button, IconButton, Link } from "../parts/button";
import { Ago } from "../parts/clock";
import { Dot } from "../parts/dot";
import { Icon, type IconName } from "../parts/icons";
import { Menu } from "../parts/menu";
import { ancestors, below, grouped, tree, type Tree } from "../state/grouping";
import { stuck, useJobs } from "../state/jobs";
import { useSeveralNodes } from "../state/nodes";
import { attention, titleOf, useOverview } from "../state/sessions";
import { placeOf, withoutMarks } from "../text/words";
import type { Session } from "../wire/types";
import { Branch, useFolds, type Folds } from "./branches";
import { register } from "./commands";
import { go, pathOf, useRoute } from "./router";

interface Filter {
  agent: string;
  project: string;
  label: string;
}
const NO_FILTER: Filter = { agent: "", project: "", label: "" };
const INDENTED_LEVELS = 4;

export function Sidebar({ onPalette }: { onPalette: () => void }) {
  const { sessions, loaded, more } = useOverview();
  const route = useRoute();
  const [filter, setFilter] = useState(NO_FILTER);
  const shown = useMemo(
    () => sessions.filter((session) => (!filter.agent || session.agent === filter.agent) && (!filter.project || session.project === filter.project) && (!filter.label || session.labels.includes(filter.label))),
    [sessions, filter],
  );
  const made = useMemo(() => tree(shown), [shown]);
  const current = "id" in route ? route.id : null;
  const folds = useFolds(shown, current);
  const waiting = sessions.filter((session) => session.pending_prompts > 0).length + stuck(useJobs().value.jobs).length;
  const several = useSeveralNodes();
  useLayoutEffect(() => (several ? register([{ id: "nodes", title: "Nodes", keys: "g n", group: "Page", run: () => go("/nodes") }]) : undefined), [several]);
  const filtered = Object.values(filter).some(Boolean);
  const known = useMemo(() => new Map(shown.map((session) => [session.id, session])), [shown]);
  const open = current === null ? undefined : known.get(current);
  const drawn = open !== undefined && !ancestors(open, known).some((session) => folds.folded.has(session.id));
  useEffect(() => {
    if (current && drawn) document.querySelector(`[data-session="${CSS.escape(current)}"]`)?.scrollIntoView({ block: "nearest" });
  }, [current, drawn]);
  return (
    <nav aria-label="Sessions" className="flex min-h-0 flex-1 flex-col">
      <div className="flex items-center gap-1 px-3 pt-3 pb-2">
        <Link to="/" className="flex min-h-(--target) flex-1 items-center px-1 text-base font-semibold">Perdure</Link>
        <IconButton icon="search" label="Search and commands (Ctrl+K)" onClick={onPalette} />
        <FilterMenu sessions={sessions} filter={filter} onChange={setFilter} on={filtered} />
        <Link to="/new" aria-label="New session" title="New session (c)" className="inline-flex size-(--target) items-center justify-center rounded-md text-quiet hover:bg-hover hover:text-text"><Icon name="plus" /></Link>
      </div>
      <div className="min-h-0 flex-1 overflow-y-auto px-2 pb-4">
        {grouped(made, Date.now()).map((group) => (
          <section key={group.name} aria-label={group.name} className="mb-3">
            <h2 className={`px-2 py-1 text-xs font-semibold ${group.name === "Waiting for you" ? "text-amber" : "text-quiet"}`}>
              {group.name} <span className="font-normal tabular-nums">{group.sessions.length}</span>
            </h2>
            <ul>{group.sessions.map((session) => <Entry key={session.id} session={session} tree={made} folds={folds} current={current} depth={0} />)}</ul>
          </section>
        ))}
        {loaded && !shown.length && (
          <div className="space-y-3 px-2 py-2 text-sm text-quiet">
            <p>{filtered ? "No sessions match the filter." : "No sessions yet. Send a message to start one."}</p>
            {filtered ? <Button onClick={() => setFilter(NO_FILTER)}>Show all sessions</Button> : <Button tone="primary" className="md:hidden" onClick={() => go("/new")}>Start a session</Button>}
          </div>
        )}
        {more && <Link to="/search" className="reach block px-2 text-xs text-quiet underline underline-offset-2">Search for older sessions</Link>}
      </div>
      <div className="grid grid-cols-2 gap-0.5 border-t border-line p-2 text-sm">
        <Place to="/inbox" icon="inbox" label="Inbox" count={waiting} current={route.view === "inbox"} wide={!several} />
        <Place to="/jobs" icon="clock" label="Jobs" current={["jobs", "newjob", "job", "editjob"].includes(route.view)} />
        {several && <Place to="/nodes" icon="nodes" label="Nodes" current={route.view === "nodes"} />}
        <Place to="/usage" icon="chart" label="Usage" current={route.view === "usage"} />
        <Place to="/settings/agents" icon="agent" label="Agents" current={route.view === "agents"} />
        <Place to="/settings/projects" icon="folder" label="Projects" current={route.view === "projects"} />
        <Place to="/search" icon="search" label="Search" current={route.view === "search"} />
        <Place to="/settings" icon="gear" label="Settings" current={route.view === "settings"} />
      </div>
    </nav>
  );
}

interface EntryProps {
  session: Session;
  tree: Tree;
  folds: Folds;
  current: string | null;
  depth: number;
}

function Entry({ session, tree, folds, current, depth }: EntryProps) {
  const mark = attention(session);
  const children = tree.children.get(session.id) ?? [];
  const away = folds.folded.has(session.id);
  const line = (mark === "failed" && session.error) || (mark === "waiting" && session.waiting_for) || (mark === "accepted" && session.waits_for?.message) || withoutMarks(session.last_line ?? "");
  // As in other trees: Left collapses, Right expands.
  const onKeyDown = (event: KeyboardEvent) => {
    if (children.length && (event.key === "ArrowLeft" || event.key === "ArrowRight")) folds.fold(session.id, event.key === "ArrowLeft");
  };
  return (
    <li>
      <Link to={pathOf(session.id)} aria-current={current === session.id ? "page" : undefined} data-session={session.id} onKeyDown={onKeyDown} className={`flex items-start gap-1.5 rounded-md py-1.5 pr-2 pl-2 hover:bg-hover ${current === session.id ? "bg-hover" : ""}`}>
        <span className="pt-0.5"><Dot state={mark} /></span>
        <span className="min-w-0 flex-1">
          <span className="flex items-baseline gap-2">
            <span className={`min-w-0 flex-1 truncate text-sm ${mark === "waiting" ? "font-semibold" : ""} ${session.state === "ended" ? "text-quiet" : ""}`}>{titleOf(session)}</span>
            <Ago at={session.last_active_at} className="text-xs text-quiet" />
          </span>
          <span className="block truncate text-xs text-quiet">{session.agent} · {placeOf(session)}</span>
          {line && <span className={`block truncate text-xs ${mark === "failed" ? "text-red" : "text-quiet"}`}>{line}</span>}
        </span>
      </Link>
      {children.length > 0 && <Branch title={titleOf(session)} sessions={below(session.id, tree.children)} away={away} onFold={() => folds.fold(session.id, !away)} />}
      {children.length > 0 && !away && (
        <ul aria-label={`Started by ${titleOf(session)}`} className={depth < INDENTED_LEVELS ? "ml-4 border-l border-line pl-1" : ""}>
          {children.map((one) => <Entry key={one.id} session={one} tree={tree} folds={folds} current={current} depth={depth + 1} />)}
        </ul>
      )}
    </li>
  );
}

function Place({ to, icon, label, count = 0, current, wide = false }: { to: string; icon: IconName; label: string; count?: number; current: boolean; wide?: boolean }) {
  return (
    <Link to={to} aria-current={current ? "page" : undefined} className={`flex min-h-(--target) items-center gap-2 rounded-md px-2 hover:bg-hover hover:text-text ${current ? "bg-hover text-text" : "text-quiet"} ${wide ? "col-span-2" : ""}`}>
      <Icon name={icon} size={14} />
      <span className="flex-1">{label}</span>
      {count > 0 && <span className="rounded-full bg-amber-soft px-1.5 text-xs font-semibold text-amber tabular-nums" aria-label={`${count} waiting`}>{count}</span>}
    </Link>
  );
}

function FilterMenu({ sessions, filter, onChange, on }: { sessions: Session[]; filter: Filter; onChange: (filter: Filter) => void; on: boolean }) {
  const values = (pick: (session: Session) => string[]) => [...new Set(sessions.flatMap(pick))].sort();
  const entry = (key: keyof Filter, kind: string) => (value: string) => ({ label: `${kind} ${value}`, checked: filter[key] === value, many: true, run: () => onChange({ ...filter, [key]: filter[key] === value ? "" : value }) });
  const items = [
    { label: "All sessions", checked: !on, many: true, run: () => onChange(NO_FILTER) },
    ...values((session) => [session.agent]).map(entry("agent", "Agent")),
    ...values((session) => (session.project ? [session.project] : [])).map(entry("project", "Project")),
    ...values((session) => session.labels).map(entry("label", "Label")),
  ];
  return (
    <Menu label="Filter sessions" items={items} align="end" className={`inline-flex size-(--target) items-center justify-center rounded-md hover:bg-hover hover:text-text ${on ? "bg-accent-soft text-accent" : "text-quiet"}`}>
      <Icon name="queue" />
    </Menu>
  );
}
