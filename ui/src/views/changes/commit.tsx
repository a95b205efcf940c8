// The dialog that commits files: which ones, with which message, and the commit that was made. Above: the view of
// changes. Below: acting.ts.

import { useState } from "react";
import { Button } from "../../parts/button";
import { Counts } from "../../parts/diff";
import { Dialog } from "../../parts/dialog";
import { CopyButton } from "../../parts/markdown";
import { keep, kept } from "../../state/kept";
import { visible } from "../../text/visible";
import { plural } from "../../text/words";
import { commitFiles, pathsOf, type Changes, type Operation } from "../../wire/changes";
import { perform, type RefusedFiles } from "./acting";
import { StatusLetter } from "./section";

/** Where a commit goes, in words. */
function target({ repository }: Changes): string {
  if (!repository) return "";
  if (repository.branch) return `The commit goes to ${repository.branch}.`;
  return `No branch is checked out, so the commit goes to a detached HEAD${repository.head ? ` after ${repository.head.slice(0, 8)}` : ""}.`;
}

/** `changes`: as they were when the dialog was opened. It commits nothing that it does not show. */
export function CommitDialog({ changes, onClose, onRefused }: { changes: Changes; onClose: () => void; onRefused: (why: RefusedFiles) => void }) {
  const draft = "commit." + changes.session_id;
  const offered = changes.files.filter((file) => file.committed !== true);
  // Those that somebody else changed too are left to the user to choose.
  const [chosen, setChosen] = useState<ReadonlySet<string>>(() => new Set(offered.filter((file) => !file.outside).map((file) => file.path)));
  const [all, setAll] = useState(false);
  const [message, setMessage] = useState(() => kept(draft) ?? "");
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState("");
  const [made, setMade] = useState<Operation | null>(null);
  const isCut = changes.truncated || (changes.file_count ?? 0) > changes.files.length;
  const choose = (path: string, on: boolean) => {
    const next = new Set(chosen);
    if (on) next.add(path);
    else next.delete(path);
    setChosen(next);
  };
  const write = (text: string) => (keep(draft, text), setMessage(text));
  const commit = async () => {
    if (busy) return;
    setBusy(true);
    setTrouble("");
    const { done, text, refused } = await perform(changes.session_id, commitFiles(changes.session_id, all ? null : pathsOf(offered.filter((file) => chosen.has(file.path))), message.trim()));
    setBusy(false);
    if (refused) return onRefused(refused);
    if (!done) return setTrouble(text);
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
        <p className="mb-2 text-sm text-quiet">{target(changes)} {changes.repository && <span className="font-mono text-xs break-all">{visible(changes.repository.root)}</span>}</p>
        <textarea data-first="" required value={message} rows={3} aria-label="Commit message" placeholder="Commit message" onChange={(event) => write(event.target.value)} onKeyDown={(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && (event.preventDefault(), event.currentTarget.form!.requestSubmit())} className="mb-3 w-full rounded-md border border-line bg-ground px-2 py-1.5 text-sm" />
        <fieldset className="mb-4" disabled={all}>
          <legend className="flex w-full items-center gap-3 pb-1 text-xs text-quiet">
            <span>{chosen.size} of {plural(offered.length, "file")}</span>
            <button type="button" className="reach underline underline-offset-2 hover:text-text" onClick={() => setChosen(new Set(chosen.size < offered.length ? offered.map((file) => file.path) : []))}>{chosen.size < offered.length ? "Choose all" : "Choose none"}</button>
          </legend>
          <ul className="max-h-64 overflow-y-auto rounded-md border border-line py-1">
            {offered.map((file) => (
              <li key={file.path}>
                <label className="flex min-h-7 cursor-pointer items-center gap-2 px-2 text-xs hover:bg-hover">
                  <input type="checkbox" checked={all || chosen.has(file.path)} onChange={(event) => choose(file.path, event.target.checked)} className="accent-(--accent)" />
                  <StatusLetter status={file.status} />
                  <span className="min-w-0 flex-1 font-mono break-all">{visible(file.path)}</span>
                  {file.outside && <span className="shrink-0 text-amber">also changed by somebody else</span>}
                  {file.added !== null && file.removed !== null && <Counts added={file.added} removed={file.removed} />}
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
        {trouble && <p role="alert" className="mb-4 text-sm break-words text-red">{trouble}</p>}
        <div className="flex justify-end gap-2">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" tone="primary" disabled={busy || !message.trim() || !(all || chosen.size)} keys="Ctrl+Enter">{busy ? "Committing" : all ? "Commit all files" : `Commit ${plural(chosen.size, "file")}`}</Button>
        </div>
      </form>
    </Dialog>
  );
}
