// The dialogs of the changes: discard, and the operations on files so far with a way to undo them. Above: the view of
// changes. Below: acting.ts.

import { useState } from "react";
import { Button } from "../../parts/button";
import { Ago } from "../../parts/clock";
import { Dialog } from "../../parts/dialog";
import { visible } from "../../text/visible";
import { plural } from "../../text/words";
import type { Operation } from "../../wire/changes";
import { undo, type Result } from "./acting";

export function DiscardDialog({ path, part, turn, onClose, onDiscard }: { path: string; part: boolean; turn: number | null; onClose: () => void; onDiscard: () => void }) {
  const what = part ? "this part of the change" : turn === null ? "this session's changes" : `the changes of turn ${turn}`;
  return (
    <Dialog title={part ? "Discard this part?" : "Discard the file's changes?"} onClose={onClose}>
      <p className="mb-4 text-sm break-words">
        This removes {what} from <span className="font-mono text-xs">{visible(path)}</span> in the working directory. Later changes to the file stay. You can undo it.
      </p>
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button tone="danger" data-first="" onClick={() => (onClose(), onDiscard())}>Discard</Button>
      </div>
    </Dialog>
  );
}

const NOT_DONE: Record<Operation["action"], string> = { restore: "Not restored", discard: "Not discarded", undo: "Not undone", commit: "Not committed", merge: "Not merged", clean_up: "Not cleaned up" };

export function OperationsDialog({ session, operations, onClose }: { session: string; operations: Operation[]; onClose: () => void }) {
  const [undoing, setUndoing] = useState("");
  const [result, setResult] = useState<Result | null>(null);
  const run = async (operation: string) => {
    setUndoing(operation);
    setResult(null);
    await undo(session, operation, setResult);
    setUndoing("");
  };
  return (
    <Dialog title="File operations" onClose={onClose} wide>
      {result && <p role={result.done ? "status" : "alert"} className={`mb-2 text-sm break-words ${result.done ? "" : "text-red"}`}>{result.text}</p>}
      {!operations.length && <p className="pb-2 text-sm text-quiet">Nothing was restored, discarded, committed or merged in this session yet.</p>}
      <ul className="divide-y divide-line text-sm">
        {operations.map((one) => (
          <li key={one.operation_id} className="flex items-start gap-3 py-2">
            <div className="min-w-0 flex-1">
              <p className="break-words">
                {one.outcome !== "done" && <span className="font-medium text-red">{NOT_DONE[one.action]}: </span>}
                {visible(one.message)} {one.undone && <span className="text-quiet">Undone since.</span>}
              </p>
              <p className="text-xs text-quiet">
                <Ago at={one.at} />
                {one.commit && <> · <code className="font-mono">{one.commit.slice(0, 10)}</code></>}
                {one.file_count > 0 && <> · {plural(one.file_count, "file")}</>}
              </p>
              {one.files.length > 0 && one.files.length <= 3 && <p className="font-mono text-xs break-all text-quiet">{one.files.map((file) => visible(file.path)).join(", ")}</p>}
            </div>
            {one.undoable && !one.undone && one.outcome === "done" && <Button icon="undo" disabled={!!undoing} onClick={() => void run(one.operation_id)}>Undo</Button>}
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
