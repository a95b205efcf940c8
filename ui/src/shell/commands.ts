// All commands, by name and shortcut: one list that views add to while they are shown. Above: the palette and the help
// list them, key presses run them. Below: nothing. Shortcuts are ignored while the user types in a field.

import { useSyncExternalStore } from "react";

export interface Command {
  id: string;
  title: string;
  /** For example "g i" (a sequence), "Shift+g", "Ctrl+k". */
  keys?: string;
  /** Other keys that do the same. */
  also?: string[];
  group: string;
  when?: () => boolean;
  /** Whether the focus is in the view that its keys belong to. There they go before other commands; elsewhere they do
   * nothing. */
  within?: () => boolean;
  /** Whether it repeats while its key is held down. */
  repeats?: boolean;
  run: () => void;
}

let registered: Command[][] = [];
let commands: Command[] = [];
const listeners = new Set<() => void>();

function changed(): void {
  const byId = new Map<string, Command>();
  for (const command of registered.flat()) byId.set(command.id, command);
  commands = [...byId.values()];
  for (const listener of listeners) listener();
}

/** Call this in a layout effect, so that shortcuts match what the page shows from the first frame. */
export function register(some: Command[]): () => void {
  registered = [...registered, some];
  changed();
  return () => {
    registered = registered.filter((one) => one !== some);
    changed();
  };
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};
export const useCommands = () => useSyncExternalStore(subscribe, () => commands);

const PAUSE_MS = 900;
let typed = "";
let typedAt = 0;

/** A box to check takes no letters. */
const WRITES = "input:not([type=checkbox], [type=radio]), textarea, select";
const isWriting = (target: EventTarget | null) => target instanceof HTMLElement && (target.isContentEditable || target.matches(WRITES));

function nameOf(event: KeyboardEvent): string {
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const mod = event.ctrlKey || event.metaKey ? "Ctrl+" : event.altKey ? "Alt+" : "";
  return mod + (event.shiftKey && /^([a-z]|Arrow\w+)$/.test(key) ? "Shift+" : "") + key;
}

function wanted(keys: string): Command | undefined {
  const all = commands.filter((one) => (one.keys === keys || one.also?.includes(keys)) && (one.when?.() ?? true));
  return all.find((one) => one.within?.()) ?? all.find((one) => !one.within);
}

export function listenToKeys(): void {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing) return;
    const name = nameOf(event);
    const modified = name.startsWith("Ctrl+") || name.startsWith("Alt+");
    if (!modified && (isWriting(event.target) || document.querySelector("dialog[open], [popover]:popover-open"))) return;
    const now = Date.now();
    const both = now - typedAt < PAUSE_MS ? `${typed} ${name}` : "";
    typed = name;
    typedAt = now;
    const command = wanted(both) ?? wanted(name);
    if (!command) return;
    event.preventDefault();
    if (event.repeat && !command.repeats) return;
    typedAt = 0;
    command.run();
  });
}

/** Keys as printed on the keyboard. */
export const shownKeys = (keys: string) => keys.split(" ").map((key) => key.replace("Escape", "Esc").replace(/Arrow/, "").replace(/(^|\+)([a-z])$/, (_, before: string, letter: string) => before + letter.toUpperCase()));
