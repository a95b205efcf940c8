// Colours for code, loaded when the first code is shown. Above: views of code and diffs. Below: highlight.js with the
// languages that agents write most; another language is shown plain. The result is HTML that highlight.js has escaped.

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
    // Code is shown without colours, and the next piece of code asks again.
    () => (asked = false),
  );
}

const subscribe = (listener: () => void) => {
  load();
  listeners.add(listener);
  return () => listeners.delete(listener);
};

/** The highlighter, once it is here. */
export function useHighlight(): Highlight | null {
  return useSyncExternalStore(subscribe, () => highlight);
}
