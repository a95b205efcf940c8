// Which prompt the keys answer, and when: one that stood still long enough to be read. Above: the session view and the
// inbox. Below: nothing. A key that is held, or pressed twice, must not allow what came up in its place.

import { useEffect, useState } from "react";
import type { Diff, Prompt, PromptOption, ToolPart, TranscriptTurn } from "../wire/types";

export const READ_MS = 400;

/** What was answered by key here: a second press is for the same prompt, and does nothing. */
const given = new Set<string>();

export function once(prompt: string): boolean {
  if (given.has(prompt)) return false;
  given.add(prompt);
  return true;
}

/** The answer did not arrive, so the key may give it again. */
export const again = (prompt: string) => void given.delete(prompt);

/** What a key means: once or always, and nothing else where a prompt offers only one of them. */
export function optionOf(options: PromptOption[], key: string): PromptOption | undefined {
  const kind = { y: "allow_once", a: "allow_always" }[key];
  return options.find((option) => option.kind === kind);
}

/** The prompt that stays marked while others come and go around it: by itself one that a key can answer. */
export function marked<T extends { prompt: { prompt_id: string; kind: Prompt["kind"] } }>(all: T[], id: string | null): T | undefined {
  return all.find((one) => one.prompt.prompt_id === id) ?? all.find((one) => one.prompt.kind === "permission");
}

/** Whether this prompt has been the one for long enough to be answered by key. */
export function useStill(prompt: string | undefined): boolean {
  const [still, setStill] = useState<string | null>(null);
  useEffect(() => {
    setStill(null);
    if (!prompt) return;
    const timer = setTimeout(() => setStill(prompt), READ_MS);
    return () => clearTimeout(timer);
  }, [prompt]);
  return prompt !== undefined && still === prompt;
}

/** What a tool that waits for permission would change. */
export function diffOf(turns: TranscriptTurn[], tool: string): Diff[] | undefined {
  return turns.flatMap((turn) => turn.parts).find((part): part is ToolPart => part.type === "tool" && part.tool_id === tool)?.diff;
}
