// Syntax highlighting, loaded when the first code is shown. Above: views of code. Below: highlight.js with the
// languages agents use most; other languages are shown plain. The result is HTML escaped by highlight.js.

import { useSyncExternalStore } from "react";
import { ofThisBuild } from "../shell/version";

type Highlight = (code: string, lang: string) => string | null;

let highlight: Highlight | null = null;
let asked = false;
const listeners = new Set<() => void>();

function load(): void {
  if (asked) return;
  asked = true;
  ofThisBuild(() => import("./languages")).then(
    (module) => {
      highlight = module.highlight;
      for (const listener of listeners) listener();
    },
    // Show code without colours; the next code block tries to load it again.
    () => (asked = false),
  );
}

const subscribe = (listener: () => void) => {
  load();
  listeners.add(listener);
  return () => listeners.delete(listener);
};

/** The highlighter, or null until it is loaded. */
export function useHighlight(): Highlight | null {
  return useSyncExternalStore(subscribe, () => highlight);
}
