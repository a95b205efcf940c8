// Projects: working directories with a name, a default agent, limits and permission rules. They are created and changed
// here. Projects from perdure.toml are read-only, and the server refuses changes to them. Above: the app. Below: the
// API.

import { useState } from "react";
import { Button, IconButton, Link } from "../parts/button";
import { Empty } from "../parts/empty";
import { PageHead } from "../parts/pagehead";
import { pathOf } from "../shell/router";
import { attempt, say } from "../shell/toast";
import { useDirectory } from "../state/directories";
import { useAgents, useProjects } from "../state/lists";
import { plural } from "../text/words";
import { patch, post, remove } from "../wire/api";
import type { Json, Project, Rule, Workspace } from "../wire/types";
import { FolderField } from "./folders/field";
import { FolderState } from "./folders/where";

const LIMITS: [string, string][] = [
  ["turn_timeout_s", "Stop a turn without activity after (seconds)"],
  ["turn_limit_s", "Maximum duration of a turn (seconds)"],
  ["idle_timeout_s", "Suspend an idle agent after (seconds)"],
  ["silence_s", "Report a turn without output after (seconds)"],
  ["memory_limit_mb", "Memory limit of an agent (MiB)"],
];

export default function Projects() {
  const projects = useProjects();
  const [making, setMaking] = useState(false);
  const [open, setOpen] = useState<string | null>(null);
  return (
    <div className="min-h-0 flex-1 overflow-y-auto">
      <PageHead title="Projects" about="Directories and their settings">
        <Button icon="plus" onClick={() => setMaking(true)}>New project</Button>
      </PageHead>
      <div className="mx-auto max-w-[92ch] p-4 sm:p-6">
        {making && <Making onDone={(id) => (setMaking(false), id && (void projects.refresh(), setOpen(id)))} />}
        {projects.loaded && !projects.value.projects.length && !making && <Empty action="Create the first project" icon="plus" onAction={() => setMaking(true)}>No projects yet. A project gives a directory a name, an agent and permission rules.</Empty>}
        <ul aria-label="Projects" className="divide-y divide-line">
          {projects.value.projects.map((project) => (
            <li key={project.id} className="py-3">
              <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
                <div className="min-w-0 flex-1 basis-60">
                  <h2 className="font-semibold break-words">{project.name}</h2>
                  <p className="font-mono text-xs break-all text-quiet">{project.path}</p>
                  <p className="text-xs text-quiet">{[project.agent, project.workspace === "worktree" && "a worktree per session", project.permissions.length > 0 && plural(project.permissions.length, "permission rule"), Object.keys(project.limits).length > 0 && plural(Object.keys(project.limits).length, "limit")].filter(Boolean).join(" · ")}</p>
                </div>
                <div className="flex flex-wrap items-center gap-x-4">
                  {project.active_session_id && <Link to={pathOf(project.active_session_id)} className="reach text-sm text-accent underline underline-offset-2">Last session</Link>}
                  <Link to={`/new?project=${encodeURIComponent(project.id)}`} className="reach text-sm text-accent underline underline-offset-2">New session</Link>
                  <Button aria-expanded={open === project.id} onClick={() => setOpen(open === project.id ? null : project.id)}>{open === project.id ? "Close" : "Edit"}</Button>
                </div>
              </div>
              {open === project.id && <Changing key={project.id} project={project} onDone={() => void projects.refresh()} />}
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}

const FIELD = "min-h-(--target) w-full rounded-md border border-line bg-raised px-2 text-sm";

function Labelled({ label, children }: { label: string; children: React.ReactNode }) {
  return (
    <label className="block">
      <span className="mb-1 block text-xs text-quiet">{label}</span>
      {children}
    </label>
  );
}

function Making({ onDone }: { onDone: (id: string | null) => void }) {
  const [name, setName] = useState("");
  const [path, setPath] = useState("");
  const checked = useDirectory(path);
  return (
    <form
      className="mb-6 grid gap-3 rounded-lg border border-line p-4 sm:grid-cols-[1fr_2fr]"
      onSubmit={(event) => {
        event.preventDefault();
        void attempt(post<Project>("/api/projects", { name, path })).then((made) => made && onDone(made.id));
      }}
    >
      <Labelled label="Name"><input autoFocus required value={name} onChange={(event) => setName(event.target.value)} className={FIELD} /></Labelled>
      <div>
        <span className="mb-1 block text-xs text-quiet" aria-hidden="true">Directory on the server</span>
        <FolderField label="Directory on the server" required placeholder="/home/me/site" value={path} onChange={setPath} describedBy="folder-state" invalid={!!checked.wrong} />
        <FolderState folder={path} checked={checked} />
      </div>
      <div className="flex gap-2 sm:col-span-2">
        <Button type="submit" tone="primary">Create project</Button>
        <Button tone="quiet" onClick={() => onDone(null)}>Cancel</Button>
      </div>
    </form>
  );
}

function Changing({ project, onDone }: { project: Project; onDone: () => void }) {
  const agents = useAgents().value.agents;
  const [agent, setAgent] = useState(project.agent ?? "");
  const [rules, setRules] = useState<Rule[]>(project.permissions);
  const [limits, setLimits] = useState<Record<string, Json>>(project.limits);
  const [instructions, setInstructions] = useState(project.instructions ?? "");
  const [kickoff, setKickoff] = useState(project.kickoff ?? "");
  const [workspace, setWorkspace] = useState<Workspace>(project.workspace ?? "directory");
  const save = async () => {
    const changed = await attempt(patch(`/api/projects/${encodeURIComponent(project.id)}`, { agent: agent || null, permissions: rules.filter((rule) => rule.tool.trim()), limits, instructions: instructions || null, kickoff: kickoff || null, workspace }));
    if (!changed) return;
    say("Saved.");
    onDone();
  };
  const setRule = (index: number, changes: Partial<Rule>) => setRules(rules.map((rule, at) => (at === index ? { ...rule, ...changes } : rule)));
  const move = (index: number, by: number) => {
    const next = rules.slice();
    const [rule] = next.splice(index, 1);
    next.splice(index + by, 0, rule!);
    setRules(next);
  };
  return (
    <form
      className="mt-3 space-y-5 rounded-lg border border-line p-4"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <Labelled label="Agent">
        <select value={agent} onChange={(event) => setAgent(event.target.value)} className={FIELD}>
          <option value="">Server default</option>
          {agents.map((one) => <option key={one.name}>{one.name}</option>)}
        </select>
      </Labelled>
      <Labelled label="Sessions work in">
        <select value={workspace} onChange={(event) => setWorkspace(event.target.value as Workspace)} className={FIELD}>
          <option value="directory">The project's directory</option>
          <option value="worktree">A git worktree and branch of their own</option>
        </select>
      </Labelled>
      {workspace === "worktree" && <p className="-mt-4 text-xs text-quiet">Several sessions can work at the same time. Each starts from the last commit, and you bring its work back when it is done. The directory must be in a git repository.</p>}
      <fieldset>
        <legend className="mb-1 text-xs text-quiet">Permission rules: the first match decides; with no match, you are asked</legend>
        <ul className="space-y-2">
          {rules.map((rule, index) => (
            <li key={index} className="flex flex-wrap items-center gap-2">
              <select aria-label={`Rule ${index + 1}: what to do`} value={rule.action} onChange={(event) => setRule(index, { action: event.target.value as Rule["action"] })} className={FIELD + " w-auto!"}>
                {["allow", "ask", "deny"].map((action) => <option key={action}>{action}</option>)}
              </select>
              <input aria-label={`Rule ${index + 1}: tool`} placeholder="tool, such as Bash" value={rule.tool} onChange={(event) => setRule(index, { tool: event.target.value })} className={FIELD + " w-40! font-mono"} />
              <input aria-label={`Rule ${index + 1}: pattern`} placeholder="pattern, such as git status*" value={rule.pattern} onChange={(event) => setRule(index, { pattern: event.target.value })} className={FIELD + " min-w-40 flex-1 font-mono"} />
              <IconButton icon="down" label={`Move rule ${index + 1} up`} className="rotate-180" disabled={index === 0} onClick={() => move(index, -1)} />
              <IconButton icon="cross" label={`Remove rule ${index + 1}`} onClick={() => setRules(rules.filter((_, at) => at !== index))} />
            </li>
          ))}
        </ul>
        <Button icon="plus" className="mt-2" onClick={() => setRules([...rules, { tool: "", pattern: "*", action: "allow" }])}>Add a rule</Button>
      </fieldset>
      <fieldset className="grid gap-3 sm:grid-cols-2">
        <legend className="mb-1 text-xs text-quiet">Limits (empty: server default)</legend>
        {LIMITS.map(([key, label]) => (
          <Labelled key={key} label={label}>
            <input
              type="number"
              min={0}
              value={String(limits[key] ?? "")}
              onChange={(event) => {
                const next = { ...limits };
                if (event.target.value === "") delete next[key];
                else next[key] = Number(event.target.value);
                setLimits(next);
              }}
              className={FIELD}
            />
          </Labelled>
        ))}
      </fieldset>
      <Labelled label="Instructions, added to every message"><textarea rows={3} value={instructions} onChange={(event) => setInstructions(event.target.value)} className={FIELD + " py-2"} /></Labelled>
      <Labelled label="Kickoff, the first message of a new session ({project}, {path}, {title}, {date}, {message})"><textarea rows={2} value={kickoff} onChange={(event) => setKickoff(event.target.value)} className={FIELD + " py-2"} /></Labelled>
      <div className="flex flex-wrap gap-2">
        <Button type="submit" tone="primary">Save</Button>
        <Button tone="danger" onClick={() => void attempt(remove(`/api/projects/${encodeURIComponent(project.id)}`).then(() => true)).then((done) => done && onDone())}>Remove project</Button>
        <span className="self-center text-xs text-quiet">Removing a project does not delete its sessions or files.</span>
      </div>
    </form>
  );
}
