// The conversation: a virtual list of rows that follows the end until the user scrolls away. Above: the session view.
// Below: rows.ts computes the rows; turnrows, tool and markdown draw them. User input (wheel, touch, keys, scroll bar)
// decides whether the list follows the end, never the scroll position alone.

import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState, type Ref, useImperativeHandle } from "react";
import { Virtualizer, type CacheSnapshot, type VirtualizerHandle } from "virtua";
import { Button } from "../parts/button";
import { BlockView } from "../parts/markdown";
import { go, pathOf, pathOfChanges, routeNow, type Place } from "../shell/router";
import { isBusy } from "../state/attention";
import { useOutbox } from "../state/outbox";
import { useSession, type SessionStore } from "../state/store";
import { plural } from "../text/words";
import { ChangesRow } from "./changesrow";
import { OutgoingRow } from "./outgoing";
import { usePlace } from "./place";
import { cameBefore, firstKey, RowMaker, type Row } from "./rows";
import { ToolsView, ToolView } from "./tool";
import { AskedRow, ImageRow, MessageRow, Notice, PlanRow, ReplayedRow, ResolvedRow, RewoundRow, Separator, Thinking, type TurnActions } from "./turnrows";
import { Working } from "./working";

const NEAR_PX = 32;
const EARLIER_PX = 800;

interface Position {
  cache: CacheSnapshot;
  offset: number;
  following: boolean;
}
/** The scroll position in each session of this tab. */
const positions = new Map<string, Position>();

export interface ConversationHandle {
  toEnd(): void;
}

interface Props {
  store: SessionStore;
  /** The turn to go to; null: stay. */
  place: Place | null;
  actions: TurnActions;
  onRewound: (turns: number[]) => void;
  ref: Ref<ConversationHandle>;
}

