// Going to a place in a session: a turn, and the search terms in it. The turn may not be loaded yet, or may be rewound.
// Above: conversation.tsx. Below: the session's store loads what is missing; the list scrolls.

import { useEffect, useRef, useState, type RefObject } from "react";
import type { VirtualizerHandle } from "virtua";
import type { Place } from "../shell/router";
import { say } from "../shell/toast";
import type { SessionStore } from "../state/store";
import { Problem, sentence } from "../wire/api";
import { rowAt, rowOfTool, type Row } from "./rows";

const MARKED_MS = 2500;
/** Space above the target, so that some context is visible. */
const CONTEXT_PX = 72;
const FIRST_RETRY_MS = 1000;
const LAST_RETRY_MS = 30_000;

type Bringer = Pick<SessionStore, "loadFrom" | "loadRewound"> & { state: { visible: number[] } };

interface Found {
  key: string;
  /** Highlighted for a moment. */
  marked: boolean;
}

export function usePlace(store: SessionStore, rows: Row[], place: Place | null, list: RefObject<VirtualizerHandle | null>, begin: () => void, show: (turn: number) => void, reveal: (keys: string[]) => void): Found | null {
  const wanted = useRef<Place | null>(null);
  /** Rows that were opened to show the place. */
  const opened = useRef(new Set<string>());
  const [found, setFound] = useState<Found | null>(null);

  useEffect(() => {
    wanted.current = place;
    opened.current = new Set();
    setFound(null);
    if (!place) return;
    // Stop following the end, so that nothing scrolls there while the turn loads.
    begin();
    let here = true;
    void bring(store, place.turn, show, () => here);
    return () => {
      here = false;
    };
  }, [store, place]);

  useEffect(() => {
    const place = wanted.current;
    if (!place || !store.has(place.turn)) return;
    const tool = place.tool ? rowOfTool(rows, place.tool) : null;
    // The tool is in a closed row: come back when it is open.
    if (tool?.closed.some((key) => !opened.current.has(key))) {
      for (const key of tool.closed) opened.current.add(key);
      return reveal(tool.closed);
    }
    const index = tool && tool.index >= 0 ? tool.index : rowAt(rows, place.turn, place.q);
    const row = rows[index];
    if (!row) return;
    wanted.current = null;
    setFound({ key: row.key, marked: true });
    requestAnimationFrame(() => list.current?.scrollToIndex(index, { align: "start", offset: row.kind === "block" || row.kind === "tool" ? -CONTEXT_PX : 0 }));
  }, [rows, place]);

  useEffect(() => {
    if (!found?.marked) return;
    const timer = setTimeout(() => setFound({ ...found, marked: false }), MARKED_MS);
    return () => clearTimeout(timer);
  }, [found]);
  return found;
}

/** Load a turn, even one that was rewound or is newer than what is known here. Retries until the server responds, or
 * until `here` returns false because the user has left. */
export async function bring(store: Bringer, turn: number, show: (turn: number) => void, here: () => boolean): Promise<void> {
  for (let wait = FIRST_RETRY_MS; here(); wait = Math.min(LAST_RETRY_MS, wait * 2)) {
    if (store.state.visible.includes(turn)) return store.loadFrom(turn);
    try {
      const found = await store.loadRewound([turn]);
      if (!here()) return;
      if (found.some((one) => one.turn === turn && one.rewound)) show(turn);
      else if (found.some((one) => one.turn === turn)) await store.loadFrom(turn);
      else say(`This session has no turn ${turn}.`);
      return;
    } catch (error) {
      if (!here()) return;
      if (wait === FIRST_RETRY_MS) say(sentence(error), true);
      if (error instanceof Problem && error.status === 404) return;
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}
