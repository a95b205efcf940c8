// The branch of a session that works in its own worktree: how far it is from the branch it came from, and a button to
// merge it. Above: the session's header. Below: the session's changes, which know these figures. Figures that are
// not known are not shown.

import { Icon } from "../../parts/icons";
import { changesOf, useLoaded } from "../../state/changes";
import { plural } from "../../text/words";
import type { SessionWorktree } from "../../wire/types";

/** Names of branches that sessions get start with this. */
const PREFIX = /^perdure\//;

export function WorktreeChip({ session, worktree, onOpen }: { session: string; worktree: SessionWorktree; onOpen: () => void }) {
  const now = useLoaded(changesOf(session, null)).changes?.worktree;
  const { branch, base } = worktree;
  const facts = [
    now?.missing && "The worktree was removed.",
    now?.ahead != null && `${plural(now.ahead, "commit")} that ${base ?? "the base"} does not have.`,
    now?.behind != null && now.behind > 0 && `${plural(now.behind, "commit")} behind.`,
    now?.dirty != null && now.dirty > 0 && `${plural(now.dirty, "file")} not committed.`,
  ].filter(Boolean);
  return (
    <button
      type="button"
      onClick={onOpen}
      aria-label={["Merge.", `Branch ${branch}${base ? ` from ${base}` : ""}.`, ...facts].join(" ")}
      title={[`Branch ${branch}${base ? ` from ${base}` : ""}.`, ...facts].join(" ")}
      className="inline-flex min-h-(--target) min-w-0 items-center gap-1.5 rounded-md border border-line px-2 text-xs text-quiet hover:bg-hover hover:text-text max-md:order-last max-md:basis-full md:max-w-[45%]"
    >
      <Icon name="fork" size={12} />
      <span className={`min-w-8 truncate md:max-w-28 ${now?.missing ? "line-through" : ""}`}>{branch.replace(PREFIX, "")}</span>
      {base && <span className="max-w-24 min-w-8 truncate max-md:mr-auto">→ {base}</span>}
      {!!now?.ahead && <span className="tabular-nums">↑{now.ahead}</span>}
      {!!now?.behind && <span className="tabular-nums">↓{now.behind}</span>}
      {!!now?.dirty && <span className="whitespace-nowrap text-amber tabular-nums">±{now.dirty}</span>}
    </button>
  );
}
