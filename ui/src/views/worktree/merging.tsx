// Merges the branch of a worktree into the one that it came from: what would be merged, what stands in the way, and the
// result. Above: the session's header. Below: the API. A conflict changes nothing; the dialog offers a message that asks
// the agent to resolve it.

import { useEffect, useState, type ReactNode } from "react";
import { Button } from "../../parts/button";
import { Dialog } from "../../parts/dialog";
import { say } from "../../shell/toast";
import { refreshChanges } from "../../state/changes";
import { visible } from "../../text/visible";
import { plural } from "../../text/words";
import { at, patch, Problem, sentence } from "../../wire/api";
import { mergeWorktree, previewMerge, type Merge, type MergePreview, type Operation } from "../../wire/changes";
import type { SessionWorktree } from "../../wire/types";
import { refusedFiles, undo } from "../changes/acting";
import { putBack } from "../drafts";

type Strategy = Merge["strategy"];

const STRATEGIES: [Strategy, string, string][] = [
  ["merge", "Merge", "Keeps the commits as they are, and joins both branches."],
  ["rebase", "Rebase", "Repeats the commits after the newest one, so that the history stays a line."],
];

const UNNAMED = "Uncommitted changes";

interface Props {
  session: string;
  title: string;
  worktree: SessionWorktree;
  archived: boolean;
  busy: boolean;
  onClose: () => void;
}

export function MergeDialog({ session, title, worktree, archived, busy, onClose }: Props) {
  const [strategy, setStrategy] = useState<Strategy>("merge");
  const [preview, setPreview] = useState<MergePreview | null>(null);
  const [trouble, setTrouble] = useState("");
  const [conflicts, setConflicts] = useState<string[]>([]);
  const [message, setMessage] = useState(title);
  /** The message of the commit in the preview. */
  const [seen, setSeen] = useState(title.trim());
  const [working, setWorking] = useState(false);
  const [done, setDone] = useState<Operation | null>(null);
  const [round, setRound] = useState(0);
  const base = preview?.base ?? worktree.base ?? "its base branch";

  useEffect(() => {
    let current = true;
    // As it would be merged: what is not committed is committed first.
    previewMerge(session, { strategy, commit_message: seen || UNNAMED }).then(
      // Why the merge was refused stays: this may be the preview after it.
      (found) => current && (setPreview(found), setConflicts(found.conflicts)),
      (error) => current && (setPreview(null), setConflicts(namesOf(error)), setTrouble((before) => before || sentence(error))),
    );
    return () => void (current = false);
  }, [session, strategy, seen, round]);

  const merge = async () => {
    setWorking(true);
    setTrouble("");
    try {
      setDone(await mergeWorktree(session, { strategy, ...(preview?.uncommitted.length ? { commit_message: message.trim() } : {}) }));
    } catch (error) {
      setTrouble(sentence(error));
      setConflicts(namesOf(error));
      // Something has changed since the preview.
      if (!(error instanceof Problem && error.code === "merge_conflict")) setRound(round + 1);
    }
    setWorking(false);
    refreshChanges(session);
  };
  const ask = () => {
    putBack("draft." + session, `Merge ${base} into ${worktree.branch} and resolve the conflicts in ${conflicts.join(", ")}. Then commit the result.`);
    onClose();
  };
  if (done) return <Result session={session} done={done} archived={archived} onClose={onClose} />;

  const nothing = !!preview && preview.ahead === 0 && !preview.uncommitted.length;
  const hasNew = !!preview?.uncommitted.length && preview.commits.some((one) => one.subject === (seen || UNNAMED).split("\n")[0]);
  const stopped = busy ? "A turn is running. Wait until it ends." : nothing ? null : preview?.blocked;
  return (
    <Dialog title={`Merge into ${base}`} onClose={onClose} wide>
      <form
        className="space-y-4 text-sm"
        onSubmit={(event) => {
          event.preventDefault();
          void merge();
        }}
      >
        <p className="break-words text-quiet"><span className="font-mono text-xs">{worktree.branch}</span>{preview && <> has {plural(preview.ahead, "commit")} that {base} does not have{hasNew && ", with the new one"}{preview.behind > 0 && <>, and {base} has {plural(preview.behind, "commit")} more</>}.</>}</p>
        {!preview && !trouble && <p role="status" className="text-quiet">Looking at what would be merged.</p>}
        <fieldset className="grid gap-x-4 gap-y-1 sm:grid-cols-2">
          <legend className="sr-only">How</legend>
          {STRATEGIES.map(([value, name, hint], index) => (
            <label key={value} className="flex items-start gap-2">
              <input type="radio" name="strategy" value={value} checked={strategy === value} data-first={index ? undefined : ""} onChange={() => (setStrategy(value), setTrouble(""))} className="mt-1" />
              <span className="min-w-0">{name}<span className="block text-xs text-quiet">{hint}</span></span>
            </label>
          ))}
        </fieldset>
        {conflicts.length > 0 ? (
          <div role="alert" className="rounded-lg border border-line bg-red-soft p-3">
            <p className="mb-1 font-medium text-red">{base} and the session changed the same lines of {plural(conflicts.length, "file")}. Nothing was changed.</p>
            <Paths label="In conflict" paths={conflicts} />
            <p className="mt-2">Ask the agent to merge {base} into its branch. Then merge again.</p>
            <Button icon="pencil" className="mt-2" onClick={ask}>Write this message to the agent</Button>
          </div>
        ) : (
          trouble && <p role="alert" className="break-words text-red">{trouble}</p>
        )}
        {nothing && <p className="text-quiet">There is nothing to merge: {base} has everything.</p>}
        {!!preview?.uncommitted.length && (
          <div>
            <label htmlFor="merge-commit-message" className="mb-1 block">{plural(preview.uncommitted.length, "file is", "files are")} not committed. Commit {preview.uncommitted.length === 1 ? "it" : "them"} first, with this message:</label>
            <textarea id="merge-commit-message" required rows={2} value={message} onChange={(event) => setMessage(event.target.value)} onBlur={() => setSeen(message.trim())} className="mb-1 w-full rounded-md border border-line bg-ground px-2 py-1.5" />
            <Paths label="Not committed" paths={preview.uncommitted} />
          </div>
        )}
        {!!preview?.commits.length && (
          <Listed title={plural(preview.commits.length, "commit")}>
            {preview.commits.map((one) => <li key={one.commit} className="flex gap-2"><code className="shrink-0 font-mono text-quiet">{one.commit.slice(0, 8)}</code><span className="min-w-0 break-words">{visible(one.subject)}</span></li>)}
          </Listed>
        )}
        {!!preview?.files.length && (
          <Listed title={plural(preview.files.length, "changed file")}>
            {preview.files.map((one) => <li key={one.path} className="flex justify-between gap-3"><span className="min-w-0 font-mono break-all">{visible(one.path)}</span><span className="shrink-0 text-quiet">{one.status.replace("_", " ")}</span></li>)}
          </Listed>
        )}
        {stopped && <p className="break-words text-amber">{stopped}</p>}
        <div className="flex flex-wrap items-center justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" tone="primary" disabled={working || !preview || nothing || !!stopped || conflicts.length > 0}>{working ? "Merging" : `${preview?.uncommitted.length ? `Commit and ${strategy}` : strategy === "merge" ? "Merge" : "Rebase"} into ${base}`}</Button>
        </div>
      </form>
    </Dialog>
  );
}

