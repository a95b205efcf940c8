// Rewinding and retrying a turn, and, if wanted, restoring the files to before it in the same step. Above: the session
// view. Below: the API, which first says which files would change. If no file would, nothing is asked, unless the answer
// took so long that the dialog is open already. After a restore, a toast offers to undo it.

import { useEffect, useRef, useState } from "react";
import { Button } from "../parts/button";
import { Dialog } from "../parts/dialog";
import { say } from "../shell/toast";
import { refreshChanges } from "../state/changes";
import { keep, kept } from "../state/kept";
import type { Turn } from "../state/session";
import type { SessionStore } from "../state/store";
import { visible } from "../text/visible";
import { plural } from "../text/words";
import { at, post, Problem, sentence } from "../wire/api";
import { previewRestore, type Operation, type Outside, type RestorePreview } from "../wire/changes";
import { filesBack } from "./attachments";
import { refusedFiles, undo } from "./changes/acting";
import { takeBack } from "./drafts";
import { countOf, Restored } from "./restored";

export interface Rewinding {
  action: "rewind" | "retry";
  turn: Turn;
  /** Only for a retry: another text, or another agent. */
  text?: string;
  agent?: string;
}

/** Null: leave the files alone. */
type Restoring = { outside: Outside | null } | null;

/** Which files would change: not known yet, known, or not to be known, with the reason. */
type Answer = { kind: "awaited" } | { kind: "known"; preview: RestorePreview } | { kind: "refused"; reason: string };

interface Open {
  wanted: Rewinding;
  answer: Answer;
  done: (done: boolean) => void;
}

/** Show the dialog without an answer after this time, so that the user can go on without the files. */
const PATIENCE_MS = 500;
const REMEMBERED = "rewind.files";
/** There are no files to restore, so there is nothing to ask. After any other refusal, the user decides. */
const WITHOUT_FILES: readonly string[] = ["no_repository", "not_found"];

async function look(store: SessionStore, turn: Turn): Promise<Answer & { asks: boolean }> {
  try {
    const preview = await previewRestore(store.id, { turn: turn.turn, point: "before" });
    return { kind: "known", preview, asks: preview.file_count > 0 };
  } catch (error) {
    return { kind: "refused", reason: sentence(error), asks: !(error instanceof Problem && WITHOUT_FILES.includes(error.code)) };
  }
}

export function useRewinding(store: SessionStore) {
  const [open, setOpen] = useState<Open | null>(null);
  const asked = useRef(0);
  useEffect(() => () => void (asked.current += 1), [store]);

  /** Returns whether it was done, and not cancelled or refused. */
  const begin = async (wanted: Rewinding): Promise<boolean> => {
    const mine = ++asked.current;
    const isCurrent = () => asked.current === mine;
    return new Promise((resolve) => {
      const done = (result: boolean) => {
        asked.current += 1;
        setOpen(null);
        resolve(result);
      };
      let isOpen = false;
      const show = (answer: Answer) => {
        if (!isCurrent()) return;
        isOpen = true;
        setOpen({ wanted, answer, done });
      };
      const timer = setTimeout(() => show({ kind: "awaited" }), PATIENCE_MS);
      void look(store, wanted.turn).then((answer) => {
        clearTimeout(timer);
        // Never act by surprise: what the user reads is only changed, not carried out.
        if (answer.asks || isOpen) show(answer);
        else if (isCurrent()) void carryOut(store, wanted, null).then(done, (error) => (say(sentence(error), true), done(false)));
      });
    });
  };
  const dialog = open && <RewindDialog key={open.wanted.turn.turn} store={store} open={open} onAnswer={(answer) => setOpen((now) => now && { ...now, answer })} />;
  return { begin, dialog };
}

