// Runs an operation on files and says how it ended, with a way to undo it. Above: the views that change files, and
// undoing.tsx, which asks what to do if files have changed since. Below: the API. A refusal that names files is returned,
// so that a dialog can list them.

import { useSyncExternalStore } from "react";
import { say } from "../../shell/toast";
import { refreshChanges } from "../../state/changes";
import { visible } from "../../text/visible";
import { Problem, sentence } from "../../wire/api";
import { undoOperation, type Operation, type Outside, type Reason } from "../../wire/changes";

export interface RefusedFiles {
  message: string;
  files: Reason[];
}

/** How an operation ended. */
export interface Result {
  /** Null: it was not done. */
  done: Operation | null;
  text: string;
  refused: RefusedFiles | null;
}

/** The files that a refusal names; null if it names none. */
export function refusedFiles(error: unknown): RefusedFiles | null {
  if (!(error instanceof Problem) || error.status !== 409) return null;
  const named = error.about.outside ?? error.about.files;
  if (!Array.isArray(named) || !named.length) return null;
  return { message: error.message, files: named.map((one) => (typeof one === "string" ? { path: one, reason: "" } : (one as unknown as Reason))) };
}

export async function perform(session: string, work: Promise<Operation>): Promise<Result> {
  try {
    const found = await work;
    const skipped = found.skipped.length ? ` Left as they are: ${found.skipped.map((one) => visible(one.path)).join(", ")}.` : "";
    return { done: found.outcome === "done" ? found : null, text: visible(found.message) + skipped, refused: null };
  } catch (error) {
    return { done: null, text: visible(sentence(error)), refused: refusedFiles(error) };
  } finally {
    refreshChanges(session);
  }
}

/** Say the result in a toast. */
export const tell = (session: string, { done, text }: Result) => say(text, !done, done?.undoable ? { label: "Undo", run: () => void undo(session, done) } : null);

/** Run it. Returns the operation, or null if it was refused. */
export async function act(session: string, work: Promise<Operation>, refused: (why: RefusedFiles) => void): Promise<Operation | null> {
  const result = await perform(session, work);
  if (result.refused) refused(result.refused);
  else tell(session, result);
  return result.done;
}

// Undo ------------------------------------------------------------------------------------------------------------------

/** An undo that waits for an answer: files have changed since. */
export interface AskedUndo {
  session: string;
  operation: Operation;
  why: RefusedFiles;
  told: (result: Result) => void;
}

let asked: AskedUndo | null = null;
export const askedUndo = () => asked;
const listeners = new Set<() => void>();

export function askUndo(undo: AskedUndo | null): void {
  asked = undo;
  for (const listener of listeners) listener();
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export const useAskedUndo = () => useSyncExternalStore(subscribe, askedUndo);

/** Without `outside`, ask what to do with files that have changed since. `told` gets the result. */
export async function undo(session: string, operation: Operation, told: (result: Result) => void = (result) => tell(session, result), outside: Outside | null = null): Promise<void> {
  const result = await perform(session, undoOperation(session, operation.operation_id, outside));
  if (!result.refused) return told(result);
  // After an answer, files are in the way for another reason, so there is nothing more to choose.
  if (outside) told({ ...result, text: `${result.text} ${result.refused.files.map((one) => visible(one.path)).join(", ")}` });
  else askUndo({ session, operation, why: result.refused, told });
}
