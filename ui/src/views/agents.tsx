// Agents: the configured agents with their state and what to do about it, and known agents that can be added. Above:
// the app. Below: the API. Agents are added in perdure.toml, so the page shows the lines to write.

import { useState } from "react";
import { Button, Link } from "../parts/button";
import { Icon } from "../parts/icons";
import { CopyButton, Prose } from "../parts/markdown";
import { PageHead } from "../parts/pagehead";
import { attempt, say } from "../shell/toast";
import { useAgents, useCatalogue } from "../state/lists";
import { post } from "../wire/api";
import type { Agent, KnownAgent } from "../wire/types";

const STATES: Record<Agent["state"], [string, string]> = {
  ready: ["ready", "text-green"],
  missing: ["not installed", "text-quiet"],
  needs_login: ["login required", "text-amber"],
  too_old: ["too old", "text-red"],
  broken: ["broken", "text-red"],
};

export default function Agents() {
  const agents = useAgents();
  const catalogue = useCatalogue();
  const [busy, setBusy] = useState(false);
  const reload = async () => {
    setBusy(true);
    if (await attempt(post("/api/agents/reload"))) {
      await agents.refresh();
      say("Agents checked.");
    }
    setBusy(false);
  };
  const others = catalogue.value.catalogue.filter((known) => !agents.value.agents.some((agent) => agent.name === known.name));
  return (
    <div className="min-h-0 flex-1 overflow-y-auto">
      <PageHead title="Agents" about="Configured agents and their status">
        <Button icon="retry" disabled={busy} onClick={() => void reload()}>Check again</Button>
      </PageHead>
      <div className="mx-auto max-w-[92ch] p-4 sm:p-6">
        {agents.error && <p role="alert" className="mb-4 text-sm text-red">{agents.error}</p>}
        <ul aria-label="Agents" className="divide-y divide-line">
          {agents.value.agents.map((agent) => <AgentRow key={agent.name} agent={agent} isDefault={agent.name === agents.value.default} />)}
        </ul>
        {others.length > 0 && (
          <section className="mt-8">
            <h2 className="mb-1 text-base font-semibold">More agents</h2>
            <p className="mb-3 text-sm text-quiet">Install an agent, add its lines to perdure.toml, then check again.</p>
            <ul aria-label="Known agents" className="divide-y divide-line">{others.map((known) => <KnownRow key={known.name} known={known} />)}</ul>
          </section>
        )}
      </div>
    </div>
  );
}

function AgentRow({ agent, isDefault }: { agent: Agent; isDefault: boolean }) {
  const [words, colour] = STATES[agent.state];
  return (
    <li className="py-3">
      <div className="flex flex-wrap items-baseline gap-x-3">
        <h3 className="font-semibold break-all">{agent.name}</h3>
        <span className={`text-sm ${colour}`}>{words}</span>
        {isDefault && <span className="text-xs text-quiet">default</span>}
        <span className="flex-1" />
        {agent.state === "ready" && <Link to={`/new?agent=${encodeURIComponent(agent.name)}`} className="reach text-sm text-accent underline underline-offset-2">New session</Link>}
      </div>
      {agent.reason && <Prose raw={agent.reason} className="mt-1 text-sm" />}
      <p className="mt-1 font-mono text-xs break-all text-quiet">{agent.driver}{agent.version ? ` ${agent.version}` : ""} · {agent.command.join(" ")}</p>
    </li>
  );
}

function KnownRow({ known }: { known: KnownAgent }) {
  const lines = `[agents.${known.name}]\ndriver = ${JSON.stringify(known.driver)}\ncommand = ${JSON.stringify(known.command)}\n`;
  return (
    <li className="py-3">
      <details className="group">
        <summary className="flex items-baseline! gap-2">
          <Icon name="right" size={12} className="text-quiet group-open:rotate-90" />
          <span className="flex min-w-0 flex-1 flex-wrap items-baseline gap-x-3">
            <span className="font-semibold">{known.title || known.name}</span>
            <Prose raw={known.notes} className="text-sm text-quiet" />
          </span>
        </summary>
        <dl className="mt-2 ml-5 space-y-2 text-sm">
          <div><dt className="text-xs text-quiet">Install</dt><dd><Prose raw={known.install} /></dd></div>
          {known.login && <div><dt className="text-xs text-quiet">Log in</dt><dd><Prose raw={known.login} /></dd></div>}
          <div>
            <dt className="flex items-center text-xs text-quiet">perdure.toml <CopyButton text={lines} /></dt>
            <dd><pre className="code overflow-x-auto rounded-md border border-line bg-sunken p-3" tabIndex={0}>{lines}</pre></dd>
          </div>
        </dl>
      </details>
    </li>
  );
}
