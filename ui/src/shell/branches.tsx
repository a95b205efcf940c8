// Child sessions below their parent in the list, collapsible. Above: the sidebar. Below: this browser's storage. A
// collapsed branch shows how many sessions it has and which need attention. It expands when one of them is opened.

import { useEffect, useState } from "react";
import { Icon } from "../parts/icons";
import type { Attention } from "../state/attention";
import { ancestors, needs } from "../state/grouping";
import { keepJson, keptJson } from "../state/kept";
import { plural } from "../text/words";
import type { Session } from "../wire/types";

const KEPT_FOLDS = 200;
const WORDS: Record<Attention, [string, string]> = { waiting: ["waiting", "text-amber font-semibold"], working: ["working", "text-accent"], accepted: ["waiting to start", ""], failed: ["failed", "text-red"], quiet: ["idle", ""] };

export interface Folds {
  folded: Set<string>;
  fold: (id: string, away: boolean) => void;
}

export function useFolds(sessions: Session[], current: string | null): Folds {
  const [folded, setFolded] = useState(() => new Set(keptJson<string[]>("folds", [])));
  const change = (ids: string[], away: boolean) =>
    setFolded((before) => {
      const after = new Set(before);
      for (const id of ids) if (away) after.add(id); else after.delete(id);
      keepJson("folds", after.size ? [...after].slice(-KEPT_FOLDS) : null);
      return after;
    });
  const known = new Map(sessions.map((session) => [session.id, session]));
  const open = current === null ? undefined : known.get(current);
  const line = open ? ancestors(open, known).map((session) => session.id).join(" ") : "";
  useEffect(() => {
    if (line) change(line.split(" "), false);
  }, [line]);
  return { folded, fold: (id, away) => change([id], away) };
}

export function Branch({ title, sessions, away, onFold }: { title: string; sessions: Session[]; away: boolean; onFold: () => void }) {
  return (
    <button type="button" aria-expanded={!away} onClick={onFold} className="flex min-h-6 w-full items-center gap-1.5 rounded-md pr-2 pl-2 text-left text-xs text-quiet hover:bg-hover hover:text-text pointer-coarse:min-h-11">
      <span className="inline-flex size-4 shrink-0 items-center justify-center"><Icon name="right" size={10} className={away ? "" : "rotate-90"} /></span>
      <span className="min-w-0 truncate tabular-nums">
        {plural(sessions.length, "child session")}<span className="sr-only"> of {title}</span>
        {away && needs(sessions).map(([mark, number]) => <span key={mark}> · <span className={WORDS[mark][1]}>{number} {WORDS[mark][0]}</span></span>)}
      </span>
    </button>
  );
}
