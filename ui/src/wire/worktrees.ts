// Where a session works: in a directory, or in its own worktree and branch. Wire types. Above: the session's type and the
// views of worktrees. Below: nothing.

export type Workspace = "directory" | "worktree";

export interface SessionWorktree {
  repository: string;
  path: string;
  branch: string;
  /** The branch it came from; null if no branch was checked out. */
  base: string | null;
  base_commit: string;
}