export function Conversation({ store, place, actions, onRewound, ref }: Props) {
  const state = useSession(store);
  const maker = useRef<RowMaker>(null);
  maker.current ??= new RowMaker();
  const [open, setOpen] = useState<Set<string>>(() => new Set());
  const outbox = useOutbox();
  const rows = useMemo(() => maker.current!.rows(state, open, outbox, store.earlier), [state, open, outbox, store]);
  const { scroller, list, following, away, toEnd: scrollToEnd, begin, look } = useFollowing(store, rows);
  const showRewound = (turn: number) => setOpen((before) => new Set(before).add("rewound:" + turn));
  const reveal = (keys: string[]) => setOpen((before) => new Set([...before, ...keys]));
  const found = usePlace(store, rows, place, list, begin, showRewound, reveal);
  const toEnd = () => {
    scrollToEnd();
    // Remove the turn from the address, so that a reload stays at the end.
    const route = routeNow();
    const changes = route.view === "session" ? route.changes : null;
    if (place) go(changes ? pathOfChanges(store.id, changes.turn, changes.file) : pathOf(store.id), true);
  };
  useImperativeHandle(ref, () => ({ toEnd }));

  const toggle = useCallback((key: string) => {
    // Stop following the end, so that the opened row stays in view.
    look();
    setOpen((before) => {
      const next = new Set(before);
      if (!next.delete(key)) next.add(key);
      return next;
    });
  }, [look]);
  /** Toggles all of these turns together. The server may return none of them. */
  const toggleRewound = (turns: number[], isOpen: boolean) => {
    look();
    setOpen((before) => {
      const next = new Set(before);
      for (const turn of turns) if (isOpen) next.delete("rewound:" + turn); else next.add("rewound:" + turn);
      return next;
    });
    if (!isOpen) onRewound(turns);
  };

  const showWhole = (turn: number) => {
    look();
    void store.loadWhole(turn);
  };

  const busy = isBusy(state.session);
  const waits = state.session?.state === "accepted";
  const workdir = state.session?.workdir ?? "";
  const draw = (row: Row) => {
    switch (row.kind) {
      case "earlier":
        return (
          <div className="py-4 text-center text-xs text-quiet">
            {store.trouble && <p className="pb-1 text-red">Can't load earlier turns. {store.trouble}</p>}
            {store.loading ? <p>Loading {plural(row.count, "earlier turn")}</p> : <button type="button" className="reach underline underline-offset-2 hover:text-text" onClick={() => void store.loadEarlier()}>Show {plural(row.count, "earlier turn")}</button>}
          </div>
        );
      case "message":
        return <MessageRow turn={row.turn} actions={actions} busy={busy} waits={waits} ended={state.session?.state === "ended"} session={state.id} />;
      case "separator":
        return <Separator turn={row.turn} />;
      case "replayed":
        return <ReplayedRow info={row.info} />;
      case "skipped":
        return (
          <div className="py-2 text-center text-xs text-quiet">
            {store.trouble && <p className="pb-1 text-red">Can't load earlier steps. {store.trouble}</p>}
            {store.loading ? <p>Loading {plural(row.count, "earlier step")}</p> : <button type="button" className="reach underline underline-offset-2 hover:text-text" onClick={() => showWhole(row.turn)}>Show {plural(row.count, "earlier step")}</button>}
          </div>
        );
      case "block":
        return <div className={`${row.first ? "pt-1.5" : ""} ${row.block.last === false ? "" : "pb-2.5"}`}><BlockView block={row.block} /></div>;
      case "thinking":
        return <Thinking part={row.part} live={row.live} isOpen={open.has(row.key)} onToggle={() => toggle(row.key)} />;
      case "tool":
        return <div className={row.inside ? "ml-5" : ""}><ToolView tool={row.tool} childTools={row.children} all={row.all} workdir={workdir} open={open} toggle={toggle} live={row.live} asked={row.asked} session={state.id} turn={row.turn} /></div>;
      case "tools":
        return <ToolsView tools={row.tools} isOpen={open.has(row.key)} onToggle={() => toggle(row.key)} />;
      case "plan":
        return <PlanRow part={row.part} isOpen={open.has(row.key)} onToggle={() => toggle(row.key)} />;
      case "image":
        return <ImageRow part={row.part} />;
      case "asked":
        return <AskedRow prompt={row.prompt} />;
      case "resolved":
        return <ResolvedRow part={row.part} prompt={row.prompt} />;
      case "notice":
        return <Notice part={row.part} turn={row.turn} onRetry={!busy && row.turn.message && state.session?.state !== "ended" ? () => void actions.retry(row.turn) : null} />;
      case "changes":
        return <ChangesRow session={state.id} changes={row.changes} />;
      case "rewound":
        return <RewoundRow turns={row.turns} isOpen={row.open} onToggle={() => toggleRewound(row.turns, row.open)} />;
      case "outgoing":
        return <OutgoingRow message={row.message} />;
      case "working":
        return <Working state={state} />;
    }
  };

  const first = useRef<string | undefined>(undefined);
  const prepended = cameBefore(first.current, rows);
  useLayoutEffect(() => {
    first.current = firstKey(rows);
  });

  return (
    <div className="relative min-h-0 flex-1">
      <div ref={scroller} role="log" aria-label="Conversation" aria-live="off" tabIndex={0} data-following={following} className="h-full overflow-y-auto overscroll-contain px-4 pb-12 [overflow-anchor:none] focus-visible:outline-offset-[-2px] sm:px-6">
        <Virtualizer ref={list} scrollRef={scroller} shift={prepended} cache={positions.get(state.id)?.cache} itemSize={48}>
          {rows.map((row) => (
            <div key={row.key} aria-current={found?.key === row.key ? "location" : undefined} className={`mx-auto max-w-[92ch] ${row.gone ? "border-l-2 border-line pl-3 [&_.md]:text-quiet [&_.said]:text-quiet" : ""} ${found?.key === row.key && found.marked ? "marked" : ""}`}>{draw(row)}</div>
          ))}
        </Virtualizer>
        {!rows.length && <p className="px-4 py-12 text-center text-quiet">{state.session?.state === "ended" ? "No messages." : `No messages yet. Tell ${state.session?.agent ?? "the agent"} what to do.`}</p>}
      </div>
      {!following && (
        <div className="pointer-events-none absolute right-4 bottom-3 sm:right-6">
          <Button icon="down" className="floats pointer-events-auto" onClick={toEnd}>{away > 0 ? `${away} new` : "Jump to the end"}</Button>
        </div>
      )}
    </div>
  );
}

/** The scroll position, and whether the list follows the end. */
function useFollowing(store: SessionStore, rows: Row[]) {
  const scroller = useRef<HTMLDivElement>(null);
  const list = useRef<VirtualizerHandle>(null);
  const position = positions.get(store.id);
  const [following, setFollowing] = useState(position?.following ?? true);
  const follows = useRef(following);
  const [seen, setSeen] = useState("");
  const byHand = useRef(false);

  const last = useRef("");
  last.current = rows.findLast((row) => row.kind !== "working")?.key ?? "";
  const set = useCallback((value: boolean) => {
    if (follows.current === value) return;
    follows.current = value;
    setFollowing(value);
    if (!value) setSeen(last.current);
  }, []);

  const pin = useCallback(() => {
    const element = scroller.current;
    if (element && follows.current) element.scrollTop = element.scrollHeight;
  }, []);
  const toEnd = useCallback(() => {
    set(true);
    pin();
  }, [set, pin]);
  // The scrolling that follows is not caused by the user.
  const begin = useCallback(() => {
    byHand.current = false;
    set(false);
  }, [set]);

  /** The user looks at a row: stop following, and resume only if it is still at the end. */
  const look = useCallback(() => {
    begin();
    requestAnimationFrame(() =>
      requestAnimationFrame(() => {
        const element = scroller.current;
        if (element && element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_PX) set(true);
      }),
    );
  }, [begin, set]);

  useLayoutEffect(pin, [rows.length, pin]);

  useEffect(() => {
    const element = scroller.current!;
    const atEnd = () => element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_PX;
    const leave = () => {
      if (element.scrollHeight > element.clientHeight + NEAR_PX) set(false);
    };
    const wheel = (event: WheelEvent) => {
      byHand.current = true;
      if (event.deltaY < 0) leave();
    };
    const keys = (event: KeyboardEvent) => {
      if (event.target !== element) return;
      byHand.current = true;
      if (["PageUp", "ArrowUp", "Home"].includes(event.key) || (event.key === " " && event.shiftKey)) leave();
      if (event.key === "End") toEnd();
    };
    let touched = 0;
    const touchStart = (event: TouchEvent) => (touched = event.touches[0]?.clientY ?? 0);
    const touchMove = (event: TouchEvent) => {
      byHand.current = true;
      if ((event.touches[0]?.clientY ?? 0) > touched + 4) leave();
    };
    // Keyboard navigation: keep the focused row in view until it loses focus.
    const focus = (event: FocusEvent) => {
      const row = event.target as HTMLElement;
      if (row !== element && row.matches(":focus-visible") && (isBusy(store.state.session) || !atEnd())) leave();
    };
    const blur = (event: FocusEvent) => {
      if (!element.contains(event.relatedTarget as Node | null) && atEnd()) set(true);
    };
    // The scroll bar: a press on the scroller itself, not on a row.
    let before = element.scrollTop;
    const press = (event: PointerEvent) => {
      if (event.target === element) byHand.current = true;
    };
    const scroll = () => {
      if (byHand.current) {
        if (element.scrollTop < before - 1 && !atEnd()) leave();
        else if (atEnd()) set(true);
      }
      before = element.scrollTop;
      if (element.scrollTop < EARLIER_PX && !follows.current && store.earlier && !store.loading) void store.loadEarlier();
    };
    element.addEventListener("wheel", wheel, { passive: true });
    element.addEventListener("keydown", keys);
    element.addEventListener("touchstart", touchStart, { passive: true });
    element.addEventListener("touchmove", touchMove, { passive: true });
    element.addEventListener("focusin", focus);
    element.addEventListener("focusout", blur);
    element.addEventListener("pointerdown", press);
    element.addEventListener("scroll", scroll, { passive: true });
    const sizes = new ResizeObserver(pin);
    sizes.observe(element);
    if (element.firstElementChild) sizes.observe(element.firstElementChild);
    return () => {
      sizes.disconnect();
      element.removeEventListener("wheel", wheel);
      element.removeEventListener("keydown", keys);
      element.removeEventListener("touchstart", touchStart);
      element.removeEventListener("touchmove", touchMove);
      element.removeEventListener("focusin", focus);
      element.removeEventListener("focusout", blur);
      element.removeEventListener("pointerdown", press);
      element.removeEventListener("scroll", scroll);
    };
  }, [store, set, pin, toEnd]);

  useLayoutEffect(() => {
    if (position && !position.following) scroller.current!.scrollTop = position.offset;
    const element = scroller.current!;
    const handle = list.current;
    return () => {
      if (handle) positions.set(store.id, { cache: handle.cache, offset: element.scrollTop, following: follows.current });
    };
  }, [store]);

  return { scroller, list, following, away: following ? 0 : rowsAfter(rows, seen), toEnd, begin, look };
}

/** How many rows were added after this one. */
function rowsAfter(rows: Row[], key: string): number {
  const at = rows.findLastIndex((row) => row.key === key);
  return at < 0 ? 0 : rows.slice(at + 1).filter((row) => row.kind !== "working").length;
}
