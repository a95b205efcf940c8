// Files that stand in the way of an operation, as a dialog: why nothing was changed and, for an undo, what to do with
// these files. Above: the app, because an undo is also offered in toasts. Below: acting.ts.

import type { ReactNode } from "react";
import { Button } from "../../parts/button";
import { Dialog } from "../../parts/dialog";
import { visible } from "../../text/visible";
import { plural } from "../../text/words";
import type { Outside } from "../../wire/changes";
import { Reasons } from "../restored";
import { askUndo, undo, useAskedUndo, type RefusedFiles } from "./acting";

export function RefusedDialog({ why, title = "No file was changed", onClose, children }: { why: RefusedFiles; title?: string; onClose: () => void; children?: ReactNode }) {
  return (
    <Dialog title={title} onClose={onClose}>
      <p className="mb-3 text-sm break-words">{visible(why.message)}</p>
      <Reasons list={why.files} />
      <div className="mt-4 flex flex-wrap justify-end gap-2">{children ?? <Button tone="primary" data-first="" onClick={onClose}>Close</Button>}</div>
    </Dialog>
  );
}

/** Asks what to do with the files that have changed since the operation that is to be undone. */
export function Undoing() {
  const asked = useAskedUndo();
  if (!asked) return null;
  const close = () => askUndo(null);
  const choose = (outside: Outside) => {
    close();
    void undo(asked.session, asked.operation, asked.told, outside);
  };
  const count = asked.why.files.length;
  // If all of its files have changed, there is nothing else to undo.
  const keeps = count < asked.operation.file_count;
  return (
    <RefusedDialog key={asked.operation.operation_id} why={asked.why} title={`Undo? ${plural(count, "file has", "files have")} changed since`} onClose={close}>
      <Button data-first={keeps ? undefined : ""} onClick={close}>Cancel</Button>
      <Button tone="danger" onClick={() => choose("overwrite")}>Overwrite</Button>
      {keeps && <Button tone="primary" data-first="" onClick={() => choose("keep")} title="Undo the rest, and leave these files as they are">Keep these</Button>}
    </RefusedDialog>
  );
}
