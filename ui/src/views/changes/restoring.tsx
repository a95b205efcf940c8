// The dialog that restores files to before or after a turn: first what would change, then the choice about files that
// somebody else changed. Above: the view of changes. Below: the API.

import { useEffect, useState } from "react";
import { Button } from "../../parts/button";
import { Dialog } from "../../parts/dialog";
import { visible } from "../../text/visible";
import { plural } from "../../text/words";
import { sentence } from "../../wire/api";
import { pathsOf, previewRestore, restoreFiles, type ChangedFile, type Outside, type RestorePreview } from "../../wire/changes";
import { countOf, Restored } from "../restored";
import { perform, tell } from "./acting";

interface Props {
  session: string;
  turn: number;
  point: "before" | "after";
  /** Null: all files. */
  file: ChangedFile | null;
  onClose: () => void;
}

export function RestoreDialog({ session, turn, point, file, onClose }: Props) {
  const [preview, setPreview] = useState<RestorePreview | null>(null);
  const [outside, setOutside] = useState<Outside>("keep");
  const [trouble, setTrouble] = useState("");
  const [busy, setBusy] = useState(false);
  const [round, setRound] = useState(0);
  const wanted = { turn, point, paths: file && pathsOf([file]) };
  useEffect(() => {
    let current = true;
    previewRestore(session, wanted).then(
      (found) => current && setPreview(found),
      (error) => current && (setPreview(null), setTrouble(sentence(error))),
    );
    return () => void (current = false);
  }, [round]);

  const count = preview ? countOf(preview, outside) : 0;
  const keeps = !!preview?.outside.length && outside === "keep";
  const restore = async () => {
    setBusy(true);
    setTrouble("");
    const result = await perform(session, restoreFiles(session, { ...wanted, outside: preview?.outside.length ? outside : null }));
    setBusy(false);
    if (result.done) {
      onClose();
      return tell(session, result);
    }
    setTrouble(result.text);
    // Somebody has changed files since the list was made: show the new one.
    if (result.refused) setRound(round + 1);
  };
  return (
    <Dialog title={`Restore to ${point} turn ${turn}?`} onClose={onClose}>
      <div className="space-y-3 text-sm">
        <p className="break-words">{file ? <span className="font-mono text-xs">{visible(file.path)}</span> : "All files"} will be as {point === "before" ? "before" : "after"} turn {turn}{keeps && ", except those that you keep"}. The conversation stays. You can undo it.</p>
        {!preview && !trouble && <p role="status" className="text-quiet">Looking at which files would change.</p>}
        {preview && (preview.file_count ? <Restored preview={preview} outside={outside} onOutside={setOutside} /> : <p role="status">No file would change.</p>)}
        {trouble && <p role="alert" className="break-words text-red">{trouble}</p>}
        <div className="flex flex-wrap justify-end gap-2">
          <Button data-first="" onClick={onClose}>Cancel</Button>
          <Button tone="primary" disabled={busy || !count} onClick={() => void restore()}>{busy ? "Restoring" : preview ? `Restore ${plural(count, "file")}` : "Restore"}</Button>
        </div>
      </div>
    </Dialog>
  );
}
