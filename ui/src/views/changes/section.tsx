// One changed file: its heading, which stays in sight, and the blocks of its diff that are near. Above: the list of
// diffs. Below: lines, comments and images. Both halves are drawn again only if something in them changed.

import { memo } from "react";
import { Button, IconButton } from "../../parts/button";
import { copyText } from "../../parts/copy";
import { Counts } from "../../parts/diff";
import { Icon } from "../../parts/icons";
import { Menu, type MenuItem } from "../../parts/menu";
import { visible } from "../../text/visible";
import { plural } from "../../text/words";
import type { ChangedFile, FileStatus } from "../../wire/changes";
import { CommentCard, DraftCard } from "./comments";
import { Images } from "./images";
import { Lines } from "./lines";
import type { Gap, Row } from "./rows";
import type { Section } from "./sections";

/** What the parts of a section can do. The same object as long as the view is open. */
export interface Doing {
  session: string;
  turn: number | null;
  fold: (path: string) => void;
  view: (path: string, seen: boolean) => void;
  unfold: (path: string, gap: Gap, how: "all" | "top" | "bottom") => void;
  /** The file as it is drawn. Null hunk: the whole file. */
  discard: (file: ChangedFile, hunk: number | null) => void;
  restore: (file: ChangedFile, point: "before" | "after") => void;
  read: (path: string) => void;
  download: (file: ChangedFile, side: "before" | "after") => void;
  toTool: (tool: { turn: number; tool_id: string }) => void;
  /** A comment was saved or given up: give the focus back to the diffs, with the cursor at its lines. */
  leave: (path: string, draft: string) => void;
}

const STATUS: Record<FileStatus, [letter: string, word: string, look: string]> = {
  added: ["A", "Added", "text-green"],
  deleted: ["D", "Deleted", "text-red"],
  modified: ["M", "Modified", "text-quiet"],
  renamed: ["R", "Renamed", "text-accent"],
  type_changed: ["T", "Type changed", "text-amber"],
};

export function StatusLetter({ status }: { status: FileStatus }) {
  const [letter, word, look] = STATUS[status];
  return (
    <span title={word} className={`w-3 shrink-0 text-center font-mono text-xs font-semibold ${look}`}>
      <span aria-hidden="true">{letter}</span>
      <span className="sr-only">{word}: </span>
    </span>
  );
}

/** Who else changed a file; null: nobody. */
export const othersOf = (file: ChangedFile): string | null => (file.only_outside ? "changed by you or another program" : file.outside ? "also changed by you or another program" : null);

/** `words`: there is room for the whole sentence. */
export function OutsideChip({ file, words = false }: { file: ChangedFile; words?: boolean }) {
  const whose = othersOf(file);
  return whose && <span title={`${whose[0]!.toUpperCase()}${whose.slice(1)}, outside this session's turns`} className="shrink-0 rounded bg-amber-soft px-1 text-xs text-amber">{words ? whose : "outside"}</span>;
}

const UNFOLD_LINES = 20;
/** Above this, a gap can be shown in steps. */
const SMALL_GAP_LINES = 40;

interface HeadProps {
  file: ChangedFile;
  collapsed: boolean;
  viewed: boolean;
  current: boolean;
  comments: number;
  /** Why this tab can't change files now; null: it can. */
  refusal: string | null;
  doing: Doing;
}

/** What discarding all changes of a file does to it. */
const DISCARDED: Partial<Record<FileStatus, string>> = { added: "Deletes the new file", deleted: "Restores it", renamed: "Gives it its old name and content" };

