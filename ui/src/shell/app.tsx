// The app shell: the sign-in screen, or the session list beside the current view, with the palette on top. Above:
// main.tsx. Below: views. Views that a conversation does not need are loaded on first use.

import { useEffect, useLayoutEffect, useRef, useState, type ReactNode } from "react";
import { Nowhere } from "../parts/nowhere";
import { PageHead } from "../parts/pagehead";
import { overviewNow, useOverview } from "../state/sessions";
import { whenUnauthorized } from "../wire/api";
import { connect, nudge } from "../wire/link";
import { Inbox } from "../views/inbox";
import { NewSession } from "../views/newsession";
import { SessionView } from "../views/session";
import { SignIn } from "../views/signin";
import { Boundary, whenNeeded } from "./boundary";
import { register, useCommands } from "./commands";
import { LinkBar } from "./linkbar";
import { Keys, Palette } from "./palette";
import { go, pathOf, routeNow, useRoute, type Route } from "./router";
import { Sidebar } from "./sidebar";
import { telling, useTitleAndIcon } from "./telling";
import { Toasts } from "./toast";
import { Undoing } from "../views/changes/undoing";
import { Dialog } from "../parts/dialog";

const Search = whenNeeded(() => import("../views/search"));
const UsageView = whenNeeded(() => import("../views/usage"));
const Jobs = whenNeeded(() => import("../views/jobs/jobs"));
const Nodes = whenNeeded(() => import("../views/nodes"));
const Agents = whenNeeded(() => import("../views/agents"));
const Projects = whenNeeded(() => import("../views/projects"));
const Settings = whenNeeded(() => import("../views/settings"));
const Inspector = whenNeeded(() => import("../views/inspector"));

function viewOf(route: Route): ReactNode {
  switch (route.view) {
    case "session":
      return <SessionView key={route.id} id={route.id} place={route.place} changes={route.changes} />;
    case "inspector":
      return <Inspector key={route.id} id={route.id} />;
    case "inbox":
      return <Inbox />;
    case "search":
      return <Search q={route.q} />;
    case "usage":
      return <UsageView />;
    case "jobs":
    case "newjob":
    case "job":
    case "editjob":
      return <Jobs route={route} />;
    case "nodes":
      return <Nodes />;
    case "agents":
      return <Agents />;
    case "projects":
      return <Projects />;
    case "settings":
      return <Settings />;
    case "new":
      return <NewSession key={`${route.project} ${route.agent}`} project={route.project} agent={route.agent} />;
    case "nowhere":
      return <Nowhere title="Page not found">The link is wrong, or it is for another version of Perdure.</Nowhere>;
    default:
      return <NewSession />;
  }
}

/** Open the next or previous session in list order. */
function step(by: number): void {
  const entries = [...document.querySelectorAll<HTMLElement>("[data-session]")].map((one) => one.dataset.session!);
  const route = routeNow();
  const at = "id" in route ? entries.indexOf(route.id) : -1;
  const next = entries[at < 0 ? (by > 0 ? 0 : entries.length - 1) : at + by];
  if (next) go(pathOf(next), false, true);
}

