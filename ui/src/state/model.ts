// The page's state of a session, as immutable values. Above: session.ts and folding.ts create them, views read them.
// Below: the wire types. Unchanged values keep their identity, so finished turns are not rendered again.

import type { TurnChanges } from "../wire/changes";
import type { Command, Message, Part, Prompt, Queued, Session, TurnInfo } from "../wire/types";

export interface Turn {
  turn: number;
  info: TurnInfo | null;
  message: Message | null;
  parts: Part[];
  /** Whether all parts are loaded. If not, they have to be fetched. */
  loaded: boolean;
  /** How many parts at the start of a very long turn are not loaded. They are fetched on request. */
  skipped: number;
  /** Rewound: no longer part of the conversation, and shown collapsed. */
  rewound: boolean;
  /** Events up to this number are already included in the parts. */
  upTo: number;
}

export interface State {
  id: string;
  seq: number;
  session: Session | null;
  turns: Turn[];
  /** All turns of the conversation, loaded or not. */
  visible: number[];
  prompts: Prompt[];
  queue: Queued[];
  /** Every prompt seen so far, to show its title after it is answered. */
  asked: Record<string, Prompt>;
  commands: Command[];
  /** The model, mode and options of each agent this session has used, for switching back to one. */
  choices: Record<string, Partial<Session>>;
  /** What turns changed in the repository, as far as it is known here. */
  changes: Record<number, TurnChanges>;
  lastEventAt: string | null;
  /** Events were missed or can't be applied: fetch a new snapshot. */
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
    changes: {},
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
