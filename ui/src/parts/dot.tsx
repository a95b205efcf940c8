// The dot for a session's state: one colour and one label per state. Above: lists and headers. Below: nothing.

import { ATTENTION_WORDS, type Attention } from "../state/sessions";

const COLOURS: Record<Attention, string> = { waiting: "bg-amber-mark", working: "bg-accent pulse", accepted: "bg-transparent border-2 border-accent", failed: "bg-red", quiet: "bg-transparent border border-strong" };

export function Dot({ state, silent = false }: { state: Attention; silent?: boolean }) {
  return (
    <span className="inline-flex size-4 shrink-0 items-center justify-center" title={ATTENTION_WORDS[state]}>
      <span className={`size-2 rounded-full ${COLOURS[state]}`} />
      {!silent && <span className="sr-only">{ATTENTION_WORDS[state]}: </span>}
    </span>
  );
}
