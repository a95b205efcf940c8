// What is being written, until it is sent: the text is kept by the browser, files by this tab, both across changes of the
// view. Above: the composer and those who put something back into it. Below: what the browser keeps.

import { useSyncExternalStore } from "react";
import { keep, keepJson, kept, keptJson } from "../state/kept";
import { newId } from "../wire/api";
import type { Attachment } from "../wire/types";

const NONE: Attachment[] = [];
const files = new Map<string, Attachment[]>();
const listeners = new Set<() => void>();

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

/** Files arrive when they are read, so what is there by then is added to, not what was there before. */
export function changeFiles(key: string, change: (before: Attachment[]) => Attachment[]): void {
  const after = change(files.get(key) ?? NONE);
  if (after.length) files.set(key, after);
  else files.delete(key);
  for (const listener of listeners) listener();
}

export const filesOf = (key: string) => files.get(key) ?? NONE;
export const useFiles = (key: string) => useSyncExternalStore(subscribe, () => filesOf(key));

/** Something comes back into the composer: before what is half written there. */
export const before = (text: string, draft: string) => (draft.trim() ? `${text.trimEnd()}\n\n${draft}` : text);

/** It was sent: the draft is no longer needed, unless it has become another one. */
export function sent(key: string, text: string, attachments: Attachment[]): boolean {
  changeFiles(key, (now) => now.filter((one) => !attachments.includes(one)));
  if ((kept(key) ?? text).trimEnd() !== text) return false;
  keep(key, null);
  return true;
}

/** The same thing sent again has the same id, so that the server takes it once, whatever became of the first answer. */
export function idFor(body: Record<string, unknown>): string {
  const { attachments, ...rest } = body;
  const what = JSON.stringify([rest, ((attachments as Attachment[] | undefined) ?? []).map((one) => [one.name, one.data?.length])]);
  const tried = keptJson<{ id: string; what: string } | null>("new.tried", null);
  if (tried?.what === what) return tried.id;
  const id = newId("m");
  keepJson("new.tried", { id, what });
  return id;
}

export const forgetId = () => keepJson("new.tried", null);
