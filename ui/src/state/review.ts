// Comments on changed lines that are not sent yet. The browser stores them per session, like the composer's draft, so
// they survive a reload and appear in every tab. Above: the views of changes. Below: the browser's storage.

import { useSyncExternalStore } from "react";
import { newId } from "../wire/api";
import { sendReview, type Passage } from "../wire/changes";
import { keep, keepJson, keptJson, onKept } from "./kept";

export interface Draft extends Passage {
  id: string;
  text: string;
  /** It is being written. */
  open: boolean;
}

const NONE: Draft[] = [];
const PREFIX = "review.";
const known = new Map<string, Draft[]>();
/** The sessions whose drafts this tab has read before. */
const read = new Set<string>();
const listeners = new Set<() => void>();

export function draftsOf(session: string): Draft[] {
  let drafts = known.get(session);
  if (!drafts) {
    drafts = keptJson<Draft[]>(PREFIX + session, NONE);
    // After a reload, nobody is about to write a comment.
    if (!read.has(session)) drafts = drafts.filter(isWritten);
    read.add(session);
    known.set(session, drafts);
  }
  return drafts;
}

function set(session: string, drafts: Draft[]): void {
  known.set(session, drafts);
  keepJson(PREFIX + session, drafts.length ? drafts : null);
  for (const listener of listeners) listener();
}

onKept((key) => {
  if (!key.startsWith(PREFIX)) return;
  known.delete(key.slice(PREFIX.length));
  for (const listener of listeners) listener();
});

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export const useDrafts = (session: string) => useSyncExternalStore(subscribe, () => draftsOf(session));

/** Begin a comment on these lines, or go on with the one that is there. Returns its id. */
export function begin(session: string, passage: Passage): string {
  const drafts = draftsOf(session);
  const same = drafts.find((one) => one.path === passage.path && one.side === passage.side && one.turn === passage.turn && last(one) === last(passage) && lastText(one) === lastText(passage));
  if (same) {
    change(session, same.id, { ...passage, open: true });
    return same.id;
  }
  const draft = { ...passage, id: newId("c"), text: "", open: true };
  // Nothing was written in the others, so nothing is lost.
  set(session, [...drafts.filter((one) => !one.open || one.text.trim()), draft]);
  return draft.id;
}

const last = (passage: Passage) => passage.end_line ?? passage.line;
/** Other lines may have this number since. */
const lastText = (passage: Passage) => passage.quote?.split("\n").at(-1);

export function change(session: string, id: string, changes: Partial<Draft>): void {
  set(session, draftsOf(session).map((one) => (one.id === id ? { ...one, ...changes } : one)));
}

export function drop(session: string, id: string): void {
  set(session, draftsOf(session).filter((one) => one.id !== id));
}

/** The session was erased, and what was written about it too. */
export function forgetReview(session: string): void {
  set(session, NONE);
  for (const name of ["reviewtext.", "reviewed.", "commit."]) keep(name + session, null);
}

export const isWritten = (draft: Draft) => !!draft.text.trim();

/** Send all comments as one message, each with the lines as they were: the server finds them if they have moved. Sent
 * again after a lost response, it has the same id, so it arrives once. */
export async function sendDrafts(session: string, text: string, agent: string, whenBusy: "queue" | "interrupt"): Promise<void> {
  const drafts = draftsOf(session).filter(isWritten);
  const comments = drafts.map(({ id: _id, open: _open, ...comment }) => ({ ...comment, text: comment.text.trim() }));
  const what = JSON.stringify([comments, text]);
  const tried = keptJson<{ id: string; what: string } | null>("reviewed." + session, null);
  const message = tried?.what === what ? tried.id : newId("m");
  keepJson("reviewed." + session, { id: message, what });
  await sendReview(session, { comments, text, message_id: message, agent, when_busy: whenBusy });
  keepJson("reviewed." + session, null);
  const sent = new Map(drafts.map((one) => [one.id, one.text]));
  set(session, draftsOf(session).filter((one) => sent.get(one.id) !== one.text));
}
