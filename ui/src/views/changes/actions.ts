// The commands of the view of changes that are not about the line at the cursor: everything that its buttons and menus
// do, for the keyboard and the palette. Above: the view. Below: the list of commands. Those at the cursor are moving.ts's.

import { useLayoutEffect, useRef } from "react";
import { register, type Command } from "../../shell/commands";
import { go, pathOfChanges } from "../../shell/router";
import type { Changes } from "../../wire/changes";
import { turnBeside } from "./finding";
import { copyPatch, downloadPatch } from "./toolbar";

interface Given {
  session: string;
  turn: number | null;
  changes: Changes | null;
  /** Why files can't be changed now; null: they can. */
  refusal: string | null;
  commits: boolean;
  busy: boolean;
  canSplit: boolean;
  wide: boolean;
  beside: boolean;
  allFolded: boolean;
  onCommit: () => void;
  onOperations: () => void;
  onUndo: () => void;
  onRestore: (point: "before" | "after") => void;
  onFoldAll: (fold: boolean) => void;
  onList: () => void;
  onSplit: () => void;
  onWhitespace: () => void;
  onFlat: () => void;
  onWide: (wide: boolean) => void;
}

export function useActions(given: Given, within: () => boolean): void {
  const now = useRef(given);
  now.current = given;
  useLayoutEffect(() => {
    const command = (id: string, title: string, run: (given: Given) => void, when: (given: Given) => boolean = () => true, keys?: string): Command => ({
      id: "changes." + id,
      title,
      group: "Changes",
      when: () => when(now.current),
      run: () => run(now.current),
      ...(keys ? { keys, within } : {}),
    });
    const has = ({ changes }: Given) => !!changes?.files.length;
    const restores = ({ turn, refusal }: Given) => turn !== null && refusal === null;
    const beside = (by: 1 | -1) => ({ changes, turn }: Given) => turnBeside(changes, turn, by);
    return register([
      command("commit", "Commit", (view) => view.onCommit(), ({ commits, busy }) => commits && !busy),
      command("undo", "Undo the last file operation", (view) => view.onUndo(), undefined, "u"),
      command("operations", "File operations", (view) => view.onOperations()),
      command("all", "Changes of the whole session", ({ session }) => go(pathOfChanges(session)), ({ turn }) => turn !== null),
      command("previousturn", "Changes of the previous turn", (view) => go(pathOfChanges(view.session, beside(-1)(view))), (view) => beside(-1)(view) !== undefined),
      command("nextturn", "Changes of the next turn", (view) => go(pathOfChanges(view.session, beside(1)(view))), (view) => beside(1)(view) !== undefined),
      command("restorebefore", "Restore all files to before this turn", (view) => view.onRestore("before"), restores),
      command("restoreafter", "Restore all files to after this turn", (view) => view.onRestore("after"), restores),
      command("files", "Show or hide the list of files", (view) => view.onList(), has, "f"),
      command("split", "One column or side by side", (view) => view.onSplit(), ({ canSplit }) => canSplit),
      command("whitespace", "Show or ignore changes of whitespace", (view) => view.onWhitespace()),
      command("flat", "Files with or without folders", (view) => view.onFlat()),
      command("fold", "Open or close all files", (view) => view.onFoldAll(!view.allFolded), has),
      command("copy", "Copy patch", ({ session, turn }) => copyPatch(session, turn), has),
      command("download", "Download patch", ({ session, turn }) => downloadPatch(session, turn), has),
      command("wide", "Changes in the whole width or beside the conversation", (view) => view.onWide(!view.wide), (view) => view.wide || view.beside),
    ]);
  }, [within]);
}
