// Blocks of lines, unified or side by side. Above: a file's section. Below: painting.ts computes their HTML. Presses on
// the numbers are handled by the list of diffs: thousands of lines need no handlers of their own.

import { memo, type ReactNode } from "react";
import type { PatchLine } from "../../text/patch";
import { usePainting, type Painting } from "./painting";
import type { Row } from "./rows";

interface Props {
  rows: Row[];
  all: Row[];
  from: number;
  path: string;
  /** One column of numbers instead of two. */
  narrow: boolean;
  /** The row with the cursor; -1 if it is elsewhere. */
  cursor: number;
  /** The chosen rows. */
  chosenFrom: number;
  chosenTo: number;
}

export const Lines = memo(function Lines({ rows, all, from, path, narrow, cursor, chosenFrom, chosenTo }: Props) {
  const painting = usePainting(rows, all, from, path);
  return (
    <>
      {rows.map((row, index) => {
        const at = from + index;
        const chosen = `${at === cursor ? "current " : ""}${at >= chosenFrom && at <= chosenTo ? "chosen " : ""}`;
        if (row.kind === "line") return <Unified key={row.key} at={at} line={row.line} narrow={narrow} chosen={chosen} painting={painting} />;
        if (row.kind !== "pair") return null;
        return (
          <div key={row.key} data-row={at} className={`line pair ${chosen}`}>
            <Half line={row.left} side="old" painting={painting} />
            <Half line={row.right} side="new" painting={painting} />
          </div>
        );
      })}
    </>
  );
});

function Unified({ at, line, narrow, chosen, painting }: { at: number; line: PatchLine; narrow: boolean; chosen: string; painting: Painting }): ReactNode {
  const kind = line.kind === "same" ? "" : line.kind;
  return (
    <div data-row={at} className={`line ${kind} ${chosen}${narrow ? "narrow" : ""}`}>
      {narrow ? (
        <span className="number" data-side={line.new ? "new" : "old"}>{line.new || line.old}</span>
      ) : (
        <>
          <span className="number" data-side="old">{line.old || ""}</span>
          <span className="number" data-side="new">{line.new || ""}</span>
        </>
      )}
      <span className="sign" />
      <span className="text" dangerouslySetInnerHTML={{ __html: painting.get(line) ?? "" }} />
    </div>
  );
}

function Half({ line, side, painting }: { line: PatchLine | null; side: "old" | "new"; painting: Painting }): ReactNode {
  if (!line) {
    return (
      <>
        <span className="absent" />
        <span className="absent" />
        <span className="absent" />
      </>
    );
  }
  const kind = line.kind === "same" ? "" : line.kind;
  return (
    <>
      <span className={`number ${kind}`} data-side={side}>{line[side]}</span>
      <span className={`sign ${kind}`} />
      <span className={`text ${kind}`} data-side={side} dangerouslySetInnerHTML={{ __html: painting.get(line) ?? "" }} />
    </>
  );
}
