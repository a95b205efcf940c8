// Which changed files this browser's user has looked at: the content of each, by session and path. A file that changes
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

/** What identifies the content. A deleted file has none; edits without a repository have their texts. */
const contentOf = (file: ChangedFile): string => file.new_id?.slice(0, 16) ?? (file.diffs ? hash(file.diffs.map((diff) => diff.new_text).join("\0")) : file.status);

/** A short number for a text. */
function hash(text: string): string {
  let value = 5381;
  for (let at = 0; at < text.length; at++) value = (Math.imul(value, 33) ^ text.charCodeAt(at)) >>> 0;
  return `${text.length}.${value.toString(36)}`;
}

export const isViewed = (viewed: Viewed, file: ChangedFile) => viewed[file.path] === contentOf(file);

export function view(session: string, file: ChangedFile, seen: boolean): void {
  const others = keptJson<[string, Viewed][]>(KEY, sessions).filter(([id]) => id !== session);
  const { [file.path]: _, ...rest } = viewedOf(session);
  const now = seen ? { ...rest, [file.path]: contentOf(file) } : rest;
  sessions = [...others, [session, now] as [string, Viewed]].slice(-KEPT_SESSIONS);
  keepJson(KEY, sessions);
  for (const listener of listeners) listener();
}
