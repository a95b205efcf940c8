// Decides which notifications to show. Each one is delayed briefly, so that nothing already seen in another tab or
// already over is shown. A notification is closed when it no longer applies. Above: telling.ts passes in events and
// shows the results. Below: timers, and a channel between the tabs of a browser.

import type { Event } from "../wire/types";

/** Long enough for another tab to report that it shows the session, and for the other missed events to arrive. */
const WAIT_MS = 500;
const REMEMBERED = 200;

/** Sent between tabs: the user is looking at this session, and so has seen this notification. */
export interface Seen {
  session: string;
  key?: string;
}

export interface Note {
  close(): void;
}

interface Entry {
  session: string;
  timer: ReturnType<typeof setTimeout>;
  note: Note | null;
}

export interface Surroundings {
  looking(session: string): boolean;
  show(event: Event, words: string, key: string): Promise<Note | null>;
  tell(seen: Seen): void;
}

export class Notes {
  private readonly entries = new Map<string, Entry>();
  private readonly over = new Set<string>();

  constructor(private readonly around: Surroundings) {}

  hear(event: Event): void {
    const session = event.session_id;
    if (event.type === "prompt_resolved") this.finish(`${session} ${event.prompt_id}`);
    // The next turn has started or is waiting, so a notification about the previous one is obsolete.
    if (event.type === "turn_start" || event.type === "waiting_to_begin") this.withdraw(`${session} turn`);
    const words = wordsOf(event);
    if (!words) return;
    const key = event.type === "pending_prompt" ? `${session} ${event.prompt_id}` : `${session} turn`;
    const once = event.type === "pending_prompt" ? key : `${key} ${event.turn}`;
    if (this.around.looking(session)) this.around.tell({ session, key: once });
    else if (!this.over.has(once)) this.wait(event, words, key);
  }

  /** The user is looking at this session, here or in another tab. */
  seen({ session, key }: Seen): void {
    if (key) this.remember(key);
    for (const [known, entry] of this.entries) if (entry.session === session) this.withdraw(known);
  }

  private wait(event: Event, words: string, key: string): void {
    this.withdraw(key);
    const entry: Entry = { session: event.session_id, note: null, timer: setTimeout(() => void this.show(event, words, key, entry), WAIT_MS) };
    this.entries.set(key, entry);
  }

  private async show(event: Event, words: string, key: string, entry: Entry): Promise<void> {
    const note = await this.around.show(event, words, key);
    if (this.entries.get(key) === entry) entry.note = note;
    else note?.close();
  }

  private finish(key: string): void {
    this.remember(key);
    this.withdraw(key);
  }

  private remember(key: string): void {
    this.over.add(key);
    if (this.over.size > REMEMBERED) this.over.delete(this.over.values().next().value!);
  }

  private withdraw(key: string): void {
    const entry = this.entries.get(key);
    if (!entry) return;
    this.entries.delete(key);
    clearTimeout(entry.timer);
    entry.note?.close();
  }
}

export function wordsOf(event: Event): string | null {
  if (event.type === "pending_prompt") return `Waiting for you: ${event.title || event.questions?.[0]?.question || "a prompt"}`;
  if (event.type !== "turn_end" || event.stop_reason === "cancelled") return null;
  return event.stop_reason === "end_turn" ? "Turn finished." : "Turn failed.";
}
