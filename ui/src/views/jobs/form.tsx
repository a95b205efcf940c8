// The form for a new or existing job: message, schedule, session, and further options. Above: jobs.tsx. Below: the API,
// whose errors are shown at the fields they are about.

import { useEffect, useRef, useState, type FormEvent } from "react";
import { Button } from "../../parts/button";
import { Icon } from "../../parts/icons";
import { Nowhere } from "../../parts/nowhere";
import { PageHead } from "../../parts/pagehead";
import { go, pathOfJob } from "../../shell/router";
import { bodyOf, draftOf, fieldOf, MORE, newDraft, previewOf, type JobDraft } from "../../state/jobdraft";
import { useAgents, useProjects } from "../../state/lists";
import { titleOf, useOverview } from "../../state/sessions";
import { get, patch, post, Problem, sentence } from "../../wire/api";
import { atJob, type Job } from "../../wire/jobs";
import type { Session } from "../../wire/types";
import { agentChoices } from "../agentchoice";
import { optionsOf } from "../session";
import { Field, FIELD, FormContext, SelectField, TextField, useForm, type Wrong } from "./fields";
import { OWN_ZONE, relook } from "./parts";
import { usePreview, When } from "./when";

const WORDS: [string, string][] = [
  ["{job}", "the job's name"],
  ["{due}", "when the run is due, with UTC offset"],
  ["{date}", "the date it is due, such as 2026-12-31"],
  ["{run}", "the run number"],
  ["{last_outcome}", "how the previous run ended, such as completed"],
  ["{last_result}", "the last answer of the previous run"],
];

export function JobEdit({ id }: { id: string }) {
  const [job, setJob] = useState<Job | null>(null);
  const [error, setError] = useState("");
  const [gone, setGone] = useState(false);
  useEffect(() => {
    let current = true;
    get<Job>(atJob(id)).then(
      (found) => current && setJob(found),
      (problem) => current && (problem instanceof Problem && problem.status === 404 ? setGone(true) : setError(sentence(problem))),
    );
    return () => void (current = false);
  }, [id]);
  if (gone) return <Nowhere title="Job not found">It was removed, or the link is wrong.</Nowhere>;
  if (job) return <JobForm job={job} />;
  return (
    <div className="flex-1">
      <PageHead title="Edit job" back={pathOfJob(id)} />
      <p role={error ? "alert" : "status"} className={`p-4 text-sm sm:p-6 ${error ? "text-red" : "text-quiet"}`}>{error || "Loading job"}</p>
    </div>
  );
}

/** Expand the section, so that an error in it is visible. */
const unfold = (more: HTMLDetailsElement | null | undefined) => void (more && (more.open = true));

export function JobForm({ job }: { job?: Job }) {
  const [before] = useState<JobDraft>(() => (job ? draftOf(job) : newDraft(OWN_ZONE)));
  const [draft, setDraft] = useState(before);
  const [refused, setRefused] = useState<Wrong | null>(null);
  const [busy, setBusy] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  const preview = usePreview(previewOf(draft, job?.created_at ?? null));
  const back = job ? pathOfJob(job.id) : "/jobs";

  const set = (changes: Partial<JobDraft>) => {
    setDraft((now) => ({ ...now, ...changes }));
    setRefused(null);
  };
  // Show errors from the preview before the form is submitted.
  const early = preview.wrong instanceof Problem ? { field: fieldOf(preview.wrong.fields[0] ?? "cron"), sentence: preview.wrong.message } : null;
  const wrong = refused ?? early;
  const [focus, setFocus] = useState<{ field: string } | null>(null);
  useEffect(() => {
    if (wrong && MORE.includes(wrong.field)) unfold(form.current?.querySelector("details"));
  }, [wrong?.field]);
  useEffect(() => {
    if (focus) form.current?.querySelector<HTMLElement>(`#job-${CSS.escape(focus.field)}`)?.focus();
  }, [focus]);
  const known = wrong && form.current?.querySelector(`#job-${CSS.escape(wrong.field)}`);

  const save = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    try {
      const body = bodyOf(draft, before, !job);
      const saved = job ? await patch<Job>(atJob(job.id), body) : await post<Job>("/api/jobs", body);
      relook();
      go(pathOfJob(saved.id), true);
    } catch (problem) {
      const field = problem instanceof Problem ? fieldOf(problem.fields[0] ?? "") : "";
      setRefused({ field, sentence: sentence(problem) });
      setBusy(false);
      if (field) setFocus({ field });
    }
  };

  return (
    <div className="min-h-0 flex-1 overflow-y-auto">
      <PageHead title={job ? `Edit ${job.name}` : "New job"} about="A message sent on a schedule" back={back} />
      <FormContext value={{ draft, set, wrong }}>
        <form ref={form} onInvalidCapture={(event) => unfold((event.target as HTMLElement).closest("details"))} onSubmit={(event) => void save(event)} className="mx-auto max-w-[76ch] space-y-8 p-4 sm:p-6">
          <div className="space-y-4">
            <TextField name="name" label="Name" required maxLength={200} autoFocus={!job} placeholder="Nightly tests" />
            <Field
              name="message"
              label="Message"
              hint={
                <>
                  <p className="mb-1">Placeholders, filled in for each run:</p>
                  <dl className="grid grid-cols-[auto_1fr] gap-x-3">{WORDS.map(([word, meaning]) => <div key={word} className="contents"><dt><code>{word}</code></dt><dd>{meaning}</dd></div>)}</dl>
                </>
              }
            >
              {(about) => <textarea {...about} required rows={5} value={draft.message} onChange={(event) => set({ message: event.target.value })} placeholder="Run the tests and report failures." className={FIELD + " py-2"} />}
            </Field>
          </div>
          <When preview={preview} />
          <Where />
          <More />
          {wrong && !known && <p role="alert" className="text-sm break-words text-red">{wrong.sentence}</p>}
          <div className="flex flex-wrap gap-2">
            <Button type="submit" tone="primary" disabled={busy}>{job ? "Save" : "Create job"}</Button>
            <Button tone="quiet" onClick={() => go(back)}>Cancel</Button>
          </div>
        </form>
      </FormContext>
    </div>
  );
}

