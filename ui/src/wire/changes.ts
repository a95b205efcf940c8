// Changed files, and what can be done with them: wire types and requests. Above: the views of changes and of sessions.
// Below: the API. Fields the page does not read are left out.

import { at, post, query, request, respond } from "./api";
import type { Diff } from "./types";

export * from "./directories";

export type FileStatus = "added" | "deleted" | "modified" | "renamed" | "type_changed";

export interface ChangedFile {
  path: string;
  old_path: string | null;
  status: FileStatus;
  old_mode: string | null;
  new_mode: string | null;
  /** Ids of the contents. Null if unknown, or if the file does not exist on this side. */
  old_id: string | null;
  new_id: string | null;
  binary: boolean;
  image: boolean;
  /** Null: not known, for example of a binary file. */
  added: number | null;
  removed: number | null;
  old_size: number | null;
  new_size: number | null;
  committed: boolean | null;
  /** Changed by somebody else too, outside the turns of this session. */
  outside: boolean;
  /** In the changes of a session: no turn changed it, only somebody else. */
  only_outside?: boolean;
  /** The agent's tools that edited it. */
  tools: { turn: number; tool_id: string }[];
  /** Only without a repository: the agent's own edits. */
  diffs?: Diff[];
}

export interface LeftAlone {
  path: string;
  kind: string;
  reason: string;
  /** Whether it changed, as far as its size and time say. */
  changed?: boolean;
}

export interface Repository {
  root: string;
  branch: string | null;
  head: string | null;
  detached: boolean;
  dirty: number;
  in_progress: string | null;
}

export interface Worktree {
  repository: string;
  path: string;
  branch: string;
  base: string;
  base_commit: string;
  ahead: number | null;
  behind: number | null;
  dirty: number | null;
  missing: boolean;
  reason: string | null;
}

export interface TurnChanges {
  turn: number;
  state: "running" | "ready" | "partial" | "unavailable";
  reason: string | null;
  file_count: number | null;
  added: number | null;
  removed: number | null;
  rewound: boolean;
}

export interface FileChange {
  path: string;
  change: string;
}

/** A file and why it was skipped, or why it is in the way. */
export interface Reason {
  path: string;
  reason: string;
}

export interface Operation {
  operation_id: string;
  action: "restore" | "discard" | "undo" | "commit" | "merge" | "clean_up";
  outcome: "done" | "conflict" | "failed";
  code: string | null;
  message: string;
  turn: number | null;
  at: string;
  files: FileChange[];
  file_count: number;
  skipped: Reason[];
  commit: string | null;
  undoable: boolean;
  undone: boolean;
}

export type Side = "new" | "old";

/** Lines of a file, in the changes of a turn or of the whole session (null). */
export interface Passage {
  path: string;
  side: Side;
  line: number;
  end_line: number | null;
  turn: number | null;
  quote: string | null;
}

export interface Comment extends Passage {
  comment_id: string;
  text: string;
  sent_turn: number | null;
  state: "sent" | "open" | "addressed" | "outdated";
  at: string;
}

export interface Changes {
  session_id: string;
  turn: number | null;
  /** `edits`: there is no repository, so these are the agent's own edits. */
  source: "snapshots" | "stored" | "edits" | "none";
  state: "ready" | "running" | "partial" | "unavailable" | "none";
  /** A sentence for people: why something is missing. */
  reason: string | null;
  node_name: string | null;
  /** False: another node has the directory, and did not answer. */
  node_responds: boolean;
  repository: (Omit<Repository, "dirty"> & { dirty: number | null }) | null;
  directory: string;
  workdir: string;
  before: string | null;
  after: string | null;
  files: ChangedFile[];
  /** Null: not known. */
  file_count: number | null;
  added: number | null;
  removed: number | null;
  truncated: boolean;
  left_alone: LeftAlone[];
  outside: { path: string; status: FileStatus }[];
  shared_with: { session_id: string; title: string; turn: number | null }[];
  elsewhere: { directory: string; files: string[]; reason: string }[];
  worktree: Worktree | null;
  turns: TurnChanges[];
  operations: Operation[];
  comments: Comment[];
}

/** How many files and lines this session's turns have changed, without what only somebody else has. */
export function ownOf({ files, file_count, added, removed }: Pick<Changes, "files" | "file_count" | "added" | "removed">): Pick<Changes, "files" | "file_count" | "added" | "removed"> {
  const theirs = files.filter((file) => file.only_outside);
  const without = (all: number | null, side: "added" | "removed") => (all === null ? null : Math.max(0, all - theirs.reduce((sum, file) => sum + (file[side] ?? 0), 0)));
  return { files: theirs.length ? files.filter((file) => !file.only_outside) : files, file_count: file_count === null ? null : file_count - theirs.length, added: without(added, "added"), removed: without(removed, "removed") };
}

export interface Shown {
  /** Null: the whole session. */
  turn: number | null;
  ignoreWhitespace?: boolean;
}

