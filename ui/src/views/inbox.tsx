// The inbox: all waiting prompts across all sessions, answered in place, and jobs paused after failures. Above: the
// app. Below: the overview lists the sessions with prompts; the API returns the prompts.

import { useEffect, useLayoutEffect, useState } from "react";
import { Button, Link } from "../parts/button";
import { Empty } from "../parts/empty";
import { PageHead } from "../parts/pagehead";
import { go, pathOf, pathOfJob } from "../shell/router";
import { register } from "../shell/commands";
import { attempt } from "../shell/toast";
import { refreshJobs, stuck, useJobs } from "../state/jobs";
import { titleOf, useOverview } from "../state/sessions";
import { withTimes } from "../text/words";
import { at, get, post, query } from "../wire/api";
import { atJob, type Job } from "../wire/jobs";
import type { Diff, Prompt, TranscriptTurn } from "../wire/types";
import { diffOf, marked, useStill } from "./answering";
import { answerByKey, PromptCard } from "./prompt";

/** Diffs by prompt, each fetched once. */
function useDiffs(prompts: Record<string, Prompt[]>): Record<string, Diff[] | undefined> {
  const [diffs, setDiffs] = useState<Record<string, Diff[] | undefined>>({});
  useEffect(() => {
    for (const [session, some] of Object.entries(prompts)) {
      for (const { kind, prompt_id, tool_id, turn, diff } of some) {
        if (kind !== "permission" || diff?.length || !tool_id || turn === null || prompt_id in diffs) continue;
        get<{ turns: TranscriptTurn[] }>(at(session, "/transcript" + query({ from_turn: turn, to_turn: turn })))
          .then((found) => setDiffs((before) => ({ ...before, [prompt_id]: diffOf(found.turns, tool_id) })))
          .catch(() => undefined);
      }
    }
  }, [prompts]);
  return diffs;
}

export function Inbox() {
  const { sessions, loaded } = useOverview();
  const waiting = sessions.filter((session) => session.pending_prompts > 0);
  const jobs = stuck(useJobs().value.jobs);
  useEffect(() => void refreshJobs(), []);
  const [prompts, setPrompts] = useState<Record<string, Prompt[]>>({});
  const [denying, setDenying] = useState({ prompt: "", count: 0 });
  const diffs = useDiffs(prompts);
  const key = waiting.map((session) => `${session.id}:${session.pending_prompts}:${session.event_count}`).join();

  useEffect(() => {
    let current = true;
    void Promise.all(waiting.map(async (session) => [session.id, (await get<{ prompts: Prompt[] }>(at(session.id, "/prompts"))).prompts] as const))
      .then((found) => current && setPrompts(Object.fromEntries(found)))
      .catch(() => undefined);
    return () => {
      current = false;
    };
  }, [key]);

  // The keys answer the selected card, which stays selected while sessions change order.
  const [mark, setMark] = useState<string | null>(null);
  const target = marked(waiting.flatMap((session) => (prompts[session.id] ?? []).map((prompt) => ({ session, prompt }))), mark);
  const id = target?.prompt.prompt_id;
  const still = useStill(id);
  useEffect(() => setMark(id ?? null), [id]);
  useLayoutEffect(() => {
    const byKey = (key: string) => void (still && target && answerByKey(target.session.id, target.prompt, key));
    return register([
      { id: "allow", title: "Allow the selected request", keys: "y", group: "Prompt", when: () => !!target, run: () => byKey("y") },
      { id: "always", title: "Always allow the selected request", keys: "a", group: "Prompt", when: () => !!target, run: () => byKey("a") },
      { id: "deny", title: "Deny the selected request with a reason", keys: "n", group: "Prompt", when: () => target?.prompt.kind === "permission", run: () => setDenying(({ count }) => ({ prompt: id ?? "", count: count + 1 })) },
    ]);
  }, [id, still]);

  return (
    <div className="min-h-0 flex-1 overflow-y-auto">
      <PageHead title="Inbox" about="Everything waiting for you, in all sessions" />
      <div className="mx-auto max-w-[92ch] space-y-6 p-4 sm:p-6">
        {waiting.map((session) => (
          <section key={session.id} aria-label={titleOf(session)}>
            <h2 className="mb-2 flex min-w-0 items-baseline gap-2 text-sm">
              <Link to={pathOf(session.id)} className="reach min-w-0 font-semibold underline-offset-2 hover:underline"><span className="block truncate">{titleOf(session)}</span></Link>
              <span className="shrink-0 text-xs text-quiet">{session.agent}</span>
            </h2>
            <div className="space-y-2">
              {(prompts[session.id] ?? []).map((prompt) => <PromptCard key={prompt.prompt_id} session={session.id} prompt={prompt} workdir={session.workdir} project={session.project} diff={diffs[prompt.prompt_id]} denying={prompt.prompt_id === denying.prompt ? denying.count : 0} keys={prompt.prompt_id !== id ? "none" : still ? "ready" : "soon"} onMark={() => setMark(prompt.prompt_id)} />)}
            </div>
          </section>
        ))}
        {jobs.length > 0 && (
          <section aria-label="Jobs paused after failures">
            <h2 className="mb-2 text-sm font-semibold">Jobs paused after failures</h2>
            <ul className="space-y-2">{jobs.map((job) => <StuckJob key={job.id} job={job} />)}</ul>
          </section>
        )}
        {loaded && !waiting.length && !jobs.length && <Empty action="New session" icon="plus" onAction={() => go("/new")}>Nothing is waiting for you. Permission requests and questions from all sessions appear here, and jobs that failed too often.</Empty>}
      </div>
    </div>
  );
}

function StuckJob({ job }: { job: Job }) {
  const [busy, setBusy] = useState(false);
  const decide = async (verb: "/resume" | "/pause") => {
    setBusy(true);
    await attempt(post(atJob(job.id, verb)));
    await refreshJobs();
    setBusy(false);
  };
  return (
    <li className="rounded-lg border border-amber-line bg-amber-soft p-3">
      <h3 className="font-semibold break-words">{job.name}</h3>
      <p className="mb-2 text-sm break-words">{withTimes(job.reason)}</p>
      <div className="flex flex-wrap gap-2">
        <Button onClick={() => go(pathOfJob(job.id))}>Open</Button>
        <Button icon="play" disabled={busy} onClick={() => void decide("/resume")}>Resume</Button>
        <Button disabled={busy} onClick={() => void decide("/pause")}>Leave paused</Button>
      </div>
    </li>
  );
}
