// The diffs of all changed files, one below the other, in one scroll. Only what is in sight is drawn. Above: the view of
// changes. Below: sections and their rows. The line cursor moves by keys; numbers are pressed or dragged to comment.

import { useCallback, useDeferredValue, useImperativeHandle, useLayoutEffect, useMemo, useReducer, useRef, useState, type Ref } from "react";
import type { FileState } from "../../state/changes";
import { draftsOf } from "../../state/review";
import { isViewed } from "../../state/viewed";
import type { Metrics } from "./heights";
import { useMoving } from "./moving";
import { usePressing } from "./pressing";
import { indexOf } from "./rows";
import { topsOf } from "./scrolling";
import { Body, Head, type Doing } from "./section";
import { SectionMaker, type Options } from "./sections";
import { useScroller, useWindow } from "./windowing";

export interface DiffsHandle {
  /** Scroll to a file, or to a row of it, and put the cursor there. */
  goTo: (path: string, key?: string | null) => void;
  focus: () => void;
  /** Focus the line above this row. */
  leave: (path: string, key: string) => void;
}

interface Props {
  files: FileState[];
  options: Omit<Options, "metrics">;
  viewed: Record<string, string>;
  /** Why this tab can't change files now; null: it can. */
  refusal: string | null;
  /** Whether parts of a change can be discarded. */
  parts: boolean;
  doing: Doing;
  /** Called with the file at the top. */
  onCurrent: (path: string) => void;
  /** Whether the keys of the view apply. */
  within: () => boolean;
  ref: Ref<DiffsHandle>;
}

const NARROW_PX = 560;
const SIGN_PX = 18;
const END_PX = 9;
const LEAST_DIGITS = 3;

/** The width of a letter of code. */
function letterPx(size: number): number {
  const context = document.createElement("canvas").getContext("2d")!;
  context.font = `${size}px ${getComputedStyle(document.documentElement).getPropertyValue("--font-mono") || "monospace"}`;
  return context.measureText("0".repeat(100)).width / 100;
}

function useMetrics(width: number, split: boolean, digits: number): Metrics & { numbersPx: number; narrow: boolean } {
  const [letters] = useState(() => ({ code: letterPx(13), number: letterPx(12) }));
  const coarse = matchMedia("(pointer: coarse)").matches;
  return useMemo(() => {
    const narrow = width < NARROW_PX && !split;
    const numbersPx = Math.ceil(Math.max(LEAST_DIGITS, digits) * letters.number) + 14;
    const rest = split ? width / 2 - numbersPx - SIGN_PX : width - (narrow ? 1 : 2) * numbersPx - SIGN_PX;
    return { linePx: coarse ? 24 : 20, headPx: coarse ? 48 : 40, hunkPx: coarse ? 40 : 30, columns: Math.max(8, Math.floor((rest - END_PX) / letters.code)), numbersPx, narrow };
  }, [width, split, digits, letters, coarse]);
}

/** How many digits the line numbers have. */
function digitsOf(files: FileState[]): number {
  let most = 0;
  for (const { patch } of files) {
    const last = patch?.hunks[patch.hunks.length - 1];
    if (last) most = Math.max(most, last.old + last.oldCount, last.new + last.newCount);
  }
  return String(most).length;
}

export function Diffs({ files: given, options, viewed, refusal, parts, doing, onCurrent, within, ref }: Props) {
  // A large patch is laid out in steps, between which the page can respond.
  const files = useDeferredValue(given);
  const elements = useScroller();
  const { scroller, content, width } = elements;
  const digits = useMemo(() => digitsOf(files), [files]);
  const metrics = useMetrics(width, options.split, digits);
  const maker = useMemo(() => new SectionMaker(), [metrics]);
  const [epoch, corrected] = useReducer((count: number) => count + 1, 0);
  const sections = useMemo(() => maker.make(files, { ...options, metrics }), [maker, files, options, metrics, epoch]);
  const tops = useMemo(() => topsOf(sections), [sections]);
  const window = useWindow(elements, maker, sections, tops, metrics, corrected, onCurrent);
  const { range, anchor, goTo } = window;
  const { cursor, setCursor, announced, chosen, comment } = useMoving({ sections, window, viewed, split: options.split, doing, within });

  const focus = useCallback(() => {
    scroller.current?.focus({ preventScroll: true });
    // The cursor shows where the focus is.
    const at = anchor.current;
    setCursor((before) => before ?? (at && { path: at.path, key: at.key, start: null, side: "new" }));
  }, []);
  // A button may disappear when it was pressed, such as one that shows unchanged lines. The keys of the view go on.
  const focused = useRef<Element | null>(null);
  useLayoutEffect(() => {
    if (focused.current && !focused.current.isConnected && document.activeElement === document.body) scroller.current?.focus({ preventScroll: true });
  });
  useImperativeHandle(
    ref,
    () => ({
      focus,
      leave: (path, key) => {
        const rows = sections.find((section) => section.path === path)?.rows ?? [];
        const line = rows.slice(0, Math.max(0, indexOf(rows, key))).findLast((row) => row.kind === "line" || row.kind === "pair");
        if (line && cursor?.path !== path) setCursor({ path, key: line.key, start: null, side: "new" });
        focus();
      },
      goTo: (path, key = null) => {
        goTo({ path, key, nearest: false });
        setCursor({ path, key, start: null, side: "new" });
      },
    }),
    [focus, goTo, sections, cursor?.path],
  );

  const pressing = usePressing({
    sections,
    cursor,
    isBegun: (path) => draftsOf(doing.session).some((one) => one.open && one.path === path && !one.text.trim()),
    choose: setCursor,
    comment,
    focus,
  });

  return (
    <div
      ref={scroller}
      role="group"
      aria-label="Diffs"
      tabIndex={0}
      data-diffs=""
      data-cursor-side={cursor?.side}
      {...pressing}
      onFocus={(event) => void (focused.current = event.target)}
      onBlur={() => void (focused.current = null)}
      style={{ "--numbers": `${metrics.numbersPx}px`, "--line-height": `${metrics.linePx}px`, "--head": `${metrics.headPx}px`, "--hunk": `${metrics.hunkPx}px` } as React.CSSProperties}
      className="relative min-h-0 flex-1 overflow-y-auto overscroll-contain [overflow-anchor:none] outline-none focus-visible:outline-none"
    >
      <p className="sr-only" role="status">{announced}</p>
      <div ref={content} className="pb-16">
        <div aria-hidden="true" style={{ height: tops[range.from] }} />
        {width > 0 &&
          sections.slice(range.from, range.to).map((section, index) => {
            const [from, to] = range.blocks[index]!;
            const key = cursor?.path === section.path ? cursor.key : undefined;
            const [chosenFrom, chosenTo] = chosen(section);
            const { file } = section.one;
            return (
              <section key={section.path} aria-label={section.path} data-path={section.path} data-index={range.from + index} className="mb-3">
                <Head file={file} collapsed={section.collapsed} viewed={isViewed(viewed, file)} current={key === null || (key !== undefined && section.collapsed)} comments={(options.comments.get(section.path)?.length ?? 0) + (options.drafts.get(section.path)?.length ?? 0)} refusal={refusal} doing={doing} />
                {!section.collapsed && <Body section={section} from={from} to={to} narrow={metrics.narrow} cursor={key == null ? -1 : indexOf(section.rows, key)} chosenFrom={chosenFrom} chosenTo={chosenTo} discards={parts} doing={doing} />}
              </section>
            );
          })}
        <div aria-hidden="true" style={{ height: Math.max(0, tops[tops.length - 1]! - tops[range.to]!) }} />
      </div>
    </div>
  );
}
