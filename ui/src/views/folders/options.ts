// What a folder field offers for the typed text: projects, recent folders, and folders that complete a path. Above: the
// field. Below: the server's answers.

import { isPath } from "../../state/directories";
import type { Directories } from "../../wire/changes";

export interface FolderOption {
  group: "Projects" | "Recent" | "Folders";
  path: string;
  /** What to show first; the path otherwise. */
  name: string;
  project?: string;
  branch: string | null;
  dirty: number | null;
  repository: boolean | null;
  /** When a session last worked there. */
  at?: string;
  sessions?: number | null;
}

const MOST_KNOWN = 8;

/** Projects, then recent folders that are no project, then folders. Text that is no path filters by name. */
export function optionsOf(typed: string, known: Directories | null, completed: Directories | null): FolderOption[] {
  const wanted = typed.trim();
  const fits = (path: string, name: string) => (isPath(wanted) ? path.startsWith(wanted) : `${name}\n${path}`.toLowerCase().includes(wanted.toLowerCase()));
  const projects = (known?.projects ?? []).filter((one) => fits(one.path, one.name));
  const taken = new Set((known?.projects ?? []).map((one) => one.path));
  const recent = (known?.recent ?? []).filter((one) => !taken.has(one.path) && fits(one.path, ""));
  for (const one of recent) taken.add(one.path);
  const entries = (isPath(wanted) ? completed : wanted ? null : known)?.entries ?? [];
  return [
    ...projects.slice(0, MOST_KNOWN).map((one): FolderOption => ({ group: "Projects", path: one.path, name: one.name, project: one.id, branch: one.branch, dirty: one.dirty, repository: one.repository })),
    ...recent.slice(0, MOST_KNOWN).map((one): FolderOption => ({ group: "Recent", path: one.path, name: one.path, branch: one.branch, dirty: one.dirty, repository: one.repository, at: one.last_active_at, sessions: one.sessions })),
    ...entries.filter((one) => !taken.has(one.path)).map((one): FolderOption => ({ group: "Folders", path: one.path, name: one.path, branch: null, dirty: null, repository: one.repository })),
  ];
}

/** A typed path as the server takes it: without a slash at the end, and with the home directory written out. */
export function pathOfTyped(typed: string, home: string | null): string {
  const text = typed.trim();
  const full = home && /^~(\/|$)/.test(text) ? (home === "/" ? "" : home) + text.slice(1) || "/" : text;
  return full.length > 1 ? full.replace(/\/+$/, "") || "/" : full;
}
