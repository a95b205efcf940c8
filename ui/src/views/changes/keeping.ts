// What the view of changes remembers while it is open: closed files, unchanged lines that were asked for, and comments by
// file. Above: the view. Below: the browser's storage and the API.

import { useEffect, useMemo, useRef, useState } from "react";
import type { FileState } from "../../state/changes";
import type { Draft } from "../../state/review";
import { isViewed, view } from "../../state/viewed";
import { getContent, type ChangedFile, type Changes, type Comment } from "../../wire/changes";
import type { Unfolded } from "./rows";
import { unfolded as unfold, type Doing } from "./section";

/** Which files show only their heading: those that were viewed, unless they were opened again, and those closed by hand. */
export function useFolds(files: FileState[], viewed: Record<string, string>, session: string) {
  const [byHand, setByHand] = useState<ReadonlyMap<string, boolean>>(new Map());
  const collapsed = useMemo(() => new Set(files.filter(({ file }) => byHand.get(file.path) ?? isViewed(viewed, file)).map(({ file }) => file.path)), [files, viewed, byHand]);
  const set = (path: string, fold: boolean | null) =>
    setByHand((before) => {
      const next = new Map(before);
      if (fold === null) next.delete(path);
      else next.set(path, fold);
      return next;
    });
  return {
    collapsed,
    toggle: (path: string) => set(path, !collapsed.has(path)),
    open: (path: string) => collapsed.has(path) && set(path, false),
    foldAll: (fold: boolean) => setByHand(new Map(files.map(({ file }) => [file.path, fold]))),
    view: (file: ChangedFile, seen: boolean) => {
      view(session, file, seen);
      set(file.path, null);
    },
  };
}

type Lines = ReadonlyMap<string, readonly string[]>;
type Shown = ReadonlyMap<string, ReadonlyMap<number, Unfolded>>;

/** Unchanged lines that were asked for. They come from the file's new content, fetched once. */
export function useContents(session: string, turn: number | null, files: FileState[]) {
  const [lines, setLines] = useState<Lines>(new Map());
  const [shown, setShown] = useState<Shown>(new Map());
  // When a file changes again, its gaps are others.
  const known = useRef(new Map<string, string>());
  useEffect(() => {
    const changed = files.filter(({ file, key }) => known.current.has(file.path) && known.current.get(file.path) !== key).map(({ file }) => file.path);
    known.current = new Map(files.map(({ file, key }) => [file.path, key]));
    if (!changed.length) return;
    const without = <T,>(before: ReadonlyMap<string, T>) => new Map([...before].filter(([path]) => !changed.includes(path)));
    setLines(without);
    setShown(without);
  }, [files]);
  return {
    lines,
    unfolded: shown,
    unfold: async (path: string, gap: Parameters<Doing["unfold"]>[1], how: Parameters<Doing["unfold"]>[2]) => {
      if (!lines.has(path)) {
        const text = await (await getContent(session, turn, path, "after")).text();
        const all = text.split("\n");
        if (all[all.length - 1] === "") all.pop();
        setLines((before) => new Map(before).set(path, all));
      }
      setShown((before) => {
        const gaps = new Map(before.get(path));
        gaps.set(gap.index, unfold(gap, how, gaps.get(gap.index) ?? { top: 0, bottom: 0 }));
        return new Map(before).set(path, gaps);
      });
    },
  };
}

const NO_COMMENTS: Comment[] = [];

/** Comments and drafts by file. The maps and lists stay the same while a draft's text changes: it is no row. */
export function useComments(changes: Changes | null, turn: number | null, drafts: Draft[]) {
  const all = changes?.comments ?? NO_COMMENTS;
  const told = JSON.stringify(all);
  const comments = useMemo(() => byPath(all.filter((one) => turn === null || one.turn === null || one.turn === turn)), [told, turn]);
  const shape = JSON.stringify(drafts.map(({ text: _, ...rest }) => rest));
  const before = useRef<ReadonlyMap<string, Draft[]>>(new Map());
  const sent = useMemo(() => {
    const now = byPath(drafts.filter((one) => turn === null || one.turn === null || one.turn === turn));
    const same = (a: Draft[] | undefined, b: Draft[]) => JSON.stringify(a?.map(({ text: _, ...rest }) => rest)) === JSON.stringify(b.map(({ text: _, ...rest }) => rest));
    before.current = new Map([...now].map(([path, some]) => [path, same(before.current.get(path), some) ? before.current.get(path)! : some]));
    return before.current;
  }, [shape, turn]);
  return { comments, sent };
}

function byPath<T extends { path: string }>(some: T[]): ReadonlyMap<string, T[]> {
  const found = new Map<string, T[]>();
  for (const one of some) found.set(one.path, [...(found.get(one.path) ?? []), one]);
  return found;
}

export function countOf(comments: ReadonlyMap<string, Comment[]>, drafts: ReadonlyMap<string, Draft[]>): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const some of [comments, drafts]) for (const [path, list] of some) counts.set(path, (counts.get(path) ?? 0) + list.length);
  return counts;
}