export const Head = memo(function Head({ file, collapsed, viewed, current, comments, refusal, doing }: HeadProps) {
  const cut = file.path.lastIndexOf("/") + 1;
  const moved = file.old_path !== null && file.old_path !== file.path;
  // In the same folder, only the name changed.
  const inFolder = !moved || file.old_path!.slice(0, file.old_path!.lastIndexOf("/") + 1) === file.path.slice(0, cut);
  const items: MenuItem[] = [
    { label: "Copy path", icon: "copy", run: () => void copyText(file.path) },
    ...file.tools.slice(-8).map((tool, index, some): MenuItem => ({ label: some.length > 1 ? `Show edit ${index + 1 + file.tools.length - some.length} in turn ${tool.turn}` : `Show the edit in turn ${tool.turn}`, icon: "tool", hint: index ? undefined : "In the conversation", run: () => doing.toTool(tool) })),
    { label: "Discard the file's changes", icon: "undo", danger: true, hint: refusal ?? `${DISCARDED[file.status] ?? "Changes it back"}; can be undone`, disabled: refusal !== null, run: () => doing.discard(file, null) },
  ];
  // What it was before the whole session, discarding its changes gives.
  if (doing.turn !== null && refusal === null) for (const point of ["before", "after"] as const) items.splice(-1, 0, { label: `Restore to ${point} turn ${doing.turn}`, icon: "undo", run: () => doing.restore(file, point) });
  const last = file.tools[file.tools.length - 1];
  return (
    <header data-head={file.path} className={`sticky top-0 z-10 flex h-(--head) items-center gap-1.5 border-y border-line bg-sunken pr-1 pl-1 ${current ? "current" : ""}`}>
      <button type="button" aria-expanded={!collapsed} aria-label={`${collapsed ? "Show" : "Hide"} the changes in ${file.path}`} onClick={() => doing.fold(file.path)} className="inline-flex h-full w-6 shrink-0 items-center justify-center rounded text-quiet hover:text-text">
        <Icon name="right" size={12} className={collapsed ? "" : "rotate-90"} />
      </button>
      <StatusLetter status={file.status} />
      <h3 className="flex min-w-0 flex-1 items-baseline overflow-hidden font-mono text-xs" title={moved ? `${file.old_path} → ${file.path}` : file.path}>
        {!inFolder && <Name path={file.old_path!} look="text-quiet" />}
        {!inFolder && <Arrow />}
        <Name path={file.path.slice(0, cut)} look="" />
        {moved && inFolder && <Name path={file.old_path!.slice(cut)} look="text-quiet" />}
        {moved && inFolder && <Arrow />}
        <Name path={file.path.slice(cut)} look="font-semibold" />
      </h3>
      <OutsideChip file={file} />
      {file.committed && <span title="These changes are committed" className="shrink-0 text-xs text-quiet max-sm:hidden">committed</span>}
      {comments > 0 && <span title={plural(comments, "comment")} className="inline-flex shrink-0 items-center gap-0.5 text-xs text-quiet tabular-nums"><Icon name="comment" size={12} />{comments}</span>}
      <Counts added={file.added} removed={file.removed} />
      {last && <IconButton icon="tool" label={`Show where the agent edited ${file.path.slice(cut)} in turn ${last.turn}`} size={13} className="max-sm:hidden" onClick={() => doing.toTool(last)} />}
      <label className={`flex min-h-(--target) shrink-0 cursor-pointer items-center gap-1.5 rounded px-1 text-xs hover:text-text ${viewed ? "text-text" : "text-quiet"}`} title="Viewed (v)">
        <input type="checkbox" checked={viewed} onChange={(event) => doing.view(file.path, event.target.checked)} className="accent-(--accent)" aria-label={`Viewed ${file.path}`} />
        <span className="max-sm:hidden">Viewed</span>
      </label>
      <Menu label={`Actions for ${file.path}`} items={items} align="end" className="inline-flex size-(--target) shrink-0 items-center justify-center rounded-md text-quiet hover:bg-hover hover:text-text">
        <Icon name="more" size={14} />
      </Menu>
    </header>
  );
});

/** A path. If there is no room, first its folders are cut, at their beginning. */
function Name({ path, look }: { path: string; look: string }) {
  const cut = path.lastIndexOf("/") + 1;
  return (
    <>
      {cut > 0 && <span className="min-w-0 shrink-[1000] truncate text-quiet [direction:rtl]"><bdi>{visible(path.slice(0, cut))}</bdi></span>}
      {cut < path.length && <span className={`min-w-[4ch] truncate ${look}`}>{visible(path.slice(cut))}</span>}
    </>
  );
}

const Arrow = () => <span className="shrink-0 text-quiet">&nbsp;→&nbsp;</span>;

interface BodyProps {
  section: Section;
  /** The blocks to draw. */
  from: number;
  to: number;
  narrow: boolean;
  cursor: number;
  chosenFrom: number;
  chosenTo: number;
  /** Whether parts of the change can be discarded. */
  discards: boolean;
  doing: Doing;
}

export const Body = memo(function Body({ section, from, to, narrow, cursor, chosenFrom, chosenTo, discards, doing }: BodyProps) {
  const { blocks, tops, rows, path, one } = section;
  return (
    <>
      <div aria-hidden="true" style={{ height: tops[from] }} />
      {blocks.slice(from, to).map((block, index) => {
        const inside = (row: number) => row >= block.from && row < block.from + block.rows.length;
        const first = block.rows[0]!;
        const chosen = chosenTo >= block.from && chosenFrom < block.from + block.rows.length;
        return (
          <div key={block.key} data-block={from + index}>
            {first.kind === "line" || first.kind === "pair" ? (
              <Lines rows={block.rows} all={rows} from={block.from} path={path} narrow={narrow} cursor={inside(cursor) ? cursor : -1} chosenFrom={chosen ? chosenFrom : -1} chosenTo={chosen ? chosenTo : -2} />
            ) : (
              <Other row={first} file={one.file} at={block.from} current={cursor === block.from} discards={discards} doing={doing} />
            )}
          </div>
        );
      })}
      <div aria-hidden="true" style={{ height: tops[tops.length - 1]! - tops[to]! }} />
    </>
  );
});

