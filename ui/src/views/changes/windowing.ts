// Draws only the part of the diffs that is in sight, and keeps the reader's place when heights change. Above: the list of
// diffs. Below: scrolling.ts. Heights are estimated before a block is drawn, and corrected before the browser paints it.

import { useCallback, useEffect, useLayoutEffect, useReducer, useRef, useState } from "react";
import { spotOf, type Spot } from "./cursor";
import { heightOf, type Metrics } from "./heights";
import { anchorAt, positionOf, rangeAt, rowTop, sameRange, type Anchor } from "./scrolling";
import type { Section, SectionMaker } from "./sections";

const MARGIN_PX = 48;

interface Goal {
  path: string;
  /** Null: the file's heading. */
  key: string | null;
  /** Scroll only as far as it takes to see it. */
  nearest: boolean;
}

/** The elements that scroll, and the width that there is. */
export function useScroller() {
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const element = scroller.current!;
    const look = () => setWidth(element.clientWidth);
    look();
    const sizes = new ResizeObserver(look);
    sizes.observe(element);
    return () => sizes.disconnect();
  }, []);
  return { scroller, content, width };
}

export function useWindow({ scroller, content }: ReturnType<typeof useScroller>, maker: SectionMaker, sections: Section[], tops: number[], metrics: Metrics, corrected: () => void, onCurrent: (path: string) => void) {
  const position = useRef({ top: 0, height: 800 });
  const range = rangeAt(sections, tops, position.current.top, position.current.height, metrics);
  const drawn = useRef({ sections, tops, metrics, range });
  const anchor = useRef<Anchor | null>(null);
  const goal = useRef<Goal | null>(null);
  const [, draw] = useReducer((count: number) => count + 1, 0);

  const look = useCallback(() => {
    const element = scroller.current!;
    position.current = { top: element.scrollTop, height: element.clientHeight };
    const { sections, tops, metrics, range } = drawn.current;
    anchor.current = anchorAt(sections, tops, element.scrollTop, metrics);
    if (anchor.current) onCurrent(anchor.current.path);
    if (!sameRange(rangeAt(sections, tops, element.scrollTop, element.clientHeight, metrics), range)) draw();
  }, [onCurrent]);

  const show = useCallback(({ section, row }: Spot, nearest: boolean) => {
    const element = scroller.current!;
    const { sections, tops, metrics } = drawn.current;
    const found = sections[section]!;
    const top = tops[section]! + (row < 0 ? 0 : rowTop(found, row, metrics));
    const end = top + (row < 0 ? metrics.headPx : heightOf(found.rows[row]!, metrics));
    // A row is below the heading, which stays in sight.
    const above = row < 0 ? 0 : metrics.headPx + MARGIN_PX;
    if (!nearest || top < element.scrollTop + above) element.scrollTop = Math.max(0, top - above);
    else if (end > element.scrollTop + element.clientHeight - MARGIN_PX) element.scrollTop = end - element.clientHeight + MARGIN_PX;
  }, []);

  const measure = useCallback(() => {
    let wrong = false;
    for (const element of content.current!.querySelectorAll<HTMLElement>("[data-block]")) {
      const section = drawn.current.sections[Number(element.parentElement!.dataset.index)];
      const block = Number(element.dataset.block);
      if (section?.blocks[block] && maker.measure(section, block, element.getBoundingClientRect().height)) wrong = true;
    }
    if (wrong) corrected();
  }, [maker, corrected]);

  // After each drawing: go where it was asked for, or stay at the same line although heights changed; then measure.
  useLayoutEffect(() => {
    const element = scroller.current!;
    const changed = drawn.current.sections !== sections;
    drawn.current = { sections, tops, metrics, range };
    const wanted = goal.current && spotOf(sections, { ...goal.current, start: null, side: "new" });
    if (wanted && (goal.current!.key === null || wanted.row >= 0)) {
      show(wanted, goal.current!.nearest);
      goal.current = null;
    } else if (changed && anchor.current) {
      const top = positionOf(anchor.current, sections, tops, metrics);
      if (top !== null && Math.abs(top - element.scrollTop) > 0.5) element.scrollTop = top;
    }
    measure();
    look();
  });

  useEffect(() => {
    const element = scroller.current!;
    // What is drawn may grow, such as a comment that is being written.
    const sizes = new ResizeObserver(() => {
      measure();
      look();
    });
    sizes.observe(element);
    sizes.observe(content.current!);
    element.addEventListener("scroll", look, { passive: true });
    return () => {
      sizes.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, [look, measure]);

  const goTo = useCallback((wanted: Goal) => {
    goal.current = wanted;
    draw();
  }, []);
  return { range, anchor, show, goTo };
}
