// What is being written, until it is sent: the text is kept by the browser, files by this tab, both across changes of the
// view. Above: the composer and those who put something back, whether or not it is there. Below: what the browser keeps.

import { useSyncExternalStore } from "react";
import { keep, keepJson, kept, keptJson } from "../state/kept";
import { away, newId, sentence } from "../wire/api";
import type { Attachment } from "../wire/types";

const NONE: Attachment[] = [];
const files = new Map<string, Attachment[]>();
const listeners = new Set<() => void>();
/** Texts that the browser does not keep, as its storage is full or forbidden. */
const unkept = new Map<string, string>();
const composers = new Map<string, (text: string) => void>();

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

const known = (key: string) => unkept.get(key) ?? kept(key);
export const draftOf = (key: string) => known(key) ?? "";

export function write(key: string, text: string): void {
  if (keep(key, text)) unkept.delete(key);
  else unkept.set(key, text);
}

/** The composer that shows this draft hears what is put into it. */
export function whenPut(key: string, heard: (text: string) => void): () => void {
  composers.set(key, heard);
  return () => void (composers.get(key) === heard && composers.delete(key));
}

/** Something comes back: before what is half written, also if the person is elsewhere by now. */
export function putBack(key: string, text: string, attachments: Attachment[] = []): void {
  const draft = draftOf(key);
  write(key, draft.trim() ? `${text.trimEnd()}\n\n${draft}` : text);
  changeFiles(key, (now) => [...attachments, ...now]);
  composers.get(key)?.(draftOf(key));
}

/** Take something back to write it anew. If the answer is lost it may have been taken back, so it is put back too, once. */
export async function takeBack(key: string, text: string, attachments: Attachment[], take: () => Promise<unknown>): Promise<void> {
  try {
    await take();
  } catch (error) {
    if (!away(error)) throw error;
    if (!draftOf(key).startsWith(text.trimEnd())) putBack(key, text, attachments);
    throw new Error(`${sentence(error)} The message is in the composer, and may still be where it was.`);
  }
  putBack(key, text, attachments);
}

/** It was sent: the draft is no longer needed, unless it has become another one. */
export function sent(key: string, text: string, attachments: Attachment[]): boolean {
  changeFiles(key, (now) => now.filter((one) => !attachments.includes(one)));
  if ((known(key) ?? text).trimEnd() !== text) return false;
  write(key, "");
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
