// Moves the line cursor and does what its keys say: comment, mark as viewed, discard, go to the tool. Above: the list of
// diffs, which draws the cursor. Below: cursor.ts decides where it goes, windowing.ts scrolls there.

import { useLayoutEffect, useRef, useState } from "react";
import { copyText } from "../../parts/copy";
import { register } from "../../shell/commands";
import { say } from "../../shell/toast";
import { begin, draftsOf, drop } from "../../state/review";
import { isViewed } from "../../state/viewed";
import type { Side } from "../../wire/changes";
import { focusSoon } from "./comments";
import { extended, hunkAt, moved, passageOf, sideOf, spoken, spotOf, type Cursor, type Move, type Spot } from "./cursor";
import { indexOf, nearest, type Row } from "./rows";
import type { Doing } from "./section";
import type { Section } from "./sections";
import type { useWindow } from "./windowing";

interface Given {
  sections: Section[];
  window: ReturnType<typeof useWindow>;
  viewed: Record<string, string>;
  split: boolean;
  doing: Doing;
  /** Whether the keys apply. */
  within: () => boolean;
}

export function useMoving({ sections, window, viewed, split, doing, within }: Given) {
  const [cursor, setCursor] = useState<Cursor | null>(null);
  /** What a screen reader says. */
  const [announced, setAnnounced] = useState("");

  /** The cursor's row when it was last there. */
  const known = useRef<{ path: string; row: Row; at: number } | null>(null);
  // If its row is gone, such as one that was discarded, the cursor goes to the nearest one.
  useLayoutEffect(() => {
    const section = cursor?.key != null ? sections.find((one) => one.path === cursor.path) : undefined;
    if (!section?.rows.length) return;
    const { path, rows, one } = section;
    const at = indexOf(rows, cursor!.key!);
    if (at >= 0) known.current = { path, row: rows[at]!, at };
    else if (one.state !== "loading" && known.current?.path === path && known.current.row.key === cursor!.key) setCursor({ ...cursor!, key: rows[nearest(rows, known.current.row, known.current.at)]!.key, start: null });
  }, [sections, cursor]);

  const place = (spot: Spot, changes: Partial<Cursor> = {}) => {
    const section = sections[spot.section]!;
    const row = section.rows[spot.row];
    // Only side by side, the side can be chosen.
    const side = sideOf(row, split ? (cursor?.side ?? "new") : "new");
    setCursor({ path: section.path, key: row?.key ?? null, start: null, side, ...changes });
    setAnnounced(spoken(section, spot.row, side));
    window.show(spot, true);
  };
  /** The cursor, or the first line in sight. */
  const spot = (): Spot | null => {
    const known = spotOf(sections, cursor);
    if (known && (cursor!.key === null || known.row >= 0)) return known;
    const at = window.anchor.current;
    return at && spotOf(sections, { path: at.path, key: at.key, start: null, side: "new" });
  };
  const move = (by: 1 | -1, how: Move) => {
    const at = spot();
    const next = at && (cursor || how !== "line" ? moved(sections, at, by, how) : at);
    if (next) place(next);
  };
  const extend = (by: 1 | -1) => {
    const at = spot();
    const next = at && extended(sections, at, by);
    if (next) place(next, { start: cursor?.start ?? cursor?.key ?? null });
  };
  const turnSide = (side: Side) => {
    if (cursor && split) setCursor({ ...cursor, side });
  };
  const chosen = (section: Section): [number, number] => {
    if (cursor?.path !== section.path || cursor.start === null) return [-1, -2];
    const [a, b] = [indexOf(section.rows, cursor.start), cursor.key === null ? -1 : indexOf(section.rows, cursor.key)];
    return a < 0 || b < 0 ? [-1, -2] : [Math.min(a, b), Math.max(a, b)];
  };

  const comment = (path: string, from: number, to: number, side: Side) => {
    const section = sections.find((one) => one.path === path);
    const passage = section && passageOf(section, from, to, side, doing.turn);
    if (!passage) return;
    // An empty comment that is open moves to these lines.
    for (const one of draftsOf(doing.session)) if (one.open && !one.text.trim()) drop(doing.session, one.id);
    const id = begin(doing.session, passage);
    focusSoon(id);
    window.goTo({ path, key: "draft:" + id, nearest: true });
  };
  const commentHere = () => {
    const at = spotOf(sections, cursor);
    const section = at && sections[at.section]!;
    if (!section || at.row < 0 || !passageOf(section, at.row, at.row, cursor!.side, null)) return say("Move to a line first, with j and k or the arrow keys.");
    const [from, to] = chosen(section);
    comment(section.path, from < 0 ? at.row : from, from < 0 ? at.row : to, cursor!.side);
  };
  const enter = () => {
    const at = spotOf(sections, cursor);
    const section = at && sections[at.section];
    if (!section) return;
    const row = section.rows[at.row];
    if (!row) doing.fold(section.path);
    else if (row.kind === "hunk" && row.gap) doing.unfold(section.path, row.gap, row.gap.count === null ? "top" : "all");
    else if (row.kind === "note" && row.offer === "read") doing.read(section.path);
    else commentHere();
  };
  const viewHere = () => {
    const at = spot();
    if (!at) return;
    const { path, one } = sections[at.section]!;
    const seen = !isViewed(viewed, one.file);
    doing.view(path, seen);
    const next = sections[at.section + 1];
    if (seen && next) {
      setCursor({ path: next.path, key: null, start: null, side: "new" });
      window.goTo({ path: next.path, key: null, nearest: false });
    } else setCursor({ path, key: null, start: null, side: "new" });
  };
  const discardHere = (whole: boolean) => {
    const at = spotOf(sections, cursor);
    if (!at) return;
    const section = sections[at.section]!;
    const hunk = hunkAt(section, at.row);
    if (whole) doing.discard(section.one.file, null);
    else if (hunk !== null) doing.discard(section.one.file, hunk);
    else say("Move to a change first, with n and p. Shift+X discards all changes of the file.");
  };
  const restoreHere = (point: "before" | "after") => {
    const at = spot();
    if (at) doing.restore(sections[at.section]!.one.file, point);
  };
  const copyHere = () => {
    const at = spot();
    if (at) void copyText(sections[at.section]!.path);
  };
  const toolHere = () => {
    const at = spot();
    const tool = at && sections[at.section]!.one.file.tools.at(-1);
    if (tool) doing.toTool(tool);
    else say("No edit of this file is known: a command of the agent, or somebody else, changed it.");
  };

  useKeys({ move, extend, turnSide, commentHere, enter, viewHere, discardHere, restoreHere, copyHere, toolHere }, within, split, doing.turn);
  return { cursor, setCursor, announced, chosen, comment };
}

