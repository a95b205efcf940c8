// The three states that a person cares about, in the same words everywhere. Above: lists, headers, the title. Below: nothing.

import type { Session } from "../wire/types";

export type Attention = "waiting" | "working" | "failed" | "quiet";

/** The three states a person cares about, and failure. */
export function attention(session: Session): Attention {
  if (session.pending_prompts > 0) return "waiting";
  if (session.state === "processing") return "working";
  if (session.error || session.status === "failed") return "failed";
  return "quiet";
}

export const ATTENTION_WORDS: Record<Attention, string> = {
  waiting: "Waiting for you",
  working: "Working",
  failed: "Failed",
  quiet: "Idle",
};

export function titleOf(session: Pick<Session, "title" | "id">): string {
  return session.title.trim() || "Untitled session";
}
