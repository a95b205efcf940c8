// Drafts: text and files not sent yet. The browser stores the text, this tab holds the files; both survive a change of
// view. Above: the composer, and actions that put a message back into it, whether or not it is shown. Below: the
// browser's storage.

import { useSyncExternalStore } from "react";
import { keep, keepJson, kept, keptJson } from "../state/kept";
import { away, newId, sentence } from "../wire/api";
import type { Attachment } from "../wire/types";

const NONE: Attachment[] = [];
const files = new Map<string, Attachment[]>();
const listeners = new Set<() => void>();
/** Texts the browser could not store, because its storage is full or blocked. */
const unkept = new Map<string, string>();
const composers = new Map<string, (text: string) => void>();

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

/** Files are read asynchronously, so changes apply to the current list, not to an earlier one. */
export function changeFiles(key: string, change: (before: Attachment[]) => Attachment[]): void {
  const after = change(files.get(key) ?? NONE);
  if (after.length) files.set(key, after);
  else files.delete(key);
  for (const listener of listeners) listener();
}

export const filesOf = (key: string) => files.get(key) ?? NONE;
export const useFiles = (key: string) => useSyncExternalStore(subscribe, () => filesOf(key));

const known = (key: string) => unkept.get(key) ?? kept(key);
export const draftOf = (key: string) => known(key) ?? "";

export function write(key: string, text: string): void {
  if (keep(key, text)) unkept.delete(key);
  else unkept.set(key, text);
}

/** Notify the composer that shows this draft when something is put into it. */
export function whenPut(key: string, heard: (text: string) => void): () => void {
  composers.set(key, heard);
  return () => void (composers.get(key) === heard && composers.delete(key));
}

/** Put a message back, before the current draft, even if its composer is no longer shown. */
export function putBack(key: string, text: string, attachments: Attachment[] = []): void {
  const draft = draftOf(key);
  write(key, draft.trim() ? `${text.trimEnd()}\n\n${draft}` : text);
  changeFiles(key, (now) => [...attachments, ...now]);
  composers.get(key)?.(draftOf(key));
}

/** Undo a message and put it back into the composer. If the response is lost, the server may have undone it, so put it
 * back too, but only once. */
export async function takeBack(key: string, text: string, attachments: Attachment[], take: () => Promise<unknown>): Promise<void> {
  try {
    await take();
  } catch (error) {
    if (!away(error)) throw error;
    if (!draftOf(key).startsWith(text.trimEnd())) putBack(key, text, attachments);
    throw new Error(`${sentence(error)} The message is back in the composer. It may also still be in the conversation or in the queue.`);
  }
  putBack(key, text, attachments);
}

/** Clear a draft after it was sent, unless it has changed since. */
export function sent(key: string, text: string, attachments: Attachment[]): boolean {
  changeFiles(key, (now) => now.filter((one) => !attachments.includes(one)));
  if ((known(key) ?? text).trimEnd() !== text) return false;
  write(key, "");
  return true;
}

/** The same message sent again gets the same id, so the server accepts it once, whatever happened to the first
 * response. */
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