const namesOf = (error: unknown) => (error instanceof Problem && error.code === "merge_conflict" ? (refusedFiles(error)?.files ?? []).map((one) => one.path) : []);

function Result({ session, done, archived, onClose }: { session: string; done: Operation; archived: boolean; onClose: () => void }) {
  const archive = () => {
    onClose();
    patch(at(session), { archived: true }).catch((error) => say(sentence(error), true));
  };
  return (
    <Dialog title={done.outcome === "done" ? "Merged" : "Not merged"} onClose={onClose}>
      <p role="status" className="mb-2 text-sm break-words">{done.message}</p>
      {done.commit && <p className="mb-2 text-sm text-quiet">Commit <code className="font-mono text-xs">{done.commit.slice(0, 10)}</code></p>}
      {done.skipped.length > 0 && <Paths label="Left as they are" paths={done.skipped.map((one) => one.path)} />}
      {done.outcome === "done" && !archived && <p className="mb-4 text-sm text-quiet">The session can go on in its worktree. If it is finished, archive it: its worktree is then removed, because nothing in it would be lost.</p>}
      <div className="flex flex-wrap justify-end gap-2">
        {done.undoable && done.outcome === "done" && <Button icon="undo" onClick={() => (onClose(), void undo(session, done))}>Undo</Button>}
        {done.outcome === "done" && !archived && <Button icon="archive" onClick={archive}>Archive the session</Button>}
        <Button tone="primary" data-first="" onClick={onClose}>Close</Button>
      </div>
    </Dialog>
  );
}

function Listed({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section>
      <h3 className="mb-1 text-xs font-semibold text-quiet">{title}</h3>
      <ul aria-label={title} tabIndex={0} className="max-h-40 space-y-0.5 overflow-y-auto rounded-md border border-line px-2 py-1 text-xs">{children}</ul>
    </section>
  );
}

function Paths({ label, paths }: { label: string; paths: string[] }) {
  return (
    <ul aria-label={label} tabIndex={0} className="max-h-32 overflow-y-auto font-mono text-xs">
      {paths.map((path) => <li key={path} className="break-all">{visible(path)}</li>)}
    </ul>
  );
}
