// Scheduled jobs and their runs: wire types and paths. Above: the state and views of jobs. Below: nothing. Fields the
// page does not read are left out.

export type Missed = "skip" | "once" | "all";
export type Overlap = "wait" | "skip" | "interrupt";

export interface JobRun {
  id: string;
  due_at: string;
  trigger: "schedule" | "missed" | "manual";
  state: "waiting" | "starting" | "running" | "ended";
  outcome: "completed" | "failed" | "cancelled" | "skipped" | null;
  /** Why it was skipped, failed or was cancelled. */
  detail: string;
  /** Null if there is no session, or if it was erased. */
  session_id: string | null;
  turn: number | null;
  started_at: string | null;
  ended_at: string | null;
  duration_ms: number | null;
  cost_usd: number | null;
}

export interface Job {
  id: string;
  name: string;
  message: string;
  cron: string | null;
  every_s: number | null;
  time_zone: string;
  starts_at: string | null;
  until: string | null;
  max_runs: number | null;
  jitter_s: number;
  missed: Missed;
  missed_max: number;
  overlap: Overlap;
  /** `new`, `same`, or the id of a session. */
  session: string;
  agent: string | null;
  model: string | null;
  mode: string | null;
  project: string | null;
  workdir: string | null;
  labels: string[];
  max_failures: number;
  keep_sessions: number | null;
  keep_days: number | null;
  state: "active" | "paused" | "ended";
  paused_by: "person" | "failures" | null;
  /** Why the server paused it. */
  reason: string;
  /** The schedule in words. */
  schedule: string;
  created_at: string;
  next_run_at: string | null;
  next_runs: string[];
  run_count: number;
  failures: number;
  backoff_until: string | null;
  /** With session = "same": the session its runs share. */
  session_id: string | null;
  last_run: JobRun | null;
}

export interface Preview {
  schedule: string;
  time_zone: string;
  next_runs: string[];
}

export const atJob = (id: string, rest = "") => `/api/jobs/${encodeURIComponent(id)}${rest}`;

/** The label of sessions a job creates. */
export const labelOf = (id: string) => `job:${id}`;
