// Going to a place in a session: a turn, also one that is not here yet or was taken back, and in it the words that were
// looked for. Above: conversation.tsx. Below: the session's store brings what is missing; the list scrolls.

import { useEffect, useRef, useState, type RefObject } from "react";
import type { VirtualizerHandle } from "virtua";
import type { Place } from "../shell/router";
import { attempt, say } from "../shell/toast";
import type { SessionStore } from "../state/store";
import { rowAt, type Row } from "./rows";

const MARKED_MS = 2500;
/** What is before a piece of an answer is seen too. */
const CONTEXT_PX = 72;

interface Found {
  key: string;
  /** For a moment, so that the eye finds it. */
  marked: boolean;
}

export function usePlace(store: SessionStore, rows: Row[], place: Place | null, list: RefObject<VirtualizerHandle | null>, begin: () => void, show: (turn: number) => void): Found | null {
  const wanted = useRef<Place | null>(null);
  const [found, setFound] = useState<Found | null>(null);

  useEffect(() => {
    wanted.current = place;
    setFound(null);
    if (!place) return;
    // From now on the end is not followed, so that nothing scrolls there while the turn is on its way.
    begin();
    void bring(store, place.turn, show);
  }, [store, place]);

  useEffect(() => {
    const place = wanted.current;
    if (!place || !store.has(place.turn)) return;
    const index = rowAt(rows, place.turn, place.q);
    const row = rows[index];
    if (!row) return;
    wanted.current = null;
    setFound({ key: row.key, marked: true });
    requestAnimationFrame(() => list.current?.scrollToIndex(index, { align: "start", offset: row.kind === "block" ? -CONTEXT_PX : 0 }));
  }, [rows, place]);

  useEffect(() => {
    if (!found?.marked) return;
    const timer = setTimeout(() => setFound({ ...found, marked: false }), MARKED_MS);
    return () => clearTimeout(timer);
  }, [found]);
  return found;
}

async function bring(store: SessionStore, turn: number, show: (turn: number) => void): Promise<void> {
  if (store.state.visible.includes(turn)) return store.loadFrom(turn);
  const there = await attempt(store.loadRewound([turn]));
  if (there) show(turn);
  else if (there === false) say(`This session has no turn ${turn}.`);
}
