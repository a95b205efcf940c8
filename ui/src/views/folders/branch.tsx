// The state of a repository in a few words: branch, uncommitted changes, and what git is in the middle of. Above: lists
// of folders, the new-session view, the header of a session. Below: nothing. What is not known is not shown.

import { Icon } from "../../parts/icons";
import { plural } from "../../text/words";

interface State {
  branch: string | null;
  dirty: number | null;
  head?: string | null;
  detached?: boolean | null;
  in_progress?: string | null;
}

export function BranchState({ state, className = "" }: { state: State; className?: string }) {
  const name = state.branch ?? (state.detached && state.head ? `detached at ${state.head.slice(0, 8)}` : "");
  if (!name && !state.dirty) return null;
  return (
    <span className={`inline-flex min-w-0 items-center gap-1 text-xs text-quiet ${className}`}>
      {name && <Icon name="fork" size={12} />}
      {name && <span className="truncate" title={name}>{name}</span>}
      {!!state.dirty && <span className="shrink-0 whitespace-nowrap">{name && "· "}{changedWords(state.dirty)}</span>}
      {state.in_progress && <span className="shrink-0 whitespace-nowrap text-amber">· {state.in_progress} in progress</span>}
    </span>
  );
}

export const changedWords = (dirty: number) => plural(dirty, "changed file");
