// Which prompt the shortcut keys answer, and when: only one that was on screen long enough to be read. Above: the
// session view and the inbox. Below: nothing. A key that is held or pressed twice must not answer the next prompt.

import { useEffect, useState } from "react";
import type { Diff, Prompt, PromptOption, ToolPart, TranscriptTurn } from "../wire/types";

export const READ_MS = 400;

/** Prompts answered by key. A second press is meant for the same prompt, so it does nothing. */
const given = new Set<string>();

export function once(prompt: string): boolean {
  if (given.has(prompt)) return false;
  given.add(prompt);
  return true;
}

/** The answer failed, so allow the key again. */
export const again = (prompt: string) => void given.delete(prompt);

/** The option for a key: y allows once, a allows always. Undefined if the prompt does not offer it. */
export function optionOf(options: PromptOption[], key: string): PromptOption | undefined {
  const kind = { y: "allow_once", a: "allow_always" }[key];
  return options.find((option) => option.kind === kind);
}

/** The selected prompt, which stays selected while others come and go. By default, the first one a key can answer. */
export function marked<T extends { prompt: { prompt_id: string; kind: Prompt["kind"] } }>(all: T[], id: string | null): T | undefined {
  return all.find((one) => one.prompt.prompt_id === id) ?? all.find((one) => one.prompt.kind === "permission");
}

/** Whether this prompt has been selected long enough to be answered by key. */
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

/** The changes proposed by a tool that waits for permission. */
export function diffOf(turns: TranscriptTurn[], tool: string): Diff[] | undefined {
  return turns.flatMap((turn) => turn.parts).find((part): part is ToolPart => part.type === "tool" && part.tool_id === tool)?.diff;
}
