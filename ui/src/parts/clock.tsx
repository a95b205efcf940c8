// The current time: one shared timer for all components. Above: views that show ages and durations. Below: nothing.

import { useSyncExternalStore } from "react";
import { ago, exact } from "../text/words";

function ticker(everyMs: number) {
  let now = Date.now();
  let timer: ReturnType<typeof setInterval> | null = null;
  const listeners = new Set<() => void>();
  const subscribe = (listener: () => void) => {
    listeners.add(listener);
    timer ??= setInterval(() => {
      now = Date.now();
      for (const one of listeners) one();
    }, everyMs);
    return () => {
      listeners.delete(listener);
      if (!listeners.size && timer) {
        clearInterval(timer);
        timer = null;
      }
    };
  };
  return () => useSyncExternalStore(subscribe, () => now);
}

export const useSeconds = ticker(1000);
const useSlowly = ticker(20_000);

/** How long ago, with the exact time on hover. */
export function Ago({ at, className = "" }: { at: string; className?: string }) {
  const now = useSlowly();
  return (
    <time dateTime={at} title={exact(at)} className={"whitespace-nowrap tabular-nums " + className}>
      {ago(at, Math.max(now, Date.parse(at)))}
    </time>
  );
}
