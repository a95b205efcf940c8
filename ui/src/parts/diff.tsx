// A diff of one file with line numbers, colours and +/− signs (readable without colour). Wraps on small screens.
// Above: tool cards and permission requests. Below: difference.ts.

import { memo, useMemo, useState } from "react";
import { counts, difference, numbered } from "../text/difference";
import { visible } from "../text/visible";
import { plural, shortPath } from "../text/words";
import type { Diff } from "../wire/types";

const FIRST_LINES = 200;

export const DiffView = memo(function DiffView({ diff, workdir, shift = 0 }: { diff: Diff; workdir: string; shift?: number }) {
  const lines = useMemo(() => numbered(difference(diff.old_text, diff.new_text), diff.line, diff.line ? shift : 0), [diff.old_text, diff.new_text, diff.line, shift]);
  const [all, setAll] = useState(false);
  const shown = all ? lines : lines.slice(0, FIRST_LINES);
  const { added, removed } = counts(lines);
  return (
    <div className="overflow-hidden rounded-md border border-line">
      <div className="flex flex-wrap items-center gap-x-3 border-b border-line bg-sunken px-3 py-1 text-xs">
        <span className="min-w-0 font-mono break-all">{visible(shortPath(diff.path, workdir))}</span>
        <Counts added={added} removed={removed} />
        {diff.old_text === null && <span className="text-quiet">new file</span>}
      </div>
      <table className="diff w-full table-fixed border-collapse" aria-label={`Changes in ${shortPath(diff.path, workdir)}`}>
        <colgroup>
          <col className="w-9 max-sm:hidden" />
          <col className="w-9" />
          <col className="w-5" />
          <col />
        </colgroup>
        <tbody>
          {shown.map((line, index) =>
            line.kind === "gap" ? (
              <tr key={index} className="bg-sunken text-quiet">
                <td colSpan={4} className="px-3 text-xs">⋯ {line.text}</td>
              </tr>
            ) : (
              <tr key={index} className={line.kind === "added" ? "bg-green-soft" : line.kind === "removed" ? "bg-red-soft" : ""}>
                <td className="pr-1 text-right align-top text-xs leading-5 text-quiet select-none max-sm:hidden">{line.old}</td>
                <td className="pr-1 text-right align-top text-xs leading-5 text-quiet select-none">{line.new ?? (line.old !== undefined ? <span className="sm:hidden">{line.old}</span> : "")}</td>
                <td className={`text-center align-top select-none ${line.kind === "added" ? "text-green" : line.kind === "removed" ? "text-red" : "text-quiet"}`}>{line.kind === "added" ? "+" : line.kind === "removed" ? "−" : ""}</td>
                <td className="pr-2 align-top">{visible(line.text) || " "}</td>
              </tr>
            ),
          )}
        </tbody>
      </table>
      {lines.length > shown.length && (
        <button type="button" className="w-full border-t border-line bg-sunken px-3 py-1 text-left text-xs text-quiet hover:text-text" onClick={() => setAll(true)}>
          Show {plural(lines.length - shown.length, "more line")}
        </button>
      )}
    </div>
  );
});

/** Nothing if they are not known, or if no line changed. */
export function Counts({ added, removed }: { added: number | null; removed: number | null }) {
  if (added === null || removed === null || added + removed === 0) return null;
  return (
    <span className="font-mono text-xs whitespace-nowrap tabular-nums">
      <span className="text-green">+{added.toLocaleString("en")}</span> <span className="text-red">−{removed.toLocaleString("en")}</span>
    </span>
  );
}
