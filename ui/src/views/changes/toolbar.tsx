// The heading of the changes: which turn is shown, how much changed, how much was viewed, and the view's settings. Above:
// the view of changes. Below: buttons and menus.

import { Button, IconButton } from "../../parts/button";
import { copyText } from "../../parts/copy";
import { Counts } from "../../parts/diff";
import { Icon } from "../../parts/icons";
import { Menu, type MenuItem } from "../../parts/menu";
import { go, pathOfChanges } from "../../shell/router";
import { attempt, say } from "../../shell/toast";
import { plural } from "../../text/words";
import { getPatch, ownOf, patchPath, type Changes, type TurnChanges } from "../../wire/changes";
import { download } from "../../wire/download";

interface Props {
  session: string;
  turn: number | null;
  changes: Changes | null;
  viewed: number;
  list: boolean;
  onList: () => void;
  split: boolean;
  canSplit: boolean;
  onSplit: () => void;
  ignoreWhitespace: boolean;
  onWhitespace: () => void;
  flat: boolean;
  onFlat: () => void;
  onFoldAll: (fold: boolean) => void;
  allFolded: boolean;
  /** Restore all files. Null: not possible now. */
  onRestore: ((point: "before" | "after") => void) | null;
  onOperations: () => void;
  onCommit: (() => void) | null;
  busy: boolean;
  /** Whether there is room for few buttons only. */
  narrow: boolean;
}

const MOST_TURNS = 200;

export function Tools(props: Props) {
  const { session, turn, changes, viewed, list, onList, split, canSplit, onSplit, onCommit, busy, narrow } = props;
  const files = changes?.files.length ?? 0;
  const own = changes && ownOf(changes);
  return (
    <>
      <div className="min-w-0 flex-1">
        <h2 className="flex min-w-0 items-center gap-2 text-base leading-5 font-semibold">
          <span className={narrow ? "sr-only" : ""}>Changes</span>
          <Menu label={`Changes of: ${turn === null ? "the whole session" : `turn ${turn}`}`} items={scopes(session, turn, changes?.turns ?? [])} className="reach inline-flex min-w-0 items-center gap-1 rounded px-1 text-sm font-normal text-quiet hover:bg-hover hover:text-text">
            <span className="truncate">{turn === null ? "Whole session" : `Turn ${turn}`}</span>
            <Icon name="down" size={10} />
          </Menu>
        </h2>
        <p className="flex items-center gap-x-2 overflow-hidden px-0.5 text-xs whitespace-nowrap text-quiet tabular-nums">
          {own && own.files.length > 0 && (
            <>
              {own.file_count !== null && <span>{plural(own.file_count, "file")}</span>}
              <Counts added={own.added} removed={own.removed} />
              <span aria-hidden="true">·</span>
              <span className="truncate" role="status">{viewed.toLocaleString("en")} of {own.files.length.toLocaleString("en")} viewed</span>
            </>
          )}
        </p>
      </div>
      {onCommit && !narrow && <Button icon="commit" onClick={onCommit} disabled={busy} title={busy ? "A turn is running" : "Commit changed files"}>Commit</Button>}
      {files > 1 && <IconButton icon="tree" label="List of files (f)" pressed={list} size={14} onClick={onList} />}
      {canSplit && files > 0 && <IconButton icon="split" label={split ? "Show one column" : "Show side by side"} pressed={split} size={14} onClick={onSplit} />}
      <Menu label="More about the changes" items={more(props)} align="end" className="inline-flex size-(--target) shrink-0 items-center justify-center rounded-md text-quiet hover:bg-hover hover:text-text">
        <Icon name="more" />
      </Menu>
    </>
  );
}

function scopes(session: string, turn: number | null, turns: TurnChanges[]): MenuItem[] {
  const known = turns.slice(-MOST_TURNS).toReversed();
  return [
    { label: "Whole session", checked: turn === null, run: () => go(pathOfChanges(session)) },
    ...known.map((one): MenuItem => ({ label: `Turn ${one.turn}`, hint: about(one), checked: one.turn === turn, run: () => go(pathOfChanges(session, one.turn)) })),
  ];
}

/** A turn's changes in a few words. A number that is not known is not shown. */
function about(one: TurnChanges): string {
  if (one.state === "running") return "Running";
  if (one.state === "unavailable") return one.reason ?? "Not known";
  const counts = one.file_count === null ? "" : one.file_count === 0 ? "No files" : `${plural(one.file_count, "file")}${one.added === null || one.removed === null ? "" : ` +${one.added.toLocaleString("en")} −${one.removed.toLocaleString("en")}`}`;
  return [counts, one.rewound ? "rewound" : ""].filter(Boolean).join(", ");
}

export const downloadPatch = (session: string, turn: number | null) => void attempt(download(patchPath(session, { turn }, [], true), `${turn === null ? "session" : `turn-${turn}`}.patch`));

export function copyPatch(session: string, turn: number | null): void {
  const copy = async () => {
    const patch = await getPatch(session, { turn });
    if (await copyText(patch.text)) say(patch.truncated ? "Copied the first part of the patch: all of it is too large." : "Copied the patch.");
  };
  void attempt(copy());
}

/** The patch has all changes, even if the view hides some: without those of whitespace, it could not be applied. */
function more({ session, turn, changes, ignoreWhitespace, onWhitespace, flat, onFlat, onFoldAll, allFolded, onRestore, onOperations, onCommit, busy, narrow }: Props): MenuItem[] {
  const has = !!changes?.files.length;
  return [
    ...(onCommit && narrow ? [{ label: "Commit", icon: "commit" as const, disabled: busy, hint: busy ? "A turn is running" : undefined, run: onCommit }] : []),
    { label: "Ignore whitespace", checked: ignoreWhitespace, many: true, run: onWhitespace },
    { label: "Files without folders", checked: flat, many: true, run: onFlat },
    { label: allFolded ? "Open all files" : "Close all files", icon: "list", disabled: !has, run: () => onFoldAll(!allFolded) },
    { label: "Copy patch", icon: "copy", disabled: !has, run: () => copyPatch(session, turn) },
    { label: "Download patch", icon: "download", disabled: !has, run: () => downloadPatch(session, turn) },
    ...(onRestore ? (["before", "after"] as const).map((point): MenuItem => ({ label: `Restore all files to ${point} turn ${turn}`, icon: "undo", run: () => onRestore(point) })) : []),
    { label: "File operations", icon: "clock", hint: "Discarded, restored, committed; with undo", run: onOperations },
  ];
}
