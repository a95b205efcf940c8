// Presses on line numbers: one line, or several by dragging or with Shift. A finger scrolls, so it chooses lines by taps.
// Above: the list of diffs, which begins a comment on the lines. Below: the attributes of the drawn rows.

import { useRef, type MouseEvent, type PointerEvent as ReactPointerEvent } from "react";
import type { Side } from "../../wire/changes";
import { withinHunk, type Cursor } from "./cursor";
import { indexOf } from "./rows";
import type { Section } from "./sections";

interface Under {
  path: string;
  row: number;
  side: Side | null;
}

/** The row under the pointer; only in this file if one is given. */
function rowUnder(target: Element | null, path?: string): Under | null {
  const row = target?.closest<HTMLElement>("[data-row]");
  const inside = row?.closest<HTMLElement>("[data-path]")?.dataset.path;
  if (!row || inside === undefined || (path !== undefined && inside !== path)) return null;
  return { path: inside, row: Number(row.dataset.row), side: (target!.closest<HTMLElement>("[data-side]")?.dataset.side as Side | undefined) ?? null };
}

const onNumber = (target: Element) => !!target.closest(".number")?.textContent;

interface Given {
  sections: Section[];
  cursor: Cursor | null;
  /** Whether a comment in this file is open and empty, so that a tap extends it. */
  isBegun: (path: string) => boolean;
  choose: (cursor: Cursor) => void;
  comment: (path: string, from: number, to: number, side: Side) => void;
  focus: () => void;
}

export function usePressing(given: Given) {
  const now = useRef(given);
  now.current = given;
  const sectionOf = (path: string) => now.current.sections.find((one) => one.path === path);
  const choose = (path: string, from: number, to: number, side: Side) => {
    const rows = sectionOf(path)?.rows;
    if (rows?.[from] && rows[to]) now.current.choose({ path, start: from === to ? null : rows[from].key, key: rows[to].key, side });
  };
  /** Where the lines chosen last begin; -1 if they are in another file. */
  const begun = (path: string): number => {
    const { cursor } = now.current;
    const key = cursor?.path === path ? (cursor.start ?? cursor.key) : null;
    return key === null ? -1 : indexOf(sectionOf(path)?.rows ?? [], key);
  };
  const reach = (path: string, from: number, to: number) => {
    const section = sectionOf(path);
    return section ? withinHunk(section, from, to) : to;
  };

  const onPointerDown = (event: ReactPointerEvent<HTMLElement>) => {
    const target = event.target as Element;
    const under = event.button === 0 ? rowUnder(target) : null;
    if (!under) return;
    const side = under.side ?? "new";
    // Select text on this side only.
    event.currentTarget.dataset.selecting = side;
    if (!onNumber(target) || event.pointerType === "touch") return;
    event.preventDefault();
    now.current.focus();
    const extended = event.shiftKey ? begun(under.path) : -1;
    const from = extended < 0 ? under.row : extended;
    let to = reach(under.path, from, under.row);
    choose(under.path, from, to, side);
    const move = (moved: PointerEvent) => {
      const next = rowUnder(document.elementFromPoint(moved.clientX, moved.clientY), under.path);
      if (!next) return;
      to = reach(under.path, from, next.row);
      choose(under.path, from, to, side);
    };
    const stop = () => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", release);
      removeEventListener("pointercancel", stop);
    };
    const release = () => {
      stop();
      now.current.comment(under.path, from, to, side);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", release);
    addEventListener("pointercancel", stop);
  };

  const onClick = (event: MouseEvent<HTMLElement>) => {
    const target = event.target as Element;
    if ((event.nativeEvent as PointerEvent).pointerType !== "touch" || !onNumber(target)) return;
    const under = rowUnder(target);
    if (!under) return;
    const side = under.side ?? "new";
    const first = now.current.isBegun(under.path) ? begun(under.path) : -1;
    const from = first < 0 ? under.row : first;
    const to = reach(under.path, from, under.row);
    choose(under.path, from, to, side);
    now.current.comment(under.path, from, to, side);
  };
  return { onPointerDown, onClick };
}
