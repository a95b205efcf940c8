// The last row while a turn is active: what runs and for how long, how long there was no activity, or what the turn
// waits for before it can start. It includes a stop button. It is not a spinner: users who come back want to know
// whether to wait. Above: conversation.tsx. Below: a clock.

import { Button } from "../parts/button";
import { useSeconds } from "../parts/clock";
import { attempt } from "../shell/toast";
import type { State } from "../state/session";
import { counting } from "../text/words";
import { at, post } from "../wire/api";
import type { ToolPart } from "../wire/types";
import { describe, isRunning } from "../text/tool";

const QUIET_AFTER_MS = 15_000;

export const interrupt = (id: string) => attempt(post(at(id, "/abort")));

export function Working({ state }: { state: State }) {
  const now = useSeconds();
  const turn = state.turns[state.turns.length - 1];
  const since = turn?.info?.started_at ? now - Date.parse(turn.info.started_at) : 0;
  const quiet = state.lastEventAt ? now - Date.parse(state.lastEventAt) : 0;
  const tool = turn?.parts.findLast((part): part is ToolPart => part.type === "tool" && isRunning(part));
  const waits = state.prompts.length > 0;
  let words = waits ? "Waiting for you" : since < 1000 ? "Working" : `Working for ${counting(since)}`;
  // The server reports what an accepted turn waits for.
  const before = state.session?.state === "accepted" ? state.session.waits_for?.message : undefined;
  if (before) words = before;
  else if (!waits && quiet > QUIET_AFTER_MS) {
    const what = tool ? describe(tool, state.session?.workdir ?? "") : null;
    words = `No activity for ${counting(quiet)}${what && tool?.started_at ? `, ${what.subject || what.verb} running for ${counting(now - Date.parse(tool.started_at))}` : ""}`;
  }
  return (
    <div className="my-3 flex max-w-[92ch] items-center gap-3 text-sm text-quiet" role="status" aria-live="off">
      <span className={`size-2 shrink-0 rounded-full ${waits ? "bg-amber-mark" : before ? "border-2 border-accent" : "pulse bg-accent"}`} />
      <span className={`min-w-0 break-words tabular-nums ${waits ? "text-amber" : ""}`}>{words}</span>
      <Button tone="quiet" icon="stop" onClick={() => void interrupt(state.id)}>{before ? "Cancel" : "Interrupt"}</Button>
    </div>
  );
}
