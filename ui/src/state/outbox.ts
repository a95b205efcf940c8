// The outbox: messages being sent. A message stays here, with a unique id, until the log shows it. After a reload or a
// lost connection it is sent again with the same id, and the server accepts it only once. Above: the composer and the
// conversation. Below: api.ts and the browser's storage, with one key per message, so tabs don't overwrite each other.

import { useSyncExternalStore } from "react";
import { at, away, newId, request, sentence } from "../wire/api";
import { listen } from "../wire/link";
import type { Attachment } from "../wire/types";
import { keep, keepJson, keptJson, keptKeys, onKept } from "./kept";

const PREFIX = "outbox.";
const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 8_000;
/** The request timeout. It is long because attachments may be large and connections slow. */
const PATIENCE_MS = 60_000;
const UNKEPT = "The attachments were too large to save when the page closed. Attach them again.";

export interface Outgoing {
  session: string;
  message_id: string;
  text: string;
  agent?: string;
  fresh?: boolean;
  when_busy?: "queue" | "interrupt";
  attachments?: Attachment[];
  /** Why the server refused it. It then waits for the user. */
  refused?: string;
  /** When the user sent it. Messages of one session are sent in this order. */
  sent_at: number;
}

let outbox: Outgoing[] = read();
const listeners = new Set<() => void>();
/** Accepted by the server. Their log events have not arrived yet. */
const taken = new Set<string>();
/** Sessions with a delivery in progress. The function skips the current retry delay. */
const sending = new Map<string, () => void>();

function read(): Outgoing[] {
  // Earlier versions stored all messages under one key.
  for (const entry of keptJson<Outgoing[]>("outbox", [])) store(entry);
  keep("outbox", null);
  const found = keptKeys(PREFIX).map((key) => keptJson<Outgoing | null>(key, null));
  return found.filter((entry) => entry !== null).sort((a, b) => a.sent_at - b.sent_at);
}

function store(entry: Outgoing): void {
  if (keepJson(PREFIX + entry.message_id, entry)) return;
  // Storage is full. Store the text without the attachments, and say so when the message is shown again.
  const { attachments, ...rest } = entry;
  keepJson(PREFIX + entry.message_id, attachments?.length ? { ...rest, refused: UNKEPT } : rest);
}

function set(next: Outgoing[]): void {
  outbox = next;
  for (const listener of listeners) listener();
}

function change(messageId: string, changes: Partial<Outgoing>): void {
  set(outbox.map((one) => (one.message_id === messageId ? { ...one, ...changes } : one)));
  const changed = outbox.find((one) => one.message_id === messageId);
  if (changed) store(changed);
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};
export const useOutbox = () => useSyncExternalStore(subscribe, outboxNow);
export const outboxNow = () => outbox;

export function send(message: Omit<Outgoing, "message_id" | "sent_at">): void {
  const newest = outbox[outbox.length - 1]?.sent_at ?? 0;
  const entry: Outgoing = { ...message, message_id: newId("m"), sent_at: Math.max(Date.now(), newest + 1) };
  store(entry);
  set([...outbox, entry]);
  void deliver(entry.session);
}

/** Send a session's messages one at a time, in order, until none is left that can be sent. */
async function deliver(session: string): Promise<void> {
  if (sending.has(session)) return;
  sending.set(session, () => {});
  let retryMs = FIRST_RETRY_MS;
  for (;;) {
    const entry = outbox.find((one) => one.session === session && !one.refused && !taken.has(one.message_id));
    if (!entry) break;
    try {
      await post(entry);
      taken.add(entry.message_id);
      setTimeout(() => discard(entry.message_id), 1500);
      retryMs = FIRST_RETRY_MS;
    } catch (error) {
      if (!away(error)) change(entry.message_id, { refused: sentence(error) });
      else {
        await pause(session, retryMs);
        retryMs = Math.min(LAST_RETRY_MS, retryMs * 2);
      }
    }
  }
  sending.delete(session);
}

function post(entry: Outgoing): Promise<unknown> {
  const { session, sent_at: _, refused: __, ...body } = entry;
  return request("POST", at(session, "/messages"), body, undefined, AbortSignal.timeout(PATIENCE_MS));
}

function pause(session: string, ms: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    sending.set(session, () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** Remove a message: the log shows it now, or the user discarded it. */
export function discard(messageId: string): void {
  keep(PREFIX + messageId, null);
  taken.delete(messageId);
  if (outbox.some((one) => one.message_id === messageId)) set(outbox.filter((one) => one.message_id !== messageId));
}

/** The event is applied with the next frame. Until then the message stays here, and the view hides duplicates. */
function later(messageId: string): void {
  if (outbox.some((one) => one.message_id === messageId)) setTimeout(() => discard(messageId), 400);
}

export function tryAgain(messageId: string): void {
  const entry = outbox.find((one) => one.message_id === messageId);
  if (!entry) return;
  change(messageId, { refused: undefined });
  void deliver(entry.session);
}

/** The server is reachable again: send pending messages immediately. */
function goOn(): void {
  for (const wake of sending.values()) wake();
  for (const session of new Set(outbox.map((one) => one.session))) void deliver(session);
}

listen((message) => {
  if (message.kind === "link" && message.state === "live") goOn();
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

// Another tab has sent or discarded the message, so remove it here too.
onKept((key, value) => {
  if (value === null && key.startsWith(PREFIX)) set(outbox.filter((one) => PREFIX + one.message_id !== key));
});
