// Toasts: short messages that disappear after a few seconds, such as errors and what to do about them. Above: views
// that run actions. Below: nothing. They are a live region, so screen readers announce them.

import { useSyncExternalStore } from "react";
import { IconButton } from "../parts/button";
import { sentence } from "../wire/api";

const SHOWN_MS = 7000;

interface Toast {
  id: number;
  text: string;
  bad: boolean;
}

let toasts: Toast[] = [];
let next = 1;
const listeners = new Set<() => void>();

function set(value: Toast[]): void {
  toasts = value;
  for (const listener of listeners) listener();
}

export function say(text: string, bad = false): void {
  const id = next++;
  set([...toasts.filter((toast) => toast.text !== text).slice(-2), { id, text, bad }]);
  setTimeout(() => dismiss(id), SHOWN_MS);
}

const dismiss = (id: number) => set(toasts.filter((toast) => toast.id !== id));

/** Wait for the result. On failure, show the error and return undefined. */
export async function attempt<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    say(sentence(error), true);
    return undefined;
  }
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export function Toasts() {
  const shown = useSyncExternalStore(subscribe, () => toasts);
  return (
    <div role="status" aria-live="polite" className="pointer-events-none fixed inset-x-0 bottom-24 z-50 max-md:top-16 max-md:bottom-auto flex flex-col items-center gap-2 px-3">
      {shown.map((toast) => (
        <div key={toast.id} className={`floats pointer-events-auto flex max-w-lg items-center gap-2 py-1 pr-1 pl-3 text-sm ${toast.bad ? "text-red" : ""}`}>
          <span className="min-w-0 break-words">{toast.text}</span>
          <IconButton icon="cross" label="Dismiss" onClick={() => dismiss(toast.id)} size={12} />
        </div>
      ))}
    </div>
  );
}
