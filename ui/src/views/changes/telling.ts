// What a reader has to know about the changes shown, in sentences: what is missing and why, and who else changed files.
// Above: the view of changes. Below: nothing. Pure.

import { plural } from "../../text/words";
import type { Changes } from "../../wire/changes";

export interface Told {
  key: string;
  text: string;
  /** Something is missing or may be wrong. */
  warns: boolean;
  details: string[];
  links: { title: string; session: string; turn: number | null }[];
}

const WHY_NONE = "Nothing is known about changed files yet.";
const WHY_EDITS = "This directory is not in a Git repository, so only the agent's own edits are shown. Changes by its commands are not known.";
const IN_PROGRESS: Record<string, string> = { rebase: "A rebase", merge: "A merge", "cherry-pick": "A cherry-pick", revert: "A revert", bisect: "A bisect" };

export function tell(changes: Changes, rewound: boolean, ignoreWhitespace: boolean): Told[] {
  const told: Told[] = [];
  const add = (key: string, text: string, warns = false, details: string[] = [], links: Told["links"] = []) => told.push({ key, text, warns, details, links });
  const { state, source, reason, turn, repository } = changes;
  if (ignoreWhitespace) add("whitespace", "Changes of whitespace only are hidden, so parts of a change can't be discarded.");
  if (rewound) add("rewound", `Turn ${turn} was rewound. Its changes may still be in the files.`);
  if (state === "running") add("running", reason ?? (turn === null ? "A turn is running. These are the changes so far." : `Turn ${turn} is running. These are its changes so far.`));
  else if (source === "edits") add("edits", reason ?? WHY_EDITS, state === "unavailable");
  else if (state === "unavailable") add("unavailable", reason ?? "The changes of this turn are not known.", true);
  else if (state === "partial") add("partial", reason ?? "Some changes are not known.", true);
  else if (reason && changes.files.length) add("reason", reason);
  if (changes.node_responds === false) add("node", `The files are on ${changes.node_name ?? "another node"}, which can't be reached. These changes are as they were recorded.`, true);
  if (repository?.in_progress) add("progress", `${IN_PROGRESS[repository.in_progress] ?? "An operation"} is in progress in this repository. Finish or abort it before you commit.`, true);
  if (changes.truncated || (changes.file_count ?? 0) > changes.files.length) add("truncated", changes.file_count === null ? "There are more files than can be shown." : `Showing ${changes.files.length.toLocaleString("en")} of ${plural(changes.file_count, "file")}.`, true);
  if (changes.left_alone.length) add("left_alone", `${plural(changes.left_alone.length, "file or folder", "files or folders")} left out.`, changes.left_alone.some((one) => one.changed), changes.left_alone.map((one) => `${one.path}: ${one.reason}`));
  if (changes.outside.length) add("outside", `${plural(changes.outside.length, "file was", "files were")} changed by you or another program between this session's turns.`, true, changes.outside.map((one) => one.path));
  if (changes.shared_with.length) {
    const links = changes.shared_with.map((one) => ({ title: one.title || "Untitled session", session: one.session_id, turn: one.turn }));
    add("shared", `${changes.shared_with.length === 1 ? "Another session" : `${changes.shared_with.length} other sessions`} worked in this directory at the same time, so some of these changes may not be this session's:`, true, [], links);
  }
  for (const { directory, files, reason } of changes.elsewhere) add("elsewhere " + directory, `${plural(files.length, "file")} changed in ${directory}. ${reason}`, false, files);
  return told;
}

/** Why there is nothing to show. */
export function nothing(changes: Changes): string {
  if (changes.state === "running") return "This turn has not changed any files yet.";
  if (changes.reason && changes.source !== "edits") return changes.reason;
  if (changes.source === "none" || changes.state === "none") return WHY_NONE;
  const what = changes.source === "edits" ? "the agent has not edited any files" : "no files changed";
  return changes.turn === null ? `In this session, ${what}.` : `In turn ${changes.turn}, ${what}.`;
}
