// The last row of a turn that changed files. Above: the conversation. Below: it leads to the view of changes.

import { memo } from "react";
import { Link } from "../parts/button";
import { Counts } from "../parts/diff";
import { Icon } from "../parts/icons";
import { pathOfChanges } from "../shell/router";
import { plural } from "../text/words";
import type { TurnChanges } from "../wire/changes";

/** What the turn changed in the files, with a link to the diffs. */
export const ChangesRow = memo(function ChangesRow({ session, changes }: { session: string; changes: TurnChanges }) {
  return (
    <p className="flex max-w-[92ch] py-1">
      <Link to={pathOfChanges(session, changes.turn)} className="group flex min-h-(--target) min-w-0 items-center gap-2 rounded-md border border-line bg-raised px-2 text-sm hover:bg-hover">
        <Icon name="diff" size={14} className="text-quiet" />
        <span>{plural(changes.file_count ?? 0, "file")} changed</span>
        <Counts added={changes.added} removed={changes.removed} />
        <span className="text-quiet group-hover:text-text">Review</span>
      </Link>
    </p>
  );
});
