// The dialogs of the changes: discard, and the operations on files so far with a way to undo them. Above: the view of
// changes. Below: acting.ts.

import { useState } from "react";
import { Button } from "../../parts/button";
import { Ago } from "../../parts/clock";
import { Dialog } from "../../parts/dialog";
import { visible } from "../../text/visible";
import { plural } from "../../text/words";
import type { ChangedFile, Operation } from "../../wire/changes";
import { undo, type Result } from "./acting";

interface Discarding {
  file: ChangedFile;
  /** Only one part of the change. */
  part: boolean;
  turn: number | null;
  onClose: () => void;
  onDiscard: () => void;
}

export function DiscardDialog({ file, part, turn, onClose, onDiscard }: Discarding) {
  const name = <span className="font-mono text-xs">{visible(file.path)}</span>;
  // In one turn's changes there is nothing of anybody else.
  const theirs = turn === null && file.outside;
  const what = part ? "this part of the change" : turn !== null ? `the changes of turn ${turn}` : file.only_outside ? "all changes" : "this session's changes";
  return (
    <Dialog title={part ? "Discard this part?" : file.status === "added" ? "Delete the new file?" : "Discard the file's changes?"} onClose={onClose}>
      <p className="mb-4 text-sm break-words">
        {file.status === "added" && !part ? <>This deletes {name}, a new file, from the working directory.</> : <>This removes {what} from {name} in the working directory.{turn !== null && " Changes of later turns stay."}</>} You can undo it.
      </p>
      {theirs && (
        <p className="mb-4 rounded-md border border-amber-line bg-amber-soft px-3 py-2 text-sm break-words text-amber">
          {file.only_outside ? "No turn of this session changed this file: you or another program did. These changes are discarded." : `You or another program also changed this file between the turns. ${part ? "If this part has such changes, they are discarded too." : "Those changes are discarded too."}${file.status === "added" && !part ? "" : " To keep them, discard the changes of one turn instead."}`}
        </p>
      )}
      <div className="flex justify-end gap-2">
        <Button data-first={theirs ? "" : undefined} onClick={onClose}>Cancel</Button>
        <Button tone="danger" data-first={theirs ? undefined : ""} onClick={() => (onClose(), onDiscard())}>{theirs ? "Discard anyway" : "Discard"}</Button>
      </div>
    </Dialog>
  );
}

/** Asks before the newest operation is undone with a key: it may be an old one. */
export function UndoDialog({ operation, onClose, onUndo }: { operation: Operation; onClose: () => void; onUndo: () => void }) {
  return (
    <Dialog title="Undo the last file operation?" onClose={onClose}>
      <p className="text-sm break-words">{visible(operation.message)}</p>
      <p className="mb-4 text-xs text-quiet"><Ago at={operation.at} /></p>
      <div className="flex justify-end gap-2">
        <Button onClick={onClose}>Cancel</Button>
        <Button tone="primary" data-first="" onClick={() => (onClose(), onUndo())}>Undo</Button>
      </div>
    </Dialog>
  );
}

const NOT_DONE: Record<Operation["action"], string> = { restore: "Not restored", discard: "Not discarded", undo: "Not undone", commit: "Not committed", merge: "Not merged", clean_up: "Not cleaned up" };

export function OperationsDialog({ session, operations, onClose }: { session: string; operations: Operation[]; onClose: () => void }) {
  const [undoing, setUndoing] = useState("");
  const [result, setResult] = useState<Result | null>(null);
  const run = async (operation: Operation) => {
    setUndoing(operation.operation_id);
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
            {one.undoable && !one.undone && one.outcome === "done" && <Button icon="undo" disabled={!!undoing} onClick={() => void run(one)}>Undo</Button>}
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