/** Do it. Returns whether it is done; throws if the server refuses. */
async function carryOut(store: SessionStore, { action, turn, text, agent }: Rewinding, restoring: Restoring): Promise<boolean> {
  const files = restoring ? { files: "restore", outside: restoring.outside } : {};
  let operation: Operation | undefined;
  if (action === "retry") {
    const body = { turn: turn.turn, ...(text ? { text } : {}), ...(agent ? { agent } : {}), ...store.revision, ...files };
    operation = (await post<{ operation?: Operation }>(at(store.id, "/retry"), body)).operation;
  } else {
    const attachments = await filesBack(store.id, turn.message?.attachments ?? []);
    await takeBack("draft." + store.id, turn.message?.text ?? "", attachments, async () => {
      operation = (await post<{ operation?: Operation }>(at(store.id, "/rewind"), { turn: turn.turn, ...store.revision, ...files })).operation;
    });
  }
  if (operation) tell(store.id, operation);
  return true;
}

function tell(session: string, operation: Operation): void {
  refreshChanges(session);
  say(visible(operation.message), false, operation.undoable ? { label: "Undo restore", run: () => void undo(session, operation) } : null);
}

function RewindDialog({ store, open: { wanted, answer, done }, onAnswer }: { store: SessionStore; open: Open; onAnswer: (answer: Answer) => void }) {
  const { action, turn } = wanted;
  const preview = answer.kind === "known" && answer.preview.file_count > 0 ? answer.preview : null;
  // Not preselected in a dialog that is already open: it could change under a click.
  const [restores, setRestores] = useState(() => !!preview && kept(REMEMBERED) === "restore");
  const [outside, setOutside] = useState<Outside>("keep");
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState("");
  const last = store.state.visible.at(-1) ?? turn.turn;
  const isRestoring = restores && !!preview;

  const run = async () => {
    if (busy) return;
    setBusy(true);
    setTrouble("");
    if (preview) keep(REMEMBERED, restores ? "restore" : null);
    try {
      done(await carryOut(store, wanted, isRestoring ? { outside: preview.outside.length ? outside : null } : null));
    } catch (error) {
      setTrouble(sentence(error));
      setBusy(false);
      // Somebody has changed files since the list was made: show the new one.
      if (refusedFiles(error)) onAnswer(await look(store, turn));
    }
  };
  const verb = action === "retry" ? "Retry" : "Rewind";
  const does = isRestoring ? `${verb} and restore ${plural(countOf(preview, outside), "file")}` : preview ? `${verb}, keep the files` : answer.kind === "known" ? verb : `${verb} without the files`;
  return (
    <Dialog title={action === "retry" ? `Retry from turn ${turn.turn}?` : `Rewind to before turn ${turn.turn}?`} onClose={() => done(false)}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void run();
        }}
      >
        <p className="mb-3 text-sm">{last > turn.turn ? `Turns ${turn.turn} to ${last} leave` : `Turn ${turn.turn} leaves`} the conversation{action === "retry" ? ", and the message is sent again" : ""}.</p>
        {preview ? (
          <>
            <label className="flex min-h-(--target) items-center gap-2 text-sm">
              <input type="checkbox" data-first="" checked={restores} onChange={(event) => setRestores(event.target.checked)} />
              Also restore the files to before this message
            </label>
            {restores && <Restored preview={preview} outside={outside} onOutside={setOutside} />}
          </>
        ) : answer.kind === "refused" ? (
          <p role="alert" className="text-sm break-words text-red">The files can't be restored. {answer.reason}</p>
        ) : (
          <p role="status" className="text-sm text-quiet">{answer.kind === "known" ? "No file would change." : "Looking at which files have changed since."}</p>
        )}
        {trouble && <p role="alert" className="mt-2 text-sm break-words text-red">{trouble}</p>}
        <div className="mt-4 flex flex-wrap justify-end gap-2">
          <Button data-first={preview ? undefined : ""} onClick={() => done(false)}>Cancel</Button>
          <Button type="submit" tone="primary" disabled={busy}>{does}</Button>
        </div>
      </form>
    </Dialog>
  );
}
