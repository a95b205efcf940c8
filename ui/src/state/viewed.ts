// Which changed files this browser's user has looked at: its change, by session and path. A file that changes
// again is not viewed any more. Above: the views of changes. Below: the browser's storage.

import { useSyncExternalStore } from "react";
import type { ChangedFile } from "../wire/changes";
import { keepJson, keptJson, onKept } from "./kept";

type Viewed = Record<string, string>;

const KEY = "viewed";
const KEPT_SESSIONS = 50;
const NOTHING: Viewed = {};

/** Newest last. */
let sessions: [string, Viewed][] = keptJson<[string, Viewed][]>(KEY, []);
const listeners = new Set<() => void>();

onKept((key) => {
  if (key !== KEY) return;
  sessions = keptJson<[string, Viewed][]>(KEY, []);
  for (const listener of listeners) listener();
});

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

const viewedOf = (session: string) => sessions.find(([id]) => id === session)?.[1] ?? NOTHING;
export const useViewed = (session: string) => useSyncExternalStore(subscribe, () => viewedOf(session));

const ID_CHARS = 16;

/** What identifies a change: the contents before and after it, so that one turn's part is not the whole session's. Edits
 * without a repository have their texts. */
const changeOf = ({ old_id, new_id, diffs, status }: ChangedFile): string => (diffs ? hash(diffs.map((diff) => diff.new_text).join("\0")) : old_id || new_id ? [old_id, new_id].map((id) => id?.slice(0, ID_CHARS) ?? "").join(":") : status);

/** A short number for a text. */
function hash(text: string): string {
  let value = 5381;
  for (let at = 0; at < text.length; at++) value = (Math.imul(value, 33) ^ text.charCodeAt(at)) >>> 0;
  return `${text.length}.${value.toString(36)}`;
}

export const isViewed = (viewed: Viewed, file: ChangedFile) => viewed[file.path] === changeOf(file);

export function view(session: string, file: ChangedFile, seen: boolean): void {
  const others = keptJson<[string, Viewed][]>(KEY, sessions).filter(([id]) => id !== session);
  const { [file.path]: _, ...rest } = viewedOf(session);
  const now = seen ? { ...rest, [file.path]: changeOf(file) } : rest;
  sessions = [...others, [session, now] as [string, Viewed]].slice(-KEPT_SESSIONS);
  keepJson(KEY, sessions);
  for (const listener of listeners) listener();
}
