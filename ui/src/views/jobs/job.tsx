// One job: its state, next runs, settings and history. Above: jobs.tsx. Below: the API; the overview shows when a
// session of the job has changed.

import { useRef, useState, type ReactNode } from "react";
import { Button, Link } from "../../parts/button";
import { Dialog } from "../../parts/dialog";
import { Nowhere } from "../../parts/nowhere";
import { PageHead } from "../../parts/pagehead";
import { go, pathOf, pathOfJob, pathOfTurn } from "../../shell/router";
import { attempt } from "../../shell/toast";
import { belongs } from "../../state/jobs";
import { titleOf, useOverview } from "../../state/sessions";
import { inZone } from "../../text/schedule";
import { duration, money, plural, withTimes } from "../../text/words";
import { get, Problem, query, remove, sentence } from "../../wire/api";
import { atJob, type Job, type JobRun } from "../../wire/jobs";
import { JobActions, NextRuns, OutcomeWord, relook, scheduleWords, Since, StateWord, useCurrent } from "./parts";

const PAGE_RUNS = 30;
const MOST_RUNS = 1000;

interface Runs {
  runs: JobRun[];
  next_cursor: string | null;
}

/** The job and its runs, kept current. */
function useJob(id: string) {
  const [job, setJob] = useState<Job | null>(null);
  const [found, setFound] = useState<Runs | null>(null);
  const [error, setError] = useState("");
  const [gone, setGone] = useState(false);
  const asked = useRef(0);
  const held = useRef(PAGE_RUNS);

  const look = async () => {
    const mine = ++asked.current;
    try {
      const [one, runs] = await Promise.all([get<Job>(atJob(id)), get<Runs>(atJob(id, "/runs" + query({ limit: held.current })))]);
      if (mine !== asked.current) return;
      setJob(one);
      setFound(runs);
      setError("");
    } catch (problem) {
      if (mine !== asked.current) return;
      if (problem instanceof Problem && problem.status === 404) setGone(true);
      else setError(sentence(problem));
    }
  };
  const more = async () => {
    const answer = await attempt(get<Runs>(atJob(id, "/runs" + query({ limit: PAGE_RUNS, cursor: found!.next_cursor }))));
    if (!answer) return;
    // Discard a refresh that is still under way: it lacks these runs.
    asked.current += 1;
    const known = new Set(found!.runs.map((run) => run.id));
    const runs = [...found!.runs, ...answer.runs.filter((run) => !known.has(run.id))];
    // Round up to whole pages, so that one new run does not push the oldest one out.
    held.current = Math.min(MOST_RUNS, Math.ceil(runs.length / PAGE_RUNS) * PAGE_RUNS);
    setFound({ runs, next_cursor: answer.next_cursor });
  };

  const { sessions } = useOverview();
  const of = new Set(found?.runs.map((run) => run.session_id));
  useCurrent(() => void look(), sessions.filter((session) => of.has(session.id) || (job && belongs(session, job))).map((session) => `${session.id}:${session.state}:${session.turn_count}`).join());
  return { job, found, error, gone, look, more };
}

export function JobView({ id }: { id: string }) {
  const { job, found, error, gone, look, more } = useJob(id);
  const [removing, setRemoving] = useState(false);
  const changed = () => (relook(), void look());
  if (gone) return <Nowhere title="Job not found">It was removed, or the link is wrong. <Link to="/jobs" className="text-accent underline underline-offset-2">All jobs</Link></Nowhere>;
  return (
    <div className="min-h-0 flex-1 overflow-y-auto">
      <PageHead title={job?.name ?? "Job"} about={job ? scheduleWords(job) : undefined} back="/jobs" />
      <div className="mx-auto max-w-[92ch] space-y-8 p-4 sm:p-6">
        {error && <p role="alert" className="text-sm text-red">{error}</p>}
        {!job && !error && <p role="status" className="text-sm text-quiet">Loading job</p>}
        {job && (
          <>
            <section aria-label="State" className="space-y-3">
              <p><StateWord job={job} />{job.failures > 0 && <span className="text-sm text-quiet"> · {inARow(job.failures)}</span>}</p>
              {job.reason && <p className="rounded-md border border-amber-line bg-amber-soft p-3 text-sm break-words">{withTimes(job.reason)}</p>}
              <div className="flex flex-wrap gap-2">
                <JobActions job={job} onDone={changed} />
                <Button icon="pencil" onClick={() => go(pathOfJob(id) + "/edit")}>Edit</Button>
                <Button icon="trash" tone="danger" onClick={() => setRemoving(true)}>Remove</Button>
              </div>
            </section>
            <section>
              <h2 className="mb-2 text-base font-semibold">Next runs</h2>
              {job.next_runs.length ? <NextRuns runs={job.next_runs} zone={job.time_zone} label="Next runs" /> : <p className="text-sm text-quiet">{job.state === "paused" ? "None while the job is paused." : "None: the job has ended."}</p>}
            </section>
            <Settings job={job} />
            <section>
              <h2 className="mb-2 text-base font-semibold">History</h2>
              {found?.runs.length === 0 && <p className="text-sm text-quiet">No runs yet. Runs appear here when they are due.</p>}
              <ul aria-label="History" className="divide-y divide-line">{found?.runs.map((run) => <Run key={run.id} run={run} zone={job.time_zone} />)}</ul>
              {found?.next_cursor && <div className="pt-4"><Button onClick={() => void more()}>Show more</Button></div>}
            </section>
          </>
        )}
      </div>
      {removing && job && <Removing job={job} onClose={() => setRemoving(false)} />}
    </div>
  );
}

