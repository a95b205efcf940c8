// Changed files as a tree of folders. A folder with one folder in it shares its row. Above: the list of files. Below:
// nothing. Pure.

export type Node<T> = { kind: "folder"; name: string; path: string; depth: number } | { kind: "file"; file: T; name: string; depth: number };

interface Folder<T> {
  folders: Map<string, Folder<T>>;
  files: T[];
}

export function treeOf<T extends { path: string }>(files: T[]): Node<T>[] {
  const root: Folder<T> = { folders: new Map(), files: [] };
  for (const file of files) {
    let folder = root;
    for (const name of file.path.split("/").slice(0, -1)) {
      let next = folder.folders.get(name);
      if (!next) folder.folders.set(name, (next = { folders: new Map(), files: [] }));
      folder = next;
    }
    folder.files.push(file);
  }
  return nodesOf(root, "", 0);
}

function nodesOf<T extends { path: string }>(folder: Folder<T>, path: string, depth: number): Node<T>[] {
  const nodes: Node<T>[] = [];
  for (let [name, inner] of folder.folders) {
    while (!inner.files.length && inner.folders.size === 1) {
      const [next] = inner.folders;
      name += "/" + next![0];
      inner = next![1];
    }
    const here = path + name + "/";
    nodes.push({ kind: "folder", name, path: here, depth }, ...nodesOf(inner, here, depth + 1));
  }
  for (const file of folder.files) nodes.push({ kind: "file", file, name: file.path.slice(file.path.lastIndexOf("/") + 1), depth });
  return nodes;
}

/** Files in the order in which the tree shows them, so that the diffs have the same order. */
export const inTreeOrder = <T extends { path: string }>(files: T[]): T[] => treeOf(files).flatMap((node) => (node.kind === "file" ? [node.file] : []));
