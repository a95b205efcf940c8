// Choosing an agent: the list of choices, and the dialog to re-run a turn with another agent. Above: composers, the
// session view and the job form. Below: the server's list of agents.

import { useState } from "react";
import { Button } from "../parts/button";
import { Dialog } from "../parts/dialog";
import type { Turn } from "../state/session";
import type { Agent } from "../wire/types";

export function agentChoices(agents: Agent[]) {
  return agents.map((agent) => ({ value: agent.name, name: agent.name, hint: agent.state === "ready" ? undefined : (agent.reason?.replaceAll("`", "") ?? agent.state.replace("_", " ")), disabled: agent.state === "missing" || agent.state === "broken" || agent.state === "too_old" }));
}

interface Props {
  turn: Turn;
  agents: Agent[];
  /** Null if a retry is not possible now. */
  onRetry: ((agent: string) => void) | null;
  onFork: (agent: string) => void;
  onClose: () => void;
}

export function AnotherAgent({ turn, agents, onRetry, onFork, onClose }: Props) {
  const choices = agentChoices(agents).filter((choice) => !choice.disabled && choice.value !== turn.info?.agent);
  const [chosen, setChosen] = useState(choices[0]?.value ?? "");
  const agent = choices.some((choice) => choice.value === chosen) ? chosen : "";
  const pick = (act: (agent: string) => void) => () => (onClose(), act(agent));
  return (
    <Dialog title={`Turn ${turn.turn} with another agent`} onClose={onClose}>
      <fieldset className="mb-4 text-sm">
        <legend className="sr-only">Agent</legend>
        {choices.map((choice) => (
          <label key={choice.value} className="flex items-start gap-2 rounded-md px-2 py-1.5 hover:bg-hover">
            <input type="radio" name="agent" value={choice.value} checked={choice.value === agent} onChange={() => setChosen(choice.value)} className="mt-1" />
            <span className="min-w-0 break-words">{choice.name}{choice.hint && <span className="block text-xs text-quiet">{choice.hint}</span>}</span>
          </label>
        ))}
      </fieldset>
      <div className="flex flex-wrap gap-2">
        {onRetry && <Button tone="primary" icon="retry" disabled={!agent} title="Rewinds this turn and all later ones, then sends the message again" onClick={pick(onRetry)}>Retry from here</Button>}
        <Button icon="fork" disabled={!agent} title="New session with the history up to and including this turn" onClick={pick(onFork)}>Fork from here</Button>
      </div>
    </Dialog>
  );
}
