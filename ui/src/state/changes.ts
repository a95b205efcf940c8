// The changed files of a session or of one turn, with their patches, kept up to date while they are shown. Above: the
// views of changes and the session's panel. Below: the API and the session's events. A file whose content did not change
// keeps its identity, so it is neither fetched nor drawn again.

import { useEffect, useSyncExternalStore } from "react";
import { patchOfEdits, readAll, type PatchFile } from "../text/patch";
import { away, Problem, sentence } from "../wire/api";
import { getChanges, getPatch, type ChangedFile, type Changes } from "../wire/changes";
import { listen } from "../wire/link";
import { Refresher } from "../wire/refresher";
import type { Event } from "../wire/types";
import { storeOf } from "./store";

export interface FileState {
  file: ChangedFile;
  /** Equal for equal content. */
  key: string;
  /** Null: not read yet, or left out. */
  patch: PatchFile | null;
  /** `left_out`: the patch of all files is too large, so the server left this one out. `too_large`: even its own is. */
  state: "loading" | "ready" | "left_out" | "too_large" | "failed";
  trouble: string;
}

export interface Loaded {
  changes: Changes | null;
  files: FileState[];
  /** Why the last request failed. What is shown is older. */
  trouble: string;
  /** Whether nothing is known to have changed since it was fetched. */
  fresh: boolean;
}

const NOTHING: Loaded = { changes: null, files: [], trouble: "", fresh: false };
/** With more files than this to read, the whole patch is requested. */
const MOST_PATHS = 20;
const KEPT_STORES = 6;
/** After these events the files may be different. */
const CHANGED: ReadonlySet<string> = new Set(["turn_changes", "files_changed", "turn_end", "history_changed", "snapshot"]);
const SHOW_MS = 300;
/** While a turn runs, its tools change files. For each look, the server takes a snapshot, so look only if somebody reads
 * the diffs, and not after each tool. */
const RUNNING_MS = 2500;

/** Git's answers about the same content are the same. Without ids, nothing is known about the content. */
const keyOf = (file: ChangedFile) => JSON.stringify([file.path, file.old_path, file.status, file.old_id, file.new_id, file.old_mode, file.new_mode, file.diffs?.map((diff) => [diff.old_text, diff.new_text, diff.line])]);
const isTold = (file: ChangedFile) => file.old_id !== null || file.new_id !== null || !!file.diffs;

export class ChangesStore {
  loaded: Loaded = NOTHING;
  private readonly listeners = new Set<() => void>();
  private readers = 0;
  private reading: { abort: AbortController; keys: ReadonlySet<string> } | null = null;
  /** A turn has changed files while nobody read the diffs. */
  private missed = false;
  private soon: ReturnType<typeof setTimeout> | null = null;
  private readonly refresher = new Refresher((signal) => this.fetch(signal));

  constructor(
    readonly session: string,
    readonly turn: number | null,
    readonly ignoreWhitespace: boolean,
  ) {}

