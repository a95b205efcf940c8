// Directories on the server, and the repositories they are in: wire types and requests. Above: the choice of a folder.
// Below: the API. Fields the page does not read are left out.

import { query, request } from "./api";

/** A directory, as far as the server could look at it in time: what it does not know is null. */
export interface KnownDirectory {
  path: string;
  branch: string | null;
  /** The number of changed and untracked files. */
  dirty: number | null;
  repository: boolean | null;
}

export interface RecentDirectory extends KnownDirectory {
  last_active_at: string;
  sessions: number | null;
}

export interface ProjectDirectory extends KnownDirectory {
  id: string;
  name: string;
}

export interface Directories {
  path: string;
  parent: string | null;
  entries: { name: string; path: string; repository: boolean | null }[];
  truncated: boolean;
  recent: RecentDirectory[];
  projects: ProjectDirectory[];
}

export interface DirectoryGit {
  root: string | null;
  branch: string | null;
  head: string | null;
  detached: boolean | null;
  dirty: number | null;
  in_progress: string | null;
  /** A sentence: why something is not known. */
  reason: string | null;
}

export interface Directory {
  path: string;
  private: boolean;
  /** The innermost project that contains it, or several if they share a path. */
  projects: string[];
  /** Null: it is in no repository. */
  git: DirectoryGit | null;
}

/** Directories whose path starts with this one, and on request recent directories and projects. */
export const getDirectories = (path: string | null, { recent = true, limit = 50, signal }: { recent?: boolean; limit?: number; signal?: AbortSignal } = {}) => request<Directories>("GET", "/api/directories" + query({ path, limit, recent: recent ? undefined : "false" }), undefined, undefined, signal);
export const getDirectory = (path: string, signal?: AbortSignal) => request<Directory>("GET", "/api/directory" + query({ path }), undefined, undefined, signal);
