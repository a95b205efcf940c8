// A new session: the first message makes it, with the project, agent, model and mode chosen on the composer. A project's
// kickoff is that message, with what is written in its place; what has no place there is sent instead. The first visit
// offers a rehearsal, which shows everything without a model or a key. Above: the app. Below: one request that both makes
// the session and sends.

import { useEffect, useRef, useState } from "react";
import { Button } from "../parts/button";
import { go, pathOf } from "../shell/router";
import { attempt } from "../shell/toast";
import { keep, kept } from "../state/kept";
import { useAgents, useProjects } from "../state/lists";
import { useOverview } from "../state/sessions";
import { post } from "../wire/api";
import type { Session } from "../wire/types";
import { Chip, Composer, type Sent } from "./composer";
import { forgetId, idFor } from "./drafts";
import { agentChoices } from "./agentchoice";
import { optionsOf } from "./session";

const REHEARSAL = `think The person wants to see what a session looks like.
plan look around; change a file; ask before deploying; report
tool Bash ls -la
edit notes.md
say An answer comes in pieces, as the agent writes it.
sleep 0.5
say Above are a thought, a plan, a tool and a changed file; open one to see more.
sleep 0.5
say The next step needs your permission.
permit Deploy
tool Report nothing was deployed
say That was a rehearsal. **Nothing** was deployed: this agent has no model and does what the lines of your message say. Try \`ask Which one? | A | B\` or \`hang\`.`;

export function NewSession({ project: givenProject, agent: givenAgent }: { project?: string; agent?: string }) {
  const agents = useAgents();
  const projects = useProjects().value.projects;
  const { sessions, loaded } = useOverview();
  const [project, setProject] = useState(givenProject ?? kept("last.project") ?? "");
  const [agent, setAgent] = useState(givenAgent ?? "");
  const [chosen, setChosen] = useState<Record<string, string>>({});
  const [busy, setBusy] = useState(false);
  const [wantsKickoff, setWantsKickoff] = useState(true);
  const [text, setText] = useState("");

  const known = projects.find((one) => one.id === project);
  const shownAgent = agent || known?.agent || agents.value.default;
  const like = sessions.find((session) => session.agent === shownAgent && (session.config_options || session.models));
  const first = loaded && sessions.length === 0;

  const shown = useRef(true);
  useEffect(() => {
    shown.current = true;
    return () => void (shown.current = false);
  }, []);

  const create = async (body: Record<string, unknown>) => {
    setBusy(true);
    const made = await attempt(post<{ session_id: string }>("/api/messages", { message_id: idFor(body), ...body }));
    setBusy(false);
    if (!made) return false;
    forgetId();
    // Whoever went elsewhere meanwhile stays there.
    if (shown.current) go(pathOf(made.session_id));
    return true;
  };
  const kickoff = known?.kickoff ?? "";
  const takesText = kickoff.includes("{message}");
  const start = (sent: Sent) => {
    keep("last.project", known ? project : null);
    const begins = kickoff && wantsKickoff && (takesText || !sent.text.trim());
    return create({ text: sent.text, ...(begins ? { kickoff: true } : {}), ...(known ? { project } : {}), ...(agent ? { agent } : {}), ...chosen, ...(sent.attachments.length ? { attachments: sent.attachments } : {}) });
  };

  return (
    <div className="flex min-h-0 flex-1 flex-col justify-center overflow-y-auto p-4 sm:p-8">
      <div className="mx-auto w-full max-w-[76ch]">
        <h1 className={`mb-4 text-xl font-semibold ${first ? "" : "max-md:hidden"}`}>{first ? "Talk to an agent" : "New session"}</h1>
        <Composer
          draftKey="draft.new"
          session={null}
          commands={[]}
          busy={false}
          disabled={busy ? "Starting" : undefined}
          placeholder={kickoff && wantsKickoff ? (takesText ? "What should the agent do? It is put into the kickoff" : "Send the kickoff, or write something else") : "What should the agent do?"}
          autoFocus
          emptySends={!!kickoff && wantsKickoff}
          onText={setText}
          onSend={start}
          chips={
            <>
              <Chip label="Project" value={known ? project : ""} options={[{ value: "", name: "No project", hint: "A new empty folder" }, ...projects.map((one) => ({ value: one.id, name: one.name, hint: one.path }))]} onChange={setProject} />
              <Chip label="Agent" value={shownAgent} options={agentChoices(agents.value.agents)} onChange={(name) => (setAgent(name), setChosen({}))} />
              {like && optionsOf(like as Session).filter((option) => option.id === "model" || option.id === "mode").map((option) => <Chip key={option.id} label={option.name} value={chosen[option.id] ?? ""} options={[{ value: "", name: `Default ${option.name.toLowerCase()}` }, ...option.options!.map((one) => ({ value: one.value, name: one.name, hint: one.description }))]} onChange={(value) => setChosen(Object.fromEntries(Object.entries({ ...chosen, [option.id]: value }).filter(([, one]) => one)))} />)}
            </>
          }
        />
        {kickoff && <Kickoff template={kickoff} wanted={wantsKickoff} replaced={!takesText && !!text.trim()} onWanted={setWantsKickoff} />}
        {agents.error && <p role="alert" className="mt-3 text-sm text-red">{agents.error}</p>}
        {first ? (
          <section className="mt-8 rounded-lg border border-line p-4">
            <h2 className="mb-1 text-base font-semibold">See it first</h2>
            <p className="mb-3 text-sm text-quiet">A rehearsal streams an answer, uses a tool, edits a file and asks you for permission. It needs no model and no key.</p>
            <Button tone="primary" disabled={busy} onClick={() => void create({ text: REHEARSAL, agent: "rehearsal", title: "A rehearsal" })}>Start the rehearsal</Button>
          </section>
        ) : (
          <p className="mt-3 text-sm text-quiet max-md:hidden">Enter sends, Shift+Enter makes a new line. Ctrl+K finds everything else.</p>
        )}
      </div>
    </div>
  );
}

/** What the session will begin with, to be seen before it is sent. */
function Kickoff({ template, wanted, replaced, onWanted }: { template: string; wanted: boolean; replaced: boolean; onWanted: (wanted: boolean) => void }) {
  return (
    <section role="note" aria-label="Kickoff" className="mt-3 rounded-lg border border-line px-3 py-2 text-sm">
      <label className="flex min-h-(--target) items-center gap-2">
        <input type="checkbox" checked={wanted} onChange={(event) => onWanted(event.target.checked)} />
        Begin with the project's kickoff
      </label>
      {wanted && replaced && <p className="pb-1 text-quiet">Your message is sent instead of the kickoff, which has no place for it.</p>}
      {wanted && <p className={`max-h-40 overflow-y-auto pb-1 font-mono text-xs whitespace-pre-wrap ${replaced ? "text-quiet line-through" : ""}`}>{template}</p>}
    </section>
  );
}