  readonly subscribe = (listener: () => void) => {
    this.listeners.add(listener);
    if (this.listeners.size === 1) this.refresher.want();
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size) return;
      this.refresher.stop();
      this.loaded = { ...this.loaded, fresh: false };
    };
  };

  get isUsed(): boolean {
    return this.listeners.size > 0;
  }

  /** Read the patches as long as a view shows them. */
  readonly read = () => {
    this.readers += 1;
    if (this.readers === 1 && this.loaded.changes) this.readPatches();
    if (this.missed) this.refresher.want();
    return () => {
      this.readers -= 1;
      if (!this.readers) this.stopReading();
    };
  };

  /** Look at once: after an action of this tab, or because the server is reachable again. */
  refresh(): void {
    if (this.isUsed) this.refresher.hurry();
  }

  hear(event: Event): void {
    if (!this.isUsed) return;
    if (CHANGED.has(event.type)) return this.refresher.want();
    if (event.type !== "turn_start" && event.type !== "tool_result") return;
    if (!this.readers) {
      this.missed = true;
      this.loaded = { ...this.loaded, fresh: false };
    } else if (event.type === "turn_start") this.refresher.want();
    // Even if the last answer was that no turn runs: it may be from before the turn.
    else
      this.soon ??= setTimeout(() => {
        this.soon = null;
        if (this.isUsed) this.refresher.want();
      }, RUNNING_MS);
  }

  private set(changes: Partial<Loaded>): void {
    this.loaded = { ...this.loaded, ...changes };
    for (const listener of this.listeners) listener();
  }

  private async fetch(signal: AbortSignal): Promise<boolean> {
    this.missed = false;
    try {
      const changes = await getChanges(this.session, this, signal);
      const known = new Map(this.loaded.files.map((one) => [one.key, one]));
      const files = changes.files.map((file): FileState => {
        const key = keyOf(file);
        const before = isTold(file) ? known.get(key) : undefined;
        if (before) return sameFile(before.file, file) ? before : { ...before, file };
        const edits = file.diffs && patchOfEdits(file.path, file.diffs);
        return { file, key, patch: edits ?? null, state: edits || file.binary ? "ready" : "loading", trouble: "" };
      });
      this.set({ changes, files, trouble: "", fresh: true });
      if (this.readers) this.readPatches();
      return true;
    } catch (error) {
      if (signal.aborted) return true;
      this.set({ trouble: sentence(error) });
      // Try again only if that can help.
      return !(away(error) || (error instanceof Problem && error.status === 429));
    }
  }

  /** Fetch this file's patch alone, although there was too much to fetch all. */
  async readOne(path: string): Promise<void> {
    this.change(path, { state: "loading", trouble: "" });
    const file = this.loaded.files.find((one) => one.file.path === path);
    if (file) await this.readFiles([file], new AbortController().signal, false);
  }

  private stopReading(): void {
    this.reading?.abort.abort();
    this.reading = null;
  }

  /** Read what is not read yet. A read that is under way goes on while something in it is still wanted: otherwise, on a
   * slow link, changes that come faster than a patch would be read for ever. */
  private readPatches(again = true): void {
    const lacking = this.loaded.files.filter((one) => one.state === "loading" || (again && one.state === "failed"));
    if (lacking.some((one) => this.reading?.keys.has(one.key))) return;
    this.stopReading();
    if (!lacking.length) return;
    const reading = (this.reading = { abort: new AbortController(), keys: new Set(lacking.map((one) => one.key)) });
    const all = lacking.length > MOST_PATHS || lacking.length === this.loaded.files.length;
    void this.readFiles(lacking, reading.abort.signal, all).then(() => {
      if (this.reading !== reading) return;
      this.reading = null;
      // What came in the meantime.
      this.readPatches(false);
    });
  }

  private async readFiles(lacking: FileState[], signal: AbortSignal, all: boolean): Promise<void> {
    const keys = new Set(lacking.map((one) => one.key));
    try {
      const paths = all ? [] : lacking.flatMap(({ file }) => [file.path, ...(file.old_path && file.old_path !== file.path ? [file.old_path] : [])]);
      const patch = await getPatch(this.session, this, paths, signal);
      const find = finder(lacking);
      let read = new Map<string, PatchFile>();
      const show = () => {
        if (read.size) this.put((one) => (read.has(one.key) ? { patch: read.get(one.key)!, state: "ready", trouble: "" } : null));
        read = new Map();
      };
      const found = (file: PatchFile) => {
        const key = find(file);
        if (key) read.set(key, file);
      };
      let shownAt = 0;
      const done = await readAll(patch.text, found, async () => {
        // The first files at once; then not so often that showing takes longer than reading.
        if (performance.now() - shownAt > SHOW_MS) {
          show();
          shownAt = performance.now();
        }
        await new Promise((resolve) => setTimeout(resolve));
        return !signal.aborted;
      });
      if (!done) return;
      show();
      // Nothing to show for a file, such as a new mode, is also an answer.
      this.put((one) => (keys.has(one.key) && one.state === "loading" ? { state: !patch.truncated ? "ready" : lacking.length > 1 ? "left_out" : "too_large" } : null));
    } catch (error) {
      if (signal.aborted) return;
      this.put((one) => (keys.has(one.key) && one.state === "loading" ? { state: "failed", trouble: sentence(error) } : null));
    }
  }

  private put(change: (one: FileState) => Partial<FileState> | null): void {
    this.set({
      files: this.loaded.files.map((one) => {
        const changed = change(one);
        return changed ? { ...one, ...changed } : one;
      }),
    });
  }

  private change(path: string, changes: Partial<FileState>): void {
    this.put((one) => (one.file.path === path ? changes : null));
  }
}

const sameFile = (a: ChangedFile, b: ChangedFile) => JSON.stringify(a) === JSON.stringify(b);

/** Finds the file of a patch: by its name, or, if the name is not valid Unicode, by the ids of its contents. */
function finder(files: FileState[]): (patch: PatchFile) => string | undefined {
  const byPath = new Map(files.map((one) => [one.file.path, one.key]));
  return (patch) => {
    const known = byPath.get(patch.path);
    if (known) return known;
    const [old, fresh] = patch.ids ?? [];
    return files.find(({ file }) => old && fresh && (file.old_id ?? "0").startsWith(file.old_id ? old : "0") && (file.new_id ?? "0").startsWith(file.new_id ? fresh : "0") && /[\ufffd\ud800-\udfff]/.test(file.path))?.key;
  };
}

const stores = new Map<string, ChangesStore>();

export function changesOf(session: string, turn: number | null, ignoreWhitespace = false): ChangesStore {
  const key = JSON.stringify([session, turn, ignoreWhitespace]);
  const known = stores.get(key) ?? new ChangesStore(session, turn, ignoreWhitespace);
  stores.delete(key);
  stores.set(key, known);
  for (const [other, store] of stores) if (stores.size > KEPT_STORES && !store.isUsed && store !== known) stores.delete(other);
  return known;
}

export function refreshChanges(session: string): void {
  for (const store of stores.values()) if (store.session === session) store.refresh();
}

listen((message) => {
  if (message.kind === "events") {
    for (const store of stores.values()) if (store.session === message.session) for (const event of message.events) store.hear(event);
  } else if (message.kind === "link" && message.state === "live") for (const store of stores.values()) store.refresh();
});

export const useLoaded = (store: ChangesStore) => useSyncExternalStore(store.subscribe, () => store.loaded);

/** The changes of the whole session without their patches, and what they say about its turns. */
export function useChanges(session: string): Changes | null {
  const store = changesOf(session, null);
  const changes = useSyncExternalStore(store.subscribe, () => store.loaded.changes);
  useEffect(() => {
    if (changes) storeOf(session).learn(changes.turns);
  }, [session, changes]);
  return changes;
}

/** With the patches of all files. */
export function usePatches(store: ChangesStore): Loaded {
  const loaded = useLoaded(store);
  useEffect(() => store.read(), [store]);
  return loaded;
}
