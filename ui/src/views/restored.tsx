// What a restore would do to the files, and the choice about those that somebody else changed. Above: the dialogs that
// rewind, retry and restore. Below: nothing.

import { visible } from "../text/visible";
import { plural } from "../text/words";
import type { LeftAlone, Outside, Reason, RestorePreview } from "../wire/changes";

/** How many files would change, after this choice. */
export const countOf = (preview: RestorePreview, outside: Outside) => preview.file_count - (outside === "keep" ? preview.outside.length : 0);

const KIND_WORDS = { create: "created again", write: "changed back", delete: "deleted" };

export function Restored({ preview, outside, onOutside }: { preview: RestorePreview; outside: Outside; onOutside: (outside: Outside) => void }) {
  const theirs = new Set(preview.outside.map((one) => one.path));
  return (
    <div className="space-y-3 text-sm">
      <ul aria-label="Files to restore" tabIndex={0} className="max-h-48 overflow-y-auto rounded-md border border-line px-2 py-1 text-xs">
        {preview.files.map((file) => (
          <li key={file.path} className="flex items-baseline justify-between gap-3 py-0.5">
            <span className="min-w-0 font-mono break-all">{visible(file.path)}</span>
            <span className={`shrink-0 ${file.change === "delete" && !theirs.has(file.path) ? "text-red" : "text-quiet"}`}>{theirs.has(file.path) && outside === "keep" ? "kept" : KIND_WORDS[file.change]}</span>
          </li>
        ))}
        {preview.file_count > preview.files.length && <li className="py-0.5 text-quiet">and {plural(preview.file_count - preview.files.length, "more file")}</li>}
      </ul>
      {preview.outside.length > 0 && (
        <fieldset>
          <legend className="mb-1 text-amber">{plural(preview.outside.length, "file was", "files were")} changed outside this session</legend>
          <Reasons list={preview.outside} />
          {(["keep", "overwrite"] as const).map((choice) => (
            <label key={choice} className="flex items-center gap-2 py-0.5">
              <input type="radio" name="outside" value={choice} checked={outside === choice} onChange={() => onOutside(choice)} />
              {choice === "keep" ? "Keep these changes" : "Overwrite them. You can undo it."}
            </label>
          ))}
        </fieldset>
      )}
      {preview.left_alone.length > 0 && (
        <details>
          <summary className="text-xs text-quiet">{plural(preview.left_alone.length, "path is", "paths are")} left alone</summary>
          <Reasons list={preview.left_alone} />
        </details>
      )}
      {preview.head_moved && <p className="text-xs break-words text-amber">{preview.head_moved}</p>}
    </div>
  );
}

/** Paths, and a sentence about each. */
export function Reasons({ list }: { list: (Reason | LeftAlone)[] }) {
  return (
    <ul className="mb-1 max-h-32 space-y-0.5 overflow-y-auto text-xs" tabIndex={0} aria-label="Paths and reasons">
      {list.map((one) => <li key={one.path} className="break-words"><span className="font-mono">{visible(one.path)}</span> <span className="text-quiet">{one.reason}</span></li>)}
    </ul>
  );
}
