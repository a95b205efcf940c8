// Files that stand in the way of an operation, as a dialog: why nothing was changed and, for an undo, what to do with
// these files. Above: the app, because an undo is also offered in toasts. Below: acting.ts.

import type { ReactNode } from "react";
import { Button } from "../../parts/button";
import { Dialog } from "../../parts/dialog";
import { visible } from "../../text/visible";
import type { Outside } from "../../wire/changes";
import { Reasons } from "../restored";
import { askUndo, undo, useAskedUndo, type RefusedFiles } from "./acting";

export function RefusedDialog({ why, onClose, children }: { why: RefusedFiles; onClose: () => void; children?: ReactNode }) {
  return (
    <Dialog title="No file was changed" onClose={onClose}>
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
  return (
    <RefusedDialog key={asked.operation} why={asked.why} onClose={close}>
      <Button onClick={close}>Cancel</Button>
      <Button tone="danger" onClick={() => choose("overwrite")}>Overwrite</Button>
      <Button tone="primary" data-first="" onClick={() => choose("keep")} title="Undo the rest, and leave these files as they are">Keep these</Button>
    </RefusedDialog>
  );
}