interface Keys {
  move: (by: 1 | -1, how: Move) => void;
  extend: (by: 1 | -1) => void;
  turnSide: (side: Side) => void;
  commentHere: () => void;
  enter: () => void;
  viewHere: () => void;
  discardHere: (whole: boolean) => void;
  restoreHere: (point: "before" | "after") => void;
  copyHere: () => void;
  toolHere: () => void;
}

function useKeys(given: Keys, within: () => boolean, split: boolean, turn: number | null): void {
  const keys = useRef(given);
  keys.current = given;
  useLayoutEffect(() => {
    // No `when`: the palette, which takes the focus, offers them too.
    const command = (id: string, title: string, keys: string, run: () => void, also?: string[], repeats = false) => ({ id: "changes." + id, title, keys, also, group: "Changes", within, repeats, run });
    // Enter on a button presses it, and on a note opens it.
    const onDiffs = () => within() && !document.activeElement?.matches("button, a, summary, input");
    return register([
      command("down", "Next line", "j", () => keys.current.move(1, "line"), ["ArrowDown"], true),
      command("up", "Previous line", "k", () => keys.current.move(-1, "line"), ["ArrowUp"], true),
      command("more", "Choose one more line", "Shift+j", () => keys.current.extend(1), ["Shift+ArrowDown"], true),
      command("fewer", "Choose one line less", "Shift+k", () => keys.current.extend(-1), ["Shift+ArrowUp"], true),
      command("next", "Next change", "n", () => keys.current.move(1, "change"), undefined, true),
      command("previous", "Previous change", "p", () => keys.current.move(-1, "change"), undefined, true),
      command("nextfile", "Next file", "Shift+n", () => keys.current.move(1, "file"), ["]"], true),
      command("previousfile", "Previous file", "Shift+p", () => keys.current.move(-1, "file"), ["["], true),
      command("comment", "Comment on the line", "c", () => keys.current.commentHere()),
      command("viewed", "Mark the file as viewed", "v", () => keys.current.viewHere()),
      { ...command("open", "Open or close what is at the cursor", "Enter", () => keys.current.enter()), within: onDiffs },
      command("discard", "Discard this part of the change", "x", () => keys.current.discardHere(false)),
      command("discardfile", "Discard the file's changes", "Shift+x", () => keys.current.discardHere(true)),
      command("tool", "Show the edit in the conversation", "t", () => keys.current.toolHere()),
      { ...command("old", "Side by side: the old line", "ArrowLeft", () => keys.current.turnSide("old")), when: () => split },
      { ...command("new", "Side by side: the new line", "ArrowRight", () => keys.current.turnSide("new")), when: () => split },
      { id: "changes.copypath", title: "Copy the file's path", group: "Changes", run: () => keys.current.copyHere() },
      ...(["before", "after"] as const).map((point) => ({ id: "changes.restorefile" + point, title: `Restore the file to ${point} this turn`, group: "Changes", when: () => turn !== null, run: () => keys.current.restoreHere(point) })),
    ]);
  }, [within, split, turn]);
}
