// Finds what a link or a command is about: a changed file, an operation, a turn. Above: the view of changes. Below:
// nothing. Pure. Tools name files as they like, absolute or relative to where the agent works; changes name them from the
// top of the repository.

import type { ChangesPlace } from "../../shell/router";
import type { ChangedFile, Changes, Operation } from "../../wire/changes";

/** The file of this path, or that this tool edited. Null: it is not among the changes. */
export function fileOf({ files, directory, workdir }: Pick<Changes, "files" | "directory" | "workdir">, { file, edit }: Pick<ChangesPlace, "file" | "edit">): ChangedFile | null {
  const edited = edit === null ? [] : files.filter((one) => one.tools.some((tool) => tool.tool_id === edit));
  if (edited.length === 1 || file === null) return edited[0] ?? null;
  const absolute = file.startsWith("/") ? file : `${workdir}/${file}`;
  const names = [file, ...[directory, workdir].filter((folder) => folder && absolute.startsWith(folder + "/")).map((folder) => absolute.slice(folder.length + 1))];
  const among = edited.length ? edited : files;
  for (const name of names) {
    const found = among.find((one) => one.path === name) ?? among.find((one) => one.old_path === name);
    if (found) return found;
  }
  return edited[0] ?? null;
}

/** What *Undo* is about: the newest operation that can be undone. Undoing an undo is offered where it was done. */
export const undoableOf = (changes: Changes | null): Operation | null => changes?.operations.find((one) => one.undoable && !one.undone && one.outcome === "done" && one.action !== "undo") ?? null;

/** The turn before or after the shown one that changed something; undefined: none. Beside the whole session is the last. */
export function turnBeside(changes: Changes | null, turn: number | null, by: 1 | -1): number | undefined {
  const turns = (changes?.turns ?? []).map((one) => one.turn);
  if (turn === null) return by < 0 ? turns.at(-1) : undefined;
  return by < 0 ? turns.findLast((one) => one < turn) : turns.find((one) => one > turn);
}
