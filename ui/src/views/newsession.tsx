// A new session. The first message creates it, in the chosen folder, with the project, agent, model and mode chosen on
// the composer. If the project has a kickoff, that is the first message, with the written text inserted at its
// placeholder. Without a placeholder, the written text replaces the kickoff. The first visit offers a rehearsal, which
// shows everything without a model or API key. Above: the app. Below: one request that creates the session and sends
// the message.

import { useEffect, useRef, useState } from "react";
import { Button } from "../parts/button";
import { go, pathOf } from "../shell/router";
import { attempt } from "../shell/toast";
import { useAgents, useProjects } from "../state/lists";
import { useOverview } from "../state/sessions";
import { post } from "../wire/api";
import type { Session } from "../wire/types";
import { Chip, Composer, type Sent } from "./composer";
import { forgetId, idFor } from "./drafts";
import { agentChoices } from "./agentchoice";
import { useWhere, WhereField } from "./folders/where";
import { optionsOf } from "./session";

const REHEARSAL = `think The user wants to see what a session looks like.
plan look around; change a file; ask before deploying; report
tool Bash ls -la
edit notes.md
say Answers stream in as the agent writes them.
sleep 0.5
say Above are a thought, a plan, a tool call and a changed file. Click one to see more.
sleep 0.5
say The next step needs your permission.
permit Deploy
tool Report nothing was deployed
say That was a rehearsal. **Nothing** was deployed: this agent has no model, and follows the lines of your message as a script. Try \`ask Which one? | A | B\` or \`hang\`.`;

export function NewSession({ project: givenProject, agent: givenAgent }: { project?: string; agent?: string }) {
  const agents = useAgents();
  const projects = useProjects().value.projects;
  const { sessions, loaded } = useOverview();
  const where = useWhere(givenProject, projects);
  const [agent, setAgent] = useState(givenAgent ?? "");
  const [chosen, setChosen] = useState<Record<string, string>>({});
  const [busy, setBusy] = useState(false);
  const [wantsKickoff, setWantsKickoff] = useState(true);
  const [text, setText] = useState("");

  const known = where.project;
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
    // Don't navigate if the user has left this view.
    if (shown.current) go(pathOf(made.session_id));
    return true;
  };
  const kickoff = known?.kickoff ?? "";
  const takesText = kickoff.includes("{message}");
  const start = (sent: Sent) => {
    where.remember();
    const begins = kickoff && wantsKickoff && (takesText || !sent.text.trim());
    return create({ text: sent.text, ...(begins ? { kickoff: true } : {}), ...where.body(), ...(agent ? { agent } : {}), ...chosen, ...(sent.attachments.length ? { attachments: sent.attachments } : {}) });
  };

  return (
    <div className="flex min-h-0 flex-1 flex-col justify-center overflow-y-auto p-4 sm:p-8">
      <div className="mx-auto w-full max-w-[76ch]">
        <h1 className={`mb-4 text-xl font-semibold ${first ? "" : "max-md:hidden"}`}>{first ? "Talk to an agent" : "New session"}</h1>
        <WhereField where={where} />
        <Composer
          draftKey="draft.new"
          session={null}
          commands={[]}
          busy={false}
          disabled={busy ? "Starting" : undefined}
          placeholder={kickoff && wantsKickoff ? (takesText ? "What should the agent do? Your text is inserted into the kickoff message" : "Send the kickoff, or write something else") : "What should the agent do?"}
          autoFocus
          emptySends={!!kickoff && wantsKickoff}
          onText={setText}
          onSend={start}
          chips={
            <>
              <Chip label="Project" value={known?.id ?? ""} options={[{ value: "", name: "No project" }, ...projects.map((one) => ({ value: one.id, name: one.name, hint: one.path }))]} onChange={where.setProject} />
              <Chip label="Agent" value={shownAgent} options={agentChoices(agents.value.agents)} onChange={(name) => (setAgent(name), setChosen({}))} />
              {like && optionsOf(like as Session).filter((option) => option.id === "model" || option.id === "mode").map((option) => <Chip key={option.id} label={option.name} value={chosen[option.id] ?? ""} options={[{ value: "", name: `Default ${option.name.toLowerCase()}` }, ...option.options!.map((one) => ({ value: one.value, name: one.name, hint: one.description }))]} onChange={(value) => setChosen(Object.fromEntries(Object.entries({ ...chosen, [option.id]: value }).filter(([, one]) => one)))} />)}
            </>
          }
        />
        {kickoff && <Kickoff template={kickoff} wanted={wantsKickoff} replaced={!takesText && !!text.trim()} onWanted={setWantsKickoff} />}
        {agents.error && <p role="alert" className="mt-3 text-sm text-red">{agents.error}</p>}
        {first ? (
          <section className="mt-8 rounded-lg border border-line p-4">
            <h2 className="mb-1 text-base font-semibold">Try it first</h2>
            <p className="mb-3 text-sm text-quiet">A rehearsal streams an answer, uses a tool, edits a file and asks you for permission. It needs no model and no API key.</p>
            <Button tone="primary" disabled={busy} onClick={() => void create({ text: REHEARSAL, agent: "rehearsal", title: "Rehearsal" })}>Start the rehearsal</Button>
          </section>
        ) : (
          <p className="mt-3 text-sm text-quiet max-md:hidden">Enter sends, Shift+Enter adds a line. Ctrl+K lists all commands.</p>
        )}
      </div>
    </div>
  );
}

/** A preview of the kickoff. */
function Kickoff({ template, wanted, replaced, onWanted }: { template: string; wanted: boolean; replaced: boolean; onWanted: (wanted: boolean) => void }) {
  return (
    <section role="note" aria-label="Kickoff" className="mt-3 rounded-lg border border-line px-3 py-2 text-sm">
      <label className="flex min-h-(--target) items-center gap-2">
        <input type="checkbox" checked={wanted} onChange={(event) => onWanted(event.target.checked)} />
        Start with the project's kickoff
      </label>
      {wanted && replaced && <p className="pb-1 text-quiet">Your message is sent instead of the kickoff, which has no {"{message}"} placeholder.</p>}
      {wanted && <p className={`max-h-40 overflow-y-auto pb-1 font-mono text-xs whitespace-pre-wrap ${replaced ? "text-quiet line-through" : ""}`}>{template}</p>}
    </section>
  );
}