function Other({ row, file, at, current, discards, doing }: { row: Row; file: ChangedFile; at: number; current: boolean; discards: boolean; doing: Doing }) {
  switch (row.kind) {
    case "hunk":
      return <HunkRow row={row} file={file} at={at} current={current} discards={discards} doing={doing} />;
    case "comment":
      return <div className="border-y border-line bg-ground py-0.5"><CommentCard comment={row.comment} placed={row.placed} shift={row.shift} /></div>;
    case "draft":
      return <div className="border-y border-line bg-ground py-0.5"><DraftCard session={doing.session} id={row.draft.id} placed={row.placed} shift={row.shift} onDone={() => doing.leave(file.path, row.draft.id)} /></div>;
    case "images":
      return <Images session={doing.session} turn={doing.turn} file={file} />;
    case "note":
      return (
        <div data-row={at} className={`flex min-h-11 flex-wrap items-center gap-2 px-4 py-1.5 text-sm text-quiet ${current ? "current" : ""}`}>
          <span className="min-w-0 break-words">{row.text}</span>
          {row.offer === "read" && <Button onClick={() => doing.read(file.path)}>Load the diff</Button>}
          {row.offer === "content" && file.status !== "added" && <TextButton onClick={() => doing.download(file, "before")}>Download the old file</TextButton>}
          {row.offer === "content" && file.status !== "deleted" && <TextButton onClick={() => doing.download(file, "after")}>{file.status === "added" ? "Download it" : "Download the new file"}</TextButton>}
        </div>
      );
    default:
      return null;
  }
}

const TextButton = ({ onClick, children }: { onClick: () => void; children: string }) => <button type="button" onClick={onClick} className="reach mr-2 text-xs underline underline-offset-2 hover:text-text">{children}</button>;

function HunkRow({ row, file, at, current, discards, doing }: { row: Extract<Row, { kind: "hunk" }>; file: ChangedFile; at: number; current: boolean; discards: boolean; doing: Doing }) {
  const { gap, hunk } = row;
  const steps = gap !== null && (gap.count === null || gap.count > SMALL_GAP_LINES);
  const unfold = (how: "all" | "top" | "bottom") => doing.unfold(file.path, gap!, how);
  const look = "reach shrink-0 inline-flex h-6 min-w-6 items-center justify-center gap-1 rounded px-1.5 hover:bg-hover hover:text-text";
  return (
    <div data-row={at} data-hunk={hunk ? row.index : undefined} className={`group flex h-(--hunk) items-center gap-1 border-y border-line bg-sunken px-2 text-xs text-quiet ${current ? "current" : ""}`}>
      {steps && gap.index > 0 && <button type="button" className={look} title={`Show ${UNFOLD_LINES} more lines above`} aria-label={`Show ${UNFOLD_LINES} more lines after the change above`} onClick={() => unfold("top")}><Icon name="down" size={11} /></button>}
      {steps && hunk && <button type="button" className={look} title={`Show ${UNFOLD_LINES} more lines below`} aria-label={`Show ${UNFOLD_LINES} more lines before the change below`} onClick={() => unfold("bottom")}><Icon name="up" size={11} /></button>}
      {gap && <button type="button" className={`${look} whitespace-nowrap tabular-nums`} onClick={() => unfold("all")}>{gap.count === null ? "The rest of the file" : plural(gap.count, "unchanged line")}</button>}
      {!gap && hunk && !hunk.heading && <span className="px-1.5 tabular-nums">Line {hunk.new}</span>}
      {hunk?.heading && <span className="min-w-0 truncate font-mono">{visible(hunk.heading)}</span>}
      <span className="flex-1" />
      {hunk && discards && <button type="button" className={`${look} on-hover shrink-0`} title="Discard this part of the change (x)" onClick={() => doing.discard(file, row.index)}><Icon name="undo" size={11} />Discard</button>}
    </div>
  );
}

/** How many lines to add to what is shown of a gap. */
export function unfolded(gap: Gap, how: "all" | "top" | "bottom", before: { top: number; bottom: number }) {
  const rest = gap.count ?? Infinity;
  if (how === "all") return { ...before, top: before.top + rest };
  return { ...before, [how]: before[how] + Math.min(rest, UNFOLD_LINES) };
}
