// Permission requests and questions: wire types. Above: everything that shows or answers a prompt. Below: the shared
// wire types.

import type { Diff, Json } from "./types";

export interface PromptOption {
  option_id: string;
  name: string;
  kind: "allow_once" | "allow_always" | "reject_once" | "reject_always";
}

export interface Question {
  question_id: string;
  question: string;
  header: string;
  multiple: boolean;
  options: { label: string; description: string }[];
}

export interface Prompt {
  prompt_id: string;
  kind: "permission" | "question";
  turn: number | null;
  title: string;
  tool_id: string | null;
  tool?: string | null;
  input: Json;
  asked_at: string;
  options: PromptOption[];
  questions: Question[];
  always?: string[];
  /** What the allow_always option covers. */
  covers?: string[];
  /** The change that waits for permission. */
  diff?: Diff[];
}
