// The job form's values, and the request body built from them: only the fields the user changed. Above: the job form.
// Below: schedule.ts for units and times. All values are strings, as in input fields.

import { fieldTime, secondsOf, splitSeconds, type Unit } from "../text/schedule";
import type { Job, Missed, Overlap } from "../wire/jobs";
import type { Json } from "../wire/types";

export interface JobDraft {
  name: string;
  message: string;
  kind: "cron" | "every";
  cron: string;
  every: string;
  unit: Unit;
  time_zone: string;
  starts_at: string;
  until: string;
  /** `one` is an existing session: `session_id`. */
  session: "new" | "same" | "one";
  session_id: string;
  project: string;
  workdir: string;
  agent: string;
  model: string;
  mode: string;
  labels: string;
  missed: Missed;
  missed_max: string;
  overlap: Overlap;
  jitter_s: string;
  max_runs: string;
  max_failures: string;
  keep_sessions: string;
  keep_days: string;
}

/** The server's defaults, sent for empty fields that can't be null. */
const DEFAULTS = { jitter_s: 0, missed_max: 10, max_failures: 5 };
/** Null means not set. */
const NUMBERS = ["max_runs", "keep_sessions", "keep_days"] as const;
const TEXTS = ["agent", "project", "workdir", "model", "mode"] as const;

export function newDraft(zone: string): JobDraft {
  const empty = { name: "", message: "", starts_at: "", until: "", session_id: "", project: "", workdir: "", agent: "", model: "", mode: "", labels: "", max_runs: "", keep_sessions: "", keep_days: "" };
  return { ...empty, kind: "cron", cron: "0 9 * * *", every: "30", unit: "minutes", time_zone: zone, session: "new", missed: "once", overlap: "wait", missed_max: "10", jitter_s: "0", max_failures: "5" };
}

export function draftOf(job: Job): JobDraft {
  const every = splitSeconds(job.every_s ?? 1800);
  const own = job.session === "new" || job.session === "same";
  const text = (value: string | number | null) => (value === null ? "" : String(value));
  return {
    name: job.name,
    message: job.message,
    kind: job.cron === null ? "every" : "cron",
    cron: job.cron ?? "0 9 * * *",
    every: every.number,
    unit: every.unit,
    time_zone: job.time_zone,
    starts_at: job.starts_at ? fieldTime(job.starts_at, job.time_zone) : "",
    until: job.until ? fieldTime(job.until, job.time_zone) : "",
    session: own ? (job.session as "new" | "same") : "one",
    session_id: own ? "" : job.session,
    project: text(job.project),
    workdir: text(job.workdir),
    agent: text(job.agent),
    model: text(job.model),
    mode: text(job.mode),
    labels: job.labels.join(", "),
    missed: job.missed,
    missed_max: text(job.missed_max),
    overlap: job.overlap,
    jitter_s: text(job.jitter_s),
    max_runs: text(job.max_runs),
    max_failures: text(job.max_failures),
    keep_sessions: text(job.keep_sessions),
    keep_days: text(job.keep_days),
  };
}

type Body = Record<string, Json>;

const labelsOf = (text: string) => [...new Set(text.split(",").map((one) => one.trim()).filter(Boolean))];
const timing = (draft: JobDraft): Body => (draft.kind === "cron" ? { cron: draft.cron.trim() } : { every_s: secondsOf(draft.every, draft.unit) });

/** An existing session already has these values, so the job can't set them. */
const effective = (draft: JobDraft): JobDraft => (draft.session === "one" ? { ...draft, project: "", workdir: "", model: "", mode: "", labels: "" } : draft);

/** The fields that differ from the form's initial values. A new job always includes the required ones. */
export function bodyOf(given: JobDraft, before: JobDraft, isNew: boolean): Body {
  const draft = effective(given);
  const body: Body = {};
  const changed = (...names: (keyof JobDraft)[]) => names.some((name) => draft[name] !== before[name]);
  const zoned = changed("time_zone");
  if (isNew || changed("name")) body.name = draft.name;
  if (isNew || changed("message")) body.message = draft.message;
  if (isNew || changed("kind", ...(draft.kind === "cron" ? (["cron"] as const) : (["every", "unit"] as const)))) Object.assign(body, timing(draft));
  if (isNew || zoned) body.time_zone = draft.time_zone.trim();
  // These times have no zone, so a new time zone changes which moment they mean.
  for (const name of ["starts_at", "until"] as const) if (changed(name) || (zoned && draft[name])) body[name] = draft[name] || null;
  if (changed("session", "session_id")) body.session = draft.session === "one" ? draft.session_id : draft.session;
  for (const name of TEXTS) if (changed(name)) body[name] = draft[name].trim() || null;
  if (changed("labels")) body.labels = labelsOf(draft.labels);
  if (changed("missed")) body.missed = draft.missed;
  if (changed("overlap")) body.overlap = draft.overlap;
  for (const name of NUMBERS) if (changed(name)) body[name] = draft[name] === "" ? null : Number(draft[name]);
  for (const name of Object.keys(DEFAULTS) as (keyof typeof DEFAULTS)[]) if (changed(name)) body[name] = draft[name] === "" ? DEFAULTS[name] : Number(draft[name]);
  return body;
}

/** The fields for `POST /api/jobs/preview`; null if the form has no schedule yet. */
export function previewOf(draft: JobDraft, created_at: string | null): Body | null {
  const asked: Body = { ...timing(draft), time_zone: draft.time_zone.trim() };
  if (!asked.time_zone || (draft.kind === "cron" ? !asked.cron : !(Number.isInteger(asked.every_s) && Number(asked.every_s) > 0))) return null;
  if (draft.until) asked.until = draft.until;
  if (draft.starts_at) asked.starts_at = draft.starts_at;
  // The interval of an existing job counts from its creation.
  else if (created_at && draft.kind === "every") asked.starts_at = new Date(Date.parse(created_at) + Number(asked.every_s) * 1000).toISOString();
  return asked;
}

/** The form field for a field name in a server error: `labels[0]` belongs to `labels`. */
export const fieldOf = (name: string) => (name === "every_s" ? "every" : name.replace(/[.[].*$/, ""));

/** The fields in the collapsed "More" section. */
export const MORE = ["missed", "missed_max", "overlap", "jitter_s", "starts_at", "until", "max_runs", "max_failures", "keep_sessions", "keep_days"];
