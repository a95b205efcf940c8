// Where a new session works: a folder, its project, and whether it gets its own worktree. Above: the new-session view.
// Below: the folder field and the server's description of the folder. Without a folder, the session gets a new one.

import { useState } from "react";
import { keep, kept } from "../../state/kept";
import { useDirectory, type Checked } from "../../state/directories";
import type { DirectoryGit } from "../../wire/changes";
import type { Project, Workspace } from "../../wire/types";
import { BranchState, changedWords } from "./branch";
import { FolderField } from "./field";
import { pathOfTyped } from "./options";

export interface Where {
  folder: string;
  setFolder: (folder: string) => void;
  project: Project | undefined;
  /** The id of a project; empty: none. */
  setProject: (project: string) => void;
  checked: Checked;
  /** Null: there is no choice, because the folder is in no repository that a worktree could come from. */
  workspace: Workspace | null;
  setWorkspace: (workspace: Workspace) => void;
  /** The fields of the request that creates the session. */
  body: () => Record<string, unknown>;
  /** Remember it for the next session. */
  remember: () => void;
}

export function useWhere(given: string | undefined, projects: Project[]): Where {
  /** Null: the project that contains the folder. */
  const [chosen, setChosen] = useState<string | null>(() => given ?? kept("last.project"));
  const [typed, setTyped] = useState<string | null>(() => (given ? null : kept("last.folder")));
  const [wanted, setWanted] = useState<Workspace | null>(null);

  const named = projects.find((one) => one.id === chosen);
  // Until a folder is typed, it is that of the project.
  const folder = typed ?? named?.path ?? "";
  const path = pathOfTyped(folder, null);
  const checked = useDirectory(path);
  const isChecked = checked.path === path;
  const around = (isChecked && checked.directory?.projects) || projects.filter((one) => path === one.path || path.startsWith(one.path + "/")).map((one) => one.id);
  const project = named ?? (chosen !== "" && around.length === 1 ? projects.find((one) => one.id === around[0]) : undefined);

  const setFolder = (next: string) => {
    setTyped(next);
    // Another folder is in another project, or in none.
    if (next !== folder && !(named && next.startsWith(named.path + "/"))) setChosen(null);
  };
  const setProject = (id: string) => {
    if (!id && project && folder === project.path) setTyped("");
    else if (id) setTyped(null);
    else setTyped(folder);
    setChosen(id);
  };
  const workspace = canBranch(checked.directory?.git) ? (wanted ?? project?.workspace ?? "directory") : null;
  const body = () => {
    const usual = project?.workspace ?? "directory";
    const place = project ? { project: project.id, ...(path && path !== project.path ? { workdir: path } : {}) } : path ? { workdir: path } : {};
    // Without a repository there can be no worktree, whatever the project says. While that is unknown, the server decides.
    const known = isChecked ? workspace : wanted;
    const differs = known ? known !== usual : usual === "worktree" && isChecked && checked.directory !== null;
    return { ...place, ...(differs ? { workspace: known ?? "directory" } : {}) };
  };
  const remember = () => {
    keep("last.project", project?.id ?? null);
    keep("last.folder", project && folder === project.path ? null : folder);
  };
  return { folder, setFolder, project, setProject, checked, workspace, setWorkspace: setWanted, body, remember };
}

/** A worktree starts from a commit. */
const canBranch = (git: DirectoryGit | null | undefined) => !!git?.root && !!git.head;

export function WhereField({ where }: { where: Where }) {
  const { folder, setFolder, setProject, checked } = where;
  return (
    <section aria-label="Where the session works" className="mb-3">
      <FolderField label="Folder" value={folder} onChange={setFolder} onProject={setProject} placeholder="A new empty folder, or choose one on the server" describedBy="folder-state" invalid={!!checked.wrong} />
      <FolderState folder={folder} checked={checked} />
      {where.workspace && <WorkspaceChoice git={checked.directory!.git!} workspace={where.workspace} onChange={where.setWorkspace} />}
    </section>
  );
}

/** What the chosen folder is. Always there, so that the field can refer to it. */
export function FolderState({ folder, checked }: { folder: string; checked: Checked }) {
  const git = folder ? checked.directory?.git : null;
  return (
    <div id="folder-state" className="flex min-h-5 flex-wrap items-center gap-x-3 px-1 pt-1 text-xs text-quiet empty:hidden">
      {folder && checked.wrong && <span role="alert" className="break-words text-red">{checked.wrong}</span>}
      {git?.root && <BranchState state={git} className="max-w-full" />}
      {git && git.dirty === 0 && !git.reason && <span>No uncommitted changes</span>}
      {git?.reason && <span className="break-words text-amber">{git.reason}</span>}
      {folder && checked.directory && !git && !checked.wrong && <span>Not a git repository. Changes are shown from the agent's own edits.</span>}
    </div>
  );
}

function WorkspaceChoice({ git, workspace, onChange }: { git: DirectoryGit; workspace: Workspace; onChange: (workspace: Workspace) => void }) {
  const from = git.branch ? `the last commit on ${git.branch}` : `commit ${git.head!.slice(0, 8)}`;
  const left = git.dirty ? `, without the ${changedWords(git.dirty)}` : "";
  const choices: [Workspace, string, string][] = [
    ["directory", "Work in this folder", "You and other sessions see the changes immediately."],
    ["worktree", "Own worktree and branch", `Starts from ${from}${left}. You bring the work back when it is done.`],
  ];
  return (
    <fieldset className="mt-2 grid gap-x-4 gap-y-1 px-1 text-sm sm:grid-cols-2">
      <legend className="sr-only">Workspace</legend>
      {choices.map(([value, name, hint]) => (
        <label key={value} className="flex items-start gap-2">
          <input type="radio" name="workspace" value={value} checked={workspace === value} onChange={() => onChange(value)} className="mt-1" />
          <span className="min-w-0">
            <span className="block">{name}</span>
            <span className="block text-xs break-words text-quiet">{hint}</span>
          </span>
        </label>
      ))}
    </fieldset>
  );
}