function Run({ run, zone }: { run: JobRun; zone: string }) {
  const to = run.session_id && (run.turn ? pathOfTurn(run.session_id, run.turn) : pathOf(run.session_id));
  return (
    <li className="py-2 text-sm">
      <div className="flex flex-wrap items-baseline gap-x-4 gap-y-1">
        <span className="w-20 shrink-0"><OutcomeWord run={run} /></span>
        <span className="flex min-w-0 flex-1 basis-56 flex-wrap gap-x-3">
          <time dateTime={run.due_at} className="tabular-nums">{inZone(run.due_at, zone)}</time>
          <span className="text-quiet"><Since at={run.due_at} zone={zone} />{run.trigger === "manual" ? " · manual" : run.trigger === "missed" ? " · missed" : ""}</span>
        </span>
        <span className="shrink-0 text-quiet tabular-nums sm:w-28 sm:text-right">{[run.duration_ms !== null && duration(run.duration_ms), run.cost_usd !== null && money(run.cost_usd)].filter(Boolean).join(" · ")}</span>
        <span className="w-24 shrink-0 text-right max-sm:ml-auto">{to && <Link to={to} className="reach text-accent underline underline-offset-2">Open session</Link>}</span>
      </div>
      {run.detail && <p className={`break-words ${run.outcome === "failed" ? "text-red" : "text-quiet"}`}>{withTimes(run.detail)}</p>}
    </li>
  );
}

const inARow = (failures: number) => plural(failures, "failed run") + (failures > 1 ? " in a row" : "");
const MISSED = { skip: "Skip", once: "Run once", all: "Run all" };
const OVERLAP = { wait: "Wait for it", skip: "Skip the new run", interrupt: "Interrupt it" };

function Settings({ job }: { job: Job }) {
  const { sessions } = useOverview();
  const session = job.session === "new" ? null : job.session === "same" ? job.session_id : job.session;
  const shown = sessions.find((one) => one.id === session);
  const link = session && <Link to={pathOf(session)} className="reach text-accent underline underline-offset-2">{shown ? titleOf(shown) : session}</Link>;
  const rows: [string, ReactNode][] = [
    ["Schedule", <>{job.schedule} <span className="text-quiet">· {job.cron && <code>{job.cron}</code>} {job.time_zone}</span></>],
    ["Not before", job.starts_at && inZone(job.starts_at, job.time_zone)],
    ["Not after", job.until && inZone(job.until, job.time_zone)],
    ["Session", job.session === "new" ? "A new session for each run" : job.session === "same" ? <>One session for all runs{link && <>: {link}</>}</> : link],
    ["Project", job.project],
    ["Directory", job.workdir && <code className="break-all">{job.workdir}</code>],
    ["Agent", job.agent],
    ["Model", job.model],
    ["Mode", job.mode],
    ["Labels", job.labels.join(", ")],
    ["Missed runs", MISSED[job.missed] + (job.missed === "all" ? `, at most ${job.missed_max}` : "")],
    ["If the previous run is still running", OVERLAP[job.overlap]],
    ["Random delay", job.jitter_s > 0 && `Up to ${plural(job.jitter_s, "second")}`],
    ["Runs", job.max_runs === null ? String(job.run_count) : `${job.run_count}, ends after ${plural(job.max_runs, "scheduled run")}`],
    ["Pauses after", inARow(job.max_failures)],
    ["Keeps sessions", [job.keep_sessions !== null && `of the last ${plural(job.keep_sessions, "run")}`, job.keep_days !== null && `for ${plural(job.keep_days, "day")}`].filter(Boolean).join(", ")],
  ];
  return (
    <section>
      <h2 className="mb-2 text-base font-semibold">Settings</h2>
      <p className="mb-3 max-h-60 overflow-y-auto rounded-md border border-line bg-sunken p-3 font-mono text-xs break-words whitespace-pre-wrap" tabIndex={0} role="group" aria-label="Message">{job.message}</p>
      <dl className="grid gap-x-6 gap-y-2 text-sm sm:grid-cols-2">
        {rows.filter(([, value]) => value).map(([name, value]) => <div key={name} className="min-w-0"><dt className="text-xs text-quiet">{name}</dt><dd className="break-words">{value}</dd></div>)}
      </dl>
    </section>
  );
}

function Removing({ job, onClose }: { job: Job; onClose: () => void }) {
  const [busy, setBusy] = useState(false);
  const confirm = async () => {
    setBusy(true);
    const done = await attempt(remove(atJob(job.id)).then(() => true));
    setBusy(false);
    if (!done) return;
    relook();
    onClose();
    go("/jobs");
  };
  return (
    <Dialog title={`Remove ${job.name}?`} onClose={onClose}>
      <p className="mb-4 text-sm">This deletes the job and its history. Its sessions remain, and a run in progress continues.</p>
      <div className="flex flex-wrap gap-2">
        <Button tone="danger" icon="trash" disabled={busy} onClick={() => void confirm()}>Remove job</Button>
        <Button tone="quiet" onClick={onClose}>Cancel</Button>
      </div>
    </Dialog>
  );
}
