// Messages on their way. A message is kept here, with an id of its own, until the log shows it: a reload or a lost
// connection sends it again under the same id, and the server takes it once. Above: the composer and the conversation.
// Below: api.ts and what the browser keeps.

import { useSyncExternalStore } from "react";
import { at, newId, post, Problem, sentence } from "../wire/api";
import { listen } from "../wire/link";
import type { Attachment } from "../wire/types";
import { keepJson, keptJson } from "./kept";

export interface Outgoing {
  session: string;
  message_id: string;
  text: string;
  agent?: string;
  fresh?: boolean;
  when_busy?: "queue" | "interrupt";
  attachments?: Attachment[];
  /** Why the server did not take it. Then it waits for the person. */
  refused?: string;
  sent_at: number;
}

let outbox: Outgoing[] = keptJson<Outgoing[]>("outbox", []);
const listeners = new Set<() => void>();
const busy = new Set<string>();

function set(next: Outgoing[]): void {
  outbox = next;
  keepJson("outbox", next.length ? next.map(({ attachments, ...rest }) => (attachments?.length ? { ...rest, attachments } : rest)) : null);
  for (const listener of listeners) listener();
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};
export const useOutbox = () => useSyncExternalStore(subscribe, () => outbox);

export function send(message: Omit<Outgoing, "message_id" | "sent_at">): void {
  const entry: Outgoing = { ...message, message_id: newId("m"), sent_at: Date.now() };
  set([...outbox, entry]);
  void deliver(entry);
}

async function deliver(entry: Outgoing): Promise<void> {
  if (busy.has(entry.message_id)) return;
  busy.add(entry.message_id);
  const { session, sent_at: _, refused: __, ...body } = entry;
  try {
    await post(at(session, "/messages"), body);
    // Taken; the log's own event is on its way, and shows it.
    setTimeout(() => discard(entry.message_id), 1500);
  } catch (error) {
    if (error instanceof Problem) set(outbox.map((one) => (one.message_id === entry.message_id ? { ...one, refused: sentence(error) } : one)));
  } finally {
    busy.delete(entry.message_id);
  }
}

/** The log shows it now, or the person gave it up. */
export function discard(messageId: string): void {
  if (outbox.some((one) => one.message_id === messageId)) set(outbox.filter((one) => one.message_id !== messageId));
}

/** The event is folded with the next frame. Until then the message stays, and the view leaves doubles out. */
function later(messageId: string): void {
  setTimeout(() => discard(messageId), 400);
}

export function tryAgain(messageId: string): void {
  const entry = outbox.find((one) => one.message_id === messageId);
  if (!entry) return;
  set(outbox.map((one) => (one.message_id === messageId ? { ...one, refused: undefined } : one)));
  void deliver(entry);
}

listen((message) => {
  if (message.kind === "link" && message.state === "live") for (const entry of outbox) if (!entry.refused) void deliver(entry);
  if (message.kind !== "events") return;
  for (const event of message.events) {
    if (event.type === "user_message" || event.type === "message_queued") later(event.message_id);
    else if (event.type === "snapshot") {
      if (event.message) later(event.message.message_id);
      for (const queued of event.queue) later(queued.message_id);
      for (const turn of event.session.turns ?? []) later(turn.message_id);
    }
  }
});