const shownQuery = ({ turn, ignoreWhitespace }: Shown) => ({ turn: turn ?? undefined, whitespace: ignoreWhitespace ? "ignore" : undefined });

export const getChanges = (session: string, shown: Shown, signal?: AbortSignal) => request<Changes>("GET", at(session, "/changes" + query(shownQuery(shown))), undefined, undefined, signal);

/** The path of the patch of these files, or of all. A download is for `git apply`, so it has the contents of binary files. */
export function patchPath(session: string, shown: Shown, paths: string[] = [], download = false): string {
  const given = new URLSearchParams(query({ ...shownQuery(shown), download: download ? 1 : undefined, binary: download ? 1 : undefined }));
  for (const path of paths) given.append("path", path);
  return at(session, "/changes/patch" + (given.size ? "?" + given.toString() : ""));
}

export interface Patch {
  text: string;
  /** The server left out the last files, because there is too much to send. */
  truncated: boolean;
}

export async function getPatch(session: string, shown: Shown, paths: string[] = [], signal?: AbortSignal): Promise<Patch> {
  const answer = await respond("GET", patchPath(session, shown, paths), undefined, undefined, signal);
  return { text: await answer.text(), truncated: answer.headers.get("perdure-truncated") === "true" };
}

/** A file's content before or after the changes. */
export async function getContent(session: string, turn: number | null, path: string, side: "before" | "after", signal?: AbortSignal): Promise<Blob> {
  const answer = await respond("GET", at(session, "/changes/content" + query({ turn, path, side })), undefined, undefined, signal);
  return answer.blob();
}

// Operations on files -----------------------------------------------------------------------------------------------------

/** What to do with files that somebody else has changed since. */
export type Outside = "keep" | "overwrite";

export interface Restore {
  turn: number;
  /** Before the turn, or after it. */
  point?: "before" | "after";
  paths?: string[] | null;
  /** Null: refuse if there are any. */
  outside?: Outside | null;
}

export interface RestorePreview {
  preview: true;
  turn: number;
  point: "before" | "after";
  files: { path: string; change: "create" | "write" | "delete" }[];
  file_count: number;
  outside: Reason[];
  left_alone: LeftAlone[];
  /** A sentence, if the branch was moved since. */
  head_moved: string | null;
}

export const previewRestore = (session: string, wanted: Restore) => post<RestorePreview>(at(session, "/restore"), { ...wanted, preview: true });
export const restoreFiles = (session: string, wanted: Restore) => post<Operation>(at(session, "/restore"), wanted);

export interface Discard {
  turn: number | null;
  path: string;
  /** Null: the whole file. */
  hunks: number[] | null;
  /** The content that the user saw. */
  new_id: string | null;
  /** Also what somebody else has changed in it, between the turns of the session. */
  outside: "overwrite" | null;
}

export const discardChanges = (session: string, wanted: Discard) => post<Operation>(at(session, "/discard"), wanted);
export const undoOperation = (session: string, operation: string, outside: Outside | null = null) => post<Operation>(at(session, "/undo"), { operation_id: operation, outside });
/** The paths that a change of these files is about: of a renamed file, both names. */
export const pathsOf = (files: ChangedFile[]): string[] => files.flatMap((file) => [file.path, ...(file.status === "renamed" && file.old_path ? [file.old_path] : [])]);
/** Refused if a file has not the content of these, unless they are committed as they are now. Null: everything in this
 * session that is not committed yet. */
export function commitFiles(session: string, files: ChangedFile[] | null, message: string, asTheyAre = false): Promise<Operation> {
  if (files === null) return post<Operation>(at(session, "/commit"), { message });
  if (asTheyAre) return post<Operation>(at(session, "/commit"), { paths: pathsOf(files), message });
  const contents = files.flatMap((file) => pathsOf([file]).map((path) => ({ path, new_id: path === file.path ? file.new_id : null })));
  return post<Operation>(at(session, "/commit"), { files: contents, message });
}

export interface Merge {
  strategy: "merge" | "rebase";
  message?: string | null;
  /** Commit what is not committed yet with this message first. */
  commit_message?: string | null;
}

export interface MergePreview {
  preview: true;
  strategy: "merge" | "rebase";
  base: string;
  branch: string;
  ahead: number;
  behind: number;
  commits: { commit: string; subject: string }[];
  files: { path: string; status: FileStatus }[];
  conflicts: string[];
  uncommitted: string[];
  /** A sentence: why it can't be merged now. */
  blocked: string | null;
}

export const previewMerge = (session: string, wanted: Merge) => post<MergePreview>(at(session, "/merge"), { ...wanted, preview: true });
export const mergeWorktree = (session: string, wanted: Merge) => post<Operation>(at(session, "/merge"), wanted);

export interface Review {
  comments: (Passage & { text: string })[];
  /** Put before the comments. */
  text: string;
  message_id: string;
  agent?: string;
  when_busy?: "queue" | "interrupt";
}

export const sendReview = (session: string, review: Review) => post<{ message_id: string }>(at(session, "/review"), review);
