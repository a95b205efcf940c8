// A session's state as the user sees it, with the same labels everywhere. Above: lists, headers, the tab title.
// Below: nothing.

import type { Session } from "../wire/types";

export type Attention = "waiting" | "working" | "accepted" | "failed" | "quiet";

/** The state shown to the user. A turn that starts immediately is "accepted" for only a moment; it counts as working,
 * to avoid flicker. */
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
  accepted: "Waiting to start",
  failed: "Failed",
  quiet: "Idle",
};

/** Whether a turn is running or about to start. If so, the next message is queued. */
export const isBusy = (session: Pick<Session, "state"> | null | undefined) => session?.state === "processing" || session?.state === "accepted";

export function titleOf(session: Pick<Session, "title" | "id">): string {
  return session.title.trim() || "Untitled session";
}
