// What the page knows of a session, as values. Above: session.ts and folding.ts make them, views read them. Below: the types
// of the wire. Values that did not change keep their identity, so that a view of a finished turn is never rendered again.

import type { Command, Message, Part, Prompt, Queued, Session, TurnInfo } from "../wire/types";

export interface Turn {
  turn: number;
  info: TurnInfo | null;
  message: Message | null;
  parts: Part[];
  /** Whether the parts are here from the beginning; else they are to be fetched. */
  loaded: boolean;
  /** How many parts of the beginning of a very long turn are not here. They are fetched when the person asks for them. */
  skipped: number;
  /** Taken back: no longer part of the conversation, and folded. */
  rewound: boolean;
  /** Events up to this number are already in the parts. */
  upTo: number;
}

export interface State {
  id: string;
  seq: number;
  session: Session | null;
  turns: Turn[];
  /** The turns that exist, whether they are here or not. */
  visible: number[];
  prompts: Prompt[];
  queue: Queued[];
  /** Every prompt that was seen, for what it was called once it is answered. */
  asked: Record<string, Prompt>;
  commands: Command[];
  /** What was chosen for the agents that this session was seen with, for when it comes back to them. */
  choices: Record<string, Partial<Session>>;
  lastEventAt: string | null;
  /** Something changed behind what was seen: begin anew. */
  stale: boolean;
}

export function empty(id: string): State {
  return {
    id,
    seq: 0,
    session: null,
    turns: [],
    visible: [],
    prompts: [],
    queue: [],
    asked: {},
    commands: [],
    choices: {},
    lastEventAt: null,
    stale: false,
  };
}

export const blank = (turn: number): Turn => ({ turn, info: null, message: null, parts: [], loaded: true, skipped: 0, rewound: false, upTo: 0 });

export function find(state: State, turn: number | null): Turn | undefined {
  for (let index = state.turns.length - 1; index >= 0; index--) {
    if (state.turns[index]!.turn === turn) return state.turns[index];
  }
  return undefined;
}