export function App({ trouble }: { trouble: string }) {
  const { link } = useOverview();
  const [known, setKnown] = useState(!trouble);
  const [palette, setPalette] = useState(false);
  const [help, setHelp] = useState(false);
  const route = useRoute();
  useTitleAndIcon();

  useEffect(() => {
    whenUnauthorized(() => setKnown(false));
    connect(() => telling() === "on");
  }, []);
  useEffect(() => {
    if (link === "live") setKnown(true);
    else if (link === "unauthorized") setKnown(false);
  }, [link]);
  useLayoutEffect(
    () =>
      register([
        { id: "palette", title: "Commands", keys: "Ctrl+k", group: "Page", run: () => setPalette((open) => !open) },
        { id: "new", title: "New session", keys: "c", group: "Page", run: () => go("/new") },
        { id: "inbox", title: "Inbox", keys: "g i", group: "Page", run: () => go("/inbox") },
        { id: "search", title: "Search", keys: "/", group: "Page", run: () => go("/search") },
        { id: "next", title: "Next session", keys: "j", group: "Page", repeats: true, run: () => step(1) },
        { id: "previous", title: "Previous session", keys: "k", group: "Page", repeats: true, run: () => step(-1) },
        { id: "waiting", title: "Next session waiting for you", keys: "g w", group: "Page", run: () => nextWaiting() },
        { id: "jobs", title: "Jobs", keys: "g j", group: "Page", run: () => go("/jobs") },
        { id: "newjob", title: "New job", group: "Page", run: () => go("/jobs/new") },
        { id: "usage", title: "Usage", keys: "g u", group: "Page", run: () => go("/usage") },
        { id: "agents", title: "Agents", keys: "g a", group: "Page", run: () => go("/settings/agents") },
        { id: "projects", title: "Projects", keys: "g p", group: "Page", run: () => go("/settings/projects") },
        { id: "settings", title: "Settings", keys: "g s", group: "Page", run: () => go("/settings") },
        { id: "help", title: "Keyboard shortcuts", keys: "?", group: "Page", run: () => setHelp(true) },
      ]),
    [],
  );

  // Move focus to the new view, unless the view already set the focus.
  const main = useRef<HTMLElement>(null);
  const place = "id" in route ? `${route.view} ${route.id}` : "job" in route ? `${route.view} ${route.job}` : route.view;
  const before = useRef(place);
  useEffect(() => {
    if (before.current === place) return;
    before.current = place;
    if (main.current && !main.current.contains(document.activeElement) && !document.querySelector("dialog[open]")) main.current.focus({ preventScroll: true });
  }, [place]);

  if (!known) {
    return (
      <SignIn
        trouble={trouble}
        onDone={() => {
          setKnown(true);
          nudge();
        }}
      />
    );
  }
  const listOnly = route.view === "home";
  return (
    <div className="relative flex h-full flex-col">
      <LinkBar list={listOnly} />
      <div className="flex min-h-0 flex-1">
        <div className={`w-full shrink-0 flex-col border-line bg-sunken md:flex md:w-68 md:border-r ${listOnly ? "flex" : "hidden"}`}>
          <Sidebar onPalette={() => setPalette(true)} />
        </div>
        <main ref={main} tabIndex={-1} className={`min-h-0 outline-none focus-visible:outline-none min-w-0 flex-1 flex-col ${listOnly ? "hidden md:flex" : "flex"}`}>
          {route.view === "new" && <div className="md:hidden"><PageHead title="New session" /></div>}
          <Boundary again={`${JSON.stringify(route)} ${link === "live"}`}>{viewOf(route)}</Boundary>
        </main>
      </div>
      {palette && <Palette onClose={() => setPalette(false)} />}
      {help && <Help onClose={() => setHelp(false)} />}
      <Undoing />
      <Toasts />
    </div>
  );
}

function nextWaiting(): void {
  const route = routeNow();
  const waiting = overviewNow().sessions.filter((session) => session.pending_prompts > 0);
  const other = waiting.find((session) => !("id" in route && route.id === session.id)) ?? waiting[0];
  go(other ? pathOf(other.id) : "/inbox");
}

function Help({ onClose }: { onClose: () => void }) {
  const commands = useCommands().filter((command) => command.keys);
  const groups = [...new Set(commands.map((command) => command.group))];
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose} wide>
      <div className="gap-8 text-sm sm:columns-2">
        {groups.map((group) => (
          <section key={group} className="mb-6 break-inside-avoid">
            <h3 className="mb-1 text-xs font-semibold text-quiet">{group}</h3>
            <ul>{commands.filter((command) => command.group === group).map((command) => <li key={command.id} className="flex items-center justify-between gap-4 py-1"><span>{command.title}</span><Keys keys={command.keys!} /></li>)}</ul>
          </section>
        ))}
      </div>
    </Dialog>
  );
}
