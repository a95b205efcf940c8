// Toasts: short messages that disappear after a few seconds, such as errors and what to do about them. Above: views
// that run actions. Below: nothing. They are a live region, so screen readers announce them. A dialog says its own errors:
// beneath it, toasts can't be pressed and are not announced.

import { useEffect, useRef, useState, useSyncExternalStore } from "react";
import { Button, IconButton } from "../parts/button";
import { sentence } from "../wire/api";

const SHOWN_MS = 7000;

/** Longer if there is something to press. */
const OFFERED_MS = 12_000;

/** What a toast offers, such as undoing what it reports. */
export interface Offer {
  label: string;
  run: () => void;
}

interface Toast {
  id: number;
  text: string;
  bad: boolean;
  offer: Offer | null;
}

let toasts: Toast[] = [];
let next = 1;
const listeners = new Set<() => void>();

function set(value: Toast[]): void {
  toasts = value;
  for (const listener of listeners) listener();
}

export function say(text: string, bad = false, offer: Offer | null = null): void {
  set([...toasts.filter((toast) => toast.text !== text).slice(-2), { id: next++, text, bad, offer }]);
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
      {shown.map((toast) => <ToastView key={toast.id} toast={toast} />)}
    </div>
  );
}

function ToastView({ toast: { id, text, bad, offer } }: { toast: Toast }) {
  // It stays while it is read or about to be pressed.
  const [hovered, setHovered] = useState(false);
  const [focused, setFocused] = useState(false);
  /** Where the focus came from, to give it back. */
  const from = useRef<Element | null>(null);
  useEffect(() => {
    if (hovered || focused) return;
    const timer = setTimeout(() => dismiss(id), offer ? OFFERED_MS : SHOWN_MS);
    return () => clearTimeout(timer);
  }, [id, offer, hovered, focused]);
  const close = () => {
    dismiss(id);
    if (focused && from.current instanceof HTMLElement && from.current.isConnected) from.current.focus({ preventScroll: true });
  };
  return (
    <div
      onPointerEnter={() => setHovered(true)}
      onPointerLeave={() => setHovered(false)}
      onFocus={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget)) from.current = event.relatedTarget;
        setFocused(true);
      }}
      onBlur={() => setFocused(false)}
      className={`floats pointer-events-auto flex max-w-lg items-center gap-2 py-1 pr-1 pl-3 text-sm ${bad ? "text-red" : ""}`}
    >
      <span className="min-w-0 break-words">{text}</span>
      {offer && <Button onClick={() => (close(), offer.run())}>{offer.label}</Button>}
      <IconButton icon="cross" label="Dismiss" onClick={close} size={12} />
    </div>
  );
}
