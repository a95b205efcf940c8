// Formats numbers, times and states, so that they read the same everywhere. Above: every view. Below: nothing.

export function duration(ms: number): string {
  if (ms < 950) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A running duration, in whole seconds, so that it ticks without flicker. */
export const counting = (ms: number) => (ms < 10_000 ? `${Math.max(0, Math.floor(ms / 1000))} s` : duration(ms));

export function ago(at: string | number, now: number): string {
  const seconds = Math.max(0, (now - (typeof at === "number" ? at : Date.parse(at))) / 1000);
  if (seconds < 45) return "now";
  if (seconds < 3600) return `${Math.max(1, Math.round(seconds / 60))} min`;
  if (seconds < 86_400) return `${Math.round(seconds / 3600)} h`;
  if (seconds < 7 * 86_400) return `${Math.round(seconds / 86_400)} d`;
  return new Date(at).toLocaleDateString(undefined, { day: "numeric", month: "short" });
}

export function exact(at: string | null | undefined): string {
  return at ? new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }) : "";
}

/** The time alone if it is today, otherwise with the date. */
export function until(at: string, now: number): string {
  const then = new Date(at);
  const today = then.toDateString() === new Date(now).toDateString();
  return then.toLocaleString(undefined, today ? { timeStyle: "short" } : { dateStyle: "medium", timeStyle: "short" });
}

/** Text with its ISO timestamps replaced by readable times. */
export const withTimes = (text: string) => text.replace(/\b(\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d))(?: \(\d{9,13}\))?/g, (_, at: string) => exact(at));

export function count(value: number): string {
  if (value < 1000) return String(value);
  if (value < 10_000) return `${(value / 1000).toFixed(1)}k`;
  if (value < 1_000_000) return `${Math.round(value / 1000)}k`;
  return `${(value / 1_000_000).toFixed(1)}M`;
}

export function bytes(value: number): string {
  if (value < 1024) return `${Math.round(value)} B`;
  if (value < 1024 * 1024) return `${(value / 1024).toFixed(value < 10_240 ? 1 : 0)} KB`;
  if (value < 1024 ** 3) return `${(value / 1024 / 1024).toFixed(1)} MB`;
  return `${(value / 1024 ** 3).toFixed(1)} GB`;
}

export function money(value: number): string {
  if (value === 0) return "$0";
  if (value < 0.00005) return "< $0.0001";
  return value < 0.01 ? `$${value.toFixed(4)}` : `$${value.toFixed(2)}`;
}

export const plural = (number: number, one: string, many = one + "s") => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

/** A path relative to the session's working directory, if it is inside it. */
export function shortPath(path: string, workdir: string): string {
  return workdir && path.startsWith(workdir + "/") ? path.slice(workdir.length + 1) : path;
}

export const lastName = (path: string) => path.replace(/\/+$/, "").split("/").pop() || path;

export const CONTEXT_WORDS = { live: "live", resumed: "resumed", fresh: "replayed" } as const;

/** Why a turn could not continue in the agent's own session. */
const REASONS: Record<string, string> = {
  fresh_requested: "a context restart was requested",
  resume_off: "resuming is turned off",
  no_native_session: "it has no session to resume yet",
  native_session_shared: "it used the same session id for another session",
  native_session_poisoned: "its session is no longer usable",
  no_prior_answer: "it had not answered in this session yet",
  last_turn_not_confirmed: "its last turn was cut off, so its session may be incomplete",
  history_changed: "the history changed",
  scope_changed: "the setting for which turns it receives changed",
  workdir_changed: "the working directory changed",
  runtime_changed: "the agent's program changed",
  agent_cannot_resume: "it can't resume sessions",
};

/** One line: the conversation was replayed to an agent, and why. */
export const replayedWords = (agent: string, reason: string) => `The conversation was replayed to ${agent}: ${REASONS[reason] ?? reason.replace(/_/g, " ")}.`;

/** Why a turn started in this context. */
export function contextReason(context: string, reason: string): string {
  if (reason === "first_turn") return "This is the first turn, so there is no earlier context.";
  if (context === "live") return "The agent process still holds the conversation.";
  if (context === "resumed") return "The agent resumed its own session, which holds the conversation.";
  return replayedWords("the agent", reason);
}

export const STOP_WORDS: Record<string, string> = {
  end_turn: "done",
  cancelled: "interrupted",
  failed: "failed",
  timed_out: "timed out",
  max_turns: "reached its step limit",
  refusal: "refused",
};

/** A line of markdown as plain text, for compact lists. */
export const withoutMarks = (line: string) => line.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").replace(/[*`_]{1,3}(\S)/g, "$1").replace(/(\S)[*`_]{1,3}/g, "$1").replace(/^[#>|\-\s]+/, "");

/** A workspace: a directory created for a session. Its forks use it too. */
const MADE_FOLDER = /^s_[0-9a-f]{16,}$/;

/** Where a session works: its project, the repository of its worktree, its working directory, or a workspace (its own or
 * that of the session it was forked from). */
export function placeOf(session: { id: string; project: string | null; workdir: string; worktree?: { repository: string } | null }): string {
  const folder = lastName(session.workdir);
  if (session.project || session.worktree) return session.project ?? lastName(session.worktree!.repository);
  return folder === session.id ? "own workspace" : MADE_FOLDER.test(folder) ? "another session's workspace" : folder;
}
