// The dialog that commits files: which ones, with which message, and the commit that was made. It is about the whole
// session, whichever changes are shown. Above: the view of changes. Below: acting.ts.

import { useEffect, useState } from "react";
import { Button } from "../../parts/button";
import { Counts } from "../../parts/diff";
import { Dialog } from "../../parts/dialog";
import { CopyButton } from "../../parts/markdown";
import { keep, kept } from "../../state/kept";
import { visible } from "../../text/visible";
import { plural } from "../../text/words";
import { sentence } from "../../wire/api";
import { commitFiles, getChanges, type ChangedFile, type Changes, type Operation } from "../../wire/changes";
import { Reasons } from "../restored";
import { perform, type RefusedFiles } from "./acting";
import { OutsideChip, StatusLetter } from "./section";

/** Where a commit goes, in words. */
function target({ repository }: Changes): string {
  if (!repository) return "";
  if (repository.branch) return `The commit goes to ${repository.branch}.`;
  return `No branch is checked out, so the commit goes to a detached HEAD${repository.head ? ` after ${repository.head.slice(0, 8)}` : ""}.`;
}

interface Loaded {
  changes: Changes | null;
  trouble: string;
}

/** The changes of the session as they are now. They stay the same until they are loaded again: the dialog commits nothing
 * that it does not show. */
function useWhole(session: string): Loaded & { reload: () => void } {
  const [loaded, setLoaded] = useState<Loaded>({ changes: null, trouble: "" });
  const [round, setRound] = useState(0);
  useEffect(() => {
    let current = true;
    getChanges(session, { turn: null }).then(
      (changes) => current && setLoaded({ changes, trouble: "" }),
      (error) => current && setLoaded({ changes: null, trouble: sentence(error) }),
    );
    return () => void (current = false);
  }, [session, round]);
  return { ...loaded, reload: () => setRound(round + 1) };
}

const NONE: ChangedFile[] = [];

export function CommitDialog({ session, onClose }: { session: string; onClose: () => void }) {
  const draft = "commit." + session;
  const { changes, trouble: unloaded, reload } = useWhole(session);
  const offered = changes?.files.filter((file) => file.committed !== true) ?? NONE;
  /** What the user has chosen otherwise. */
  const [decided, setDecided] = useState<ReadonlyMap<string, boolean>>(new Map());
  // Those that somebody else changed too are left to the user to choose.
  const chosen = new Set(offered.filter((file) => decided.get(file.path) ?? !file.outside).map((file) => file.path));
  const [refused, setRefused] = useState<RefusedFiles | null>(null);
  const [asTheyAre, setAsTheyAre] = useState(false);
  const [all, setAll] = useState(false);
  const [message, setMessage] = useState(() => kept(draft) ?? "");
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState("");
  const [made, setMade] = useState<Operation | null>(null);
  const isCut = !!changes && (changes.truncated || (changes.file_count ?? 0) > changes.files.length);
  const choose = (path: string, on: boolean) => setDecided(new Map(decided).set(path, on));
  const chooseAll = (on: boolean) => setDecided(new Map(offered.map((file) => [file.path, on])));
  const write = (text: string) => (keep(draft, text), setMessage(text));
  const commit = async () => {
    if (busy) return;
    setBusy(true);
    setTrouble("");
    const { done, text, refused } = await perform(session, commitFiles(session, all ? null : offered.filter((file) => chosen.has(file.path)), message.trim(), asTheyAre));
    setBusy(false);
    setRefused(refused);
    setAsTheyAre(false);
    if (!done) {
      setTrouble(refused ? "" : text);
      // Files have changed since: show them as they are now, and let the user decide again.
      if (refused) reload();
      return;
    }
    write("");
    setMade(done);
  };
  if (made) {
    return (
      <Dialog key="made" title="Committed" onClose={onClose}>
        <p className="mb-2 text-sm break-words">{visible(made.message)}</p>
        {made.commit && (
          <p className="mb-4 flex items-center gap-2 text-sm">
            <span className="text-quiet">Commit</span>
            <code className="code min-w-0 truncate rounded bg-sunken px-2">{made.commit}</code>
            <CopyButton text={made.commit} label="Copy commit id" />
          </p>
        )}
        <div className="flex justify-end"><Button tone="primary" data-first="" onClick={onClose}>Close</Button></div>
      </Dialog>
    );
  }
  return (
    <Dialog key="asking" title="Commit" onClose={onClose} wide>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void commit();
        }}
      >
        {changes && <p className="mb-2 text-sm text-quiet">{target(changes)} {changes.repository && <span className="font-mono text-xs break-all">{visible(changes.repository.root)}</span>}</p>}
        {!changes && !unloaded && <p role="status" className="mb-2 text-sm text-quiet">Looking at which files changed.</p>}
        {refused && (
          <div role="alert" className="mb-3 rounded-lg border border-line bg-red-soft p-3 text-sm">
            <p className="mb-1 font-medium break-words text-red">{visible(refused.message)}</p>
            <Reasons list={refused.files} />
            <label className="mt-2 flex items-start gap-2">
              <input type="checkbox" checked={asTheyAre} onChange={(event) => setAsTheyAre(event.target.checked)} className="mt-1 accent-(--accent)" />
              <span className="min-w-0">Commit the chosen files as they are now, with changes that this page does not show</span>
            </label>
          </div>
        )}
        <textarea data-first="" required value={message} rows={3} aria-label="Commit message" placeholder="Commit message" onChange={(event) => write(event.target.value)} onKeyDown={(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && (event.preventDefault(), event.currentTarget.form!.requestSubmit())} className="mb-3 w-full rounded-md border border-line bg-ground px-2 py-1.5 text-sm" />
        <fieldset className="mb-4" disabled={all}>
          <legend className="flex w-full items-center gap-3 pb-1 text-xs text-quiet">
            <span>{chosen.size} of {plural(offered.length, "file")}</span>
            <button type="button" className="reach underline underline-offset-2 hover:text-text" onClick={() => chooseAll(chosen.size < offered.length)}>{chosen.size < offered.length ? "Choose all" : "Choose none"}</button>
          </legend>
          <ul className="max-h-64 overflow-y-auto rounded-md border border-line py-1">
            {offered.map((file) => (
              <li key={file.path}>
                <label className="flex min-h-7 cursor-pointer items-center gap-2 px-2 text-xs hover:bg-hover">
                  <input type="checkbox" checked={all || chosen.has(file.path)} onChange={(event) => choose(file.path, event.target.checked)} className="accent-(--accent)" />
                  <StatusLetter status={file.status} />
                  <span className="flex min-w-0 flex-1 flex-wrap items-center justify-between gap-x-2 py-0.5">
                    <span className="min-w-0 font-mono break-all">{visible(file.path)}</span>
                    <OutsideChip file={file} words />
                  </span>
                  <Counts added={file.added} removed={file.removed} />
                </label>
              </li>
            ))}
          </ul>
        </fieldset>
        {isCut && (
          <label className="mb-4 flex items-center gap-2 text-sm">
            <input type="checkbox" checked={all} onChange={(event) => setAll(event.target.checked)} className="accent-(--accent)" />
            Commit all uncommitted files of the session, also those that are not listed
          </label>
        )}
        {(trouble || unloaded) && <p role="alert" className="mb-4 text-sm break-words text-red">{trouble || unloaded}</p>}
        <div className="flex justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" tone="primary" disabled={busy || !message.trim() || !(all || chosen.size)} keys="Ctrl+Enter">{busy ? "Committing" : all ? "Commit all files" : `Commit ${plural(chosen.size, "file")}`}</Button>
        </div>
      </form>
    </Dialog>
  );
}