function Where() {
  const { draft, set } = useForm();
  const agents = useAgents().value;
  const projects = useProjects().value.projects;
  const { sessions } = useOverview();
  const project = projects.find((one) => one.id === draft.project || one.name === draft.project);
  const usual = project?.agent || agents.default;
  const agent = draft.agent || usual;
  const like = sessions.find((session) => session.agent === agent && (session.config_options || session.models)) ?? agents.agents.find((one) => one.name === agent);
  const options = like ? optionsOf(like as Session).filter((option) => option.id === "model" || option.id === "mode") : [];
  const own = draft.session !== "one";
  return (
    <section aria-labelledby="job-where" className="space-y-4">
      <h2 id="job-where" className="mb-2 text-base font-semibold">Where</h2>
      <SelectField
        name="session"
        label="Session"
        choices={[
          { value: "new", name: "A new session for each run" },
          { value: "same", name: "One session for all runs" },
          { value: "one", name: "An existing session" },
        ]}
        hint={draft.session === "new" ? "Each run starts without memory of earlier runs." : "Each run continues the conversation."}
        onChange={(value) => set({ session: value as JobDraft["session"], session_id: value === "one" ? draft.session_id || (sessions[0]?.id ?? "") : draft.session_id })}
      />
      {!own && <SelectField name="session_id" label="Which session" choices={sessions.map((session) => ({ value: session.id, name: titleOf(session), hint: session.agent }))} />}
      <div className="grid gap-4 sm:grid-cols-2">
        {own && <SelectField name="project" label="Project" choices={[{ value: "", name: "No project" }, ...projects.map((one) => ({ value: one.id, name: one.name }))]} />}
        {own && <TextField name="workdir" label="Directory on the server" mono placeholder={project?.path ?? "a new empty directory"} maxLength={4096} />}
        <SelectField name="agent" label="Agent" choices={[{ value: "", name: own ? `Default: ${usual}` : "The session's agent" }, ...agentChoices(agents.agents)]} onChange={(value) => set({ agent: value, model: "", mode: "" })} />
        {own &&
          (["model", "mode"] as const).map((id) => {
            const option = options.find((one) => one.id === id);
            if (!option && !draft[id]) return null;
            return <SelectField key={id} name={id} label={id === "model" ? "Model" : "Mode"} choices={[{ value: "", name: `Default ${id}` }, ...(option?.options ?? []).map((one) => ({ value: one.value, name: one.name }))]} />;
          })}
        {own && <TextField name="labels" label="Labels, separated by commas" />}
      </div>
    </section>
  );
}

function More() {
  const { draft } = useForm();
  return (
    <details className="group rounded-md border border-line">
      <summary className="flex min-h-(--target) items-center gap-2 px-3 text-sm font-medium"><Icon name="right" size={12} className="text-quiet group-open:rotate-90" />More: missed runs, overlap, limits</summary>
      <div className="grid gap-4 p-3 sm:grid-cols-2">
        <SelectField name="missed" label="Runs missed while the server was down" choices={[{ value: "once", name: "Run once" }, { value: "all", name: "Run all" }, { value: "skip", name: "Skip" }]} />
        {draft.missed === "all" && <TextField name="missed_max" label="Run at most this many (the newest)" type="number" min={1} max={100} />}
        <SelectField name="overlap" label="If the previous run is still running" choices={[{ value: "wait", name: "Wait for it" }, { value: "skip", name: "Skip the new run" }, { value: "interrupt", name: "Interrupt it" }]} />
        <TextField name="jitter_s" label="Random delay of up to (seconds)" type="number" min={0} max={86_400} />
        <TextField name="max_failures" label="Pause after this many failed runs in a row" type="number" min={1} max={1000} />
        <TextField name="starts_at" label="Not before" type="datetime-local" hint="In the job's time zone." />
        <TextField name="until" label="Not after" type="datetime-local" hint="In the job's time zone." />
        <TextField name="max_runs" label="Stop after this many runs" type="number" min={1} max={1_000_000} placeholder="never" />
        {draft.session === "new" && <TextField name="keep_sessions" label="Keep sessions of this many recent runs" type="number" min={0} max={1000} placeholder="all" hint="Sessions of older runs are erased." />}
        {draft.session === "new" && <TextField name="keep_days" label="Keep sessions for this many days" type="number" min={1} max={3650} placeholder="forever" hint="Older sessions are erased." />}
      </div>
    </details>
  );
}
