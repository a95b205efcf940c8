// What a session does, in the words that a person cares about, the same everywhere. Above: lists, headers, the title. Below:
// nothing.

import type { Session } from "../wire/types";

export type Attention = "waiting" | "working" | "accepted" | "failed" | "quiet";

/** The states a person cares about. A turn that begins at once is accepted for a moment only: that counts as working, so that
 * nothing flickers. */
export function attention(session: Session): Attention {
  if (session.pending_prompts > 0) return "waiting";
  if (session.state === "accepted" && session.waits_for) return "accepted";
  if (isBusy(session)) return "working";
  if (session.error || session.status === "failed") return "failed";
  return "quiet";
}

export const ATTENTION_WORDS: Record<Attention, string> = {
  waiting: "Waiting for you",
  working: "Working",
  accepted: "Waiting to begin",
  failed: "Failed",
  quiet: "Idle",
};

/** Whether a turn runs or is about to: the next message is queued. */
export const isBusy = (session: Pick<Session, "state"> | null | undefined) => session?.state === "processing" || session?.state === "accepted";

export function titleOf(session: Pick<Session, "title" | "id">): string {
  return session.title.trim() || "Untitled session";
}
