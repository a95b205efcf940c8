// The sentences above the diffs. Above: the view of changes. Below: telling.ts.

import { useState } from "react";
import { Link } from "../../parts/button";
import { pathOfChanges } from "../../shell/router";
import { visible } from "../../text/visible";
import { plural } from "../../text/words";
import type { Told } from "./telling";

/** What the reader has to know, one sentence each. Several are folded into one line. */
export function Notes({ told }: { told: Told[] }) {
  const [open, setOpen] = useState(false);
  if (!told.length) return null;
  const folded = told.length > 2 && !open;
  const shown = folded ? told.slice(0, 1) : told;
  return (
    <ul aria-label="Notes" className="max-h-[40%] shrink-0 overflow-y-auto border-b border-line px-4 py-1.5 text-xs text-quiet">
      {shown.map((one, index) => (
        <li key={one.key} className="flex items-start gap-2 py-0.5">
          <span aria-hidden="true" className={`mt-1.5 size-1.5 shrink-0 rounded-full ${one.warns ? "bg-amber-mark" : one.key === "running" ? "pulse bg-accent" : "bg-strong"}`} />
          <div className="min-w-0 flex-1 break-words">
            {one.details.length ? (
              <details>
                <summary>{visible(one.text)}</summary>
                <ul className="mt-1 max-h-40 overflow-y-auto pl-2">{one.details.map((detail) => <li key={detail} className="break-words">{visible(detail)}</li>)}</ul>
              </details>
            ) : (
              visible(one.text)
            )}
            {one.links.map((link, at) => <span key={link.session}>{at ? ", " : " "}<Link to={pathOfChanges(link.session, link.turn)} className="reach text-text underline underline-offset-2">{link.title}</Link></span>)}
          </div>
          {folded && index === 0 && <button type="button" className="reach shrink-0 underline underline-offset-2 hover:text-text" onClick={() => setOpen(true)}>{plural(told.length - 1, "more note")}</button>}
        </li>
      ))}
    </ul>
  );
}
