// The list of changed files: status, counts, and whether each was viewed. A press goes to the file's diff. Above: the
// view of changes. Below: tree.ts. Only what is in sight is drawn: there may be thousands.

import { memo, useEffect, useMemo, useRef, useState } from "react";
import { Virtualizer, type VirtualizerHandle } from "virtua";
import { Counts } from "../../parts/diff";
import { Icon } from "../../parts/icons";
import type { FileState } from "../../state/changes";
import { isViewed } from "../../state/viewed";
import { visible } from "../../text/visible";
import { plural } from "../../text/words";
import type { ChangedFile } from "../../wire/changes";
import { othersOf, StatusLetter } from "./section";
import { treeOf } from "./tree";

interface Props {
  files: FileState[];
  flat: boolean;
  current: string | null;
  viewed: Record<string, string>;
  comments: ReadonlyMap<string, number>;
  onOpen: (path: string) => void;
}

const INDENT_PX = 12;

export const FileList = memo(function FileList({ files, flat, current, viewed, comments, onOpen }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const list = useRef<VirtualizerHandle>(null);
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const nodes = useMemo(() => {
    const all = files.map((one) => one.file);
    if (flat) return all.map((file) => ({ kind: "file" as const, file, name: file.path, depth: 0 }));
    const inside = (path: string) => [...closed].some((folder) => path.startsWith(folder) && path !== folder);
    return treeOf(all).filter((node) => !inside(node.kind === "folder" ? node.path : node.file.path));
  }, [files, flat, closed]);
  const fold = (path: string) => {
    const next = new Set(closed);
    if (!next.delete(path)) next.add(path);
    setClosed(next);
  };
  // Keep the file that is being read in sight.
  useEffect(() => {
    const at = nodes.findIndex((node) => node.kind === "file" && node.file.path === current);
    if (at >= 0 && scroller.current && !scroller.current.matches(":hover")) list.current?.scrollToIndex(at, { align: "nearest" });
  }, [current, nodes]);
  return (
    <div ref={scroller} className="min-h-0 flex-1 overflow-y-auto py-1">
      <Virtualizer ref={list} scrollRef={scroller} as="ul" item="li" itemSize={28}>
        {nodes.map((node) =>
          node.kind === "folder" ? (
            <button key={node.path} type="button" aria-expanded={!closed.has(node.path)} onClick={() => fold(node.path)} style={{ paddingLeft: 8 + node.depth * INDENT_PX }} className="flex min-h-7 w-full items-center gap-1 pr-2 pointer-coarse:min-h-11 text-left text-xs text-quiet hover:bg-hover hover:text-text">
              <Icon name="right" size={10} className={closed.has(node.path) ? "" : "rotate-90"} />
              <span className="truncate">{visible(node.name)}</span>
            </button>
          ) : (
            <Entry key={node.file.path} file={node.file} name={node.name} depth={node.depth} flat={flat} current={node.file.path === current} viewed={isViewed(viewed, node.file)} comments={comments.get(node.file.path) ?? 0} onOpen={onOpen} />
          ),
        )}
      </Virtualizer>
    </div>
  );
});

const Entry = memo(function Entry({ file, name, depth, flat, current, viewed, comments, onOpen }: { file: ChangedFile; name: string; depth: number; flat: boolean; current: boolean; viewed: boolean; comments: number; onOpen: (path: string) => void }) {
  const whose = othersOf(file);
  const cut = flat ? name.lastIndexOf("/") + 1 : 0;
  return (
    <button type="button" aria-current={current ? "true" : undefined} title={file.path} onClick={() => onOpen(file.path)} style={{ paddingLeft: 8 + depth * INDENT_PX }} className={`flex min-h-7 w-full items-center gap-1.5 pr-2 pointer-coarse:min-h-11 text-left text-xs hover:bg-hover ${current ? "bg-hover" : ""} ${viewed ? "text-quiet" : ""}`}>
      <StatusLetter status={file.status} />
      <span className="flex min-w-0 flex-1">
        {cut > 0 && <span className="min-w-0 shrink-[3] truncate text-quiet">{visible(name.slice(0, cut))}</span>}
        <span className={`min-w-[4ch] truncate ${file.status === "deleted" ? "line-through" : ""}`}>{visible(name.slice(cut))}</span>
      </span>
      {whose && <span title={whose} className="size-1.5 shrink-0 rounded-full bg-amber-mark"><span className="sr-only">, {whose}</span></span>}
      {comments > 0 && <span className="inline-flex items-center gap-0.5 text-quiet tabular-nums" title={plural(comments, "comment")}><Icon name="comment" size={11} />{comments}</span>}
      <Counts added={file.added} removed={file.removed} />
      <span className="inline-flex w-3 shrink-0 justify-center text-green">{viewed && <><Icon name="check" size={11} /><span className="sr-only">viewed</span></>}</span>
    </button>
  );
});
