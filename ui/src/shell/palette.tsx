// The command palette: find any command or session by typing a few letters. Above: the app opens it. Below: the command
// list. It is a list box under a field in the browser's own dialog. Palette libraries inject styles, which the content
// security policy blocks.

import { useEffect, useMemo, useRef, useState } from "react";
import { Dot } from "../parts/dot";
import { attention, titleOf, useOverview } from "../state/sessions";
import { shownKeys, useCommands } from "./commands";
import { go, pathOf } from "./router";

interface Entry {
  id: string;
  title: string;
  group: string;
  keys?: string;
  mark?: ReturnType<typeof attention>;
  run: () => void;
}

const MOST = 60;

/** A fuzzy match score (lower is better), or null if the letters don't appear in this order. */
export function fits(text: string, wanted: string): number | null {
  const lower = text.toLowerCase();
  const whole = lower.indexOf(wanted);
  if (whole >= 0) return whole;
  let at = -1;
  let gaps = 0;
  for (const letter of wanted) {
    const next = lower.indexOf(letter, at + 1);
    if (next < 0) return null;
    gaps += next - at - 1;
    at = next;
  }
  return 100 + gaps;
}

export function Palette({ onClose }: { onClose: () => void }) {
  const commands = useCommands();
  const { sessions } = useOverview();
  const [wanted, setWanted] = useState("");
  const [picked, setPicked] = useState(0);
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    dialog.current!.showModal();
    return () => before?.focus?.();
  }, []);

  const entries = useMemo(() => {
    const all: Entry[] = [
      ...commands.filter((command) => command.id !== "palette" && (command.when?.() ?? true)),
      ...sessions.map((session) => ({ id: session.id, title: titleOf(session), group: "Sessions", mark: attention(session), run: () => go(pathOf(session.id)) })),
    ];
    const text = wanted.trim().toLowerCase();
    if (!text) return all.slice(0, MOST);
    const found = all.map((entry) => ({ entry, score: fits(entry.title, text) })).filter((one): one is { entry: Entry; score: number } => one.score !== null);
    found.sort((a, b) => a.score - b.score);
    const search: Entry = { id: "search:" + text, title: `Search for “${wanted.trim()}”`, group: "Search", run: () => go("/search?q=" + encodeURIComponent(wanted.trim())) };
    return [...found.map((one) => one.entry), search].slice(0, MOST);
  }, [commands, sessions, wanted]);

  const run = (entry: Entry | undefined) => {
    if (!entry) return;
    onClose();
    // Run after the dialog has returned the focus, so that the command can move it.
    setTimeout(entry.run);
  };
  useEffect(() => {
    void document.getElementById(`palette-${picked}`)?.scrollIntoView({ block: "nearest" });
  }, [picked]);

  return (
    <dialog ref={dialog} aria-label="Commands and sessions" onCancel={onClose} onClick={(event) => event.target === dialog.current && onClose()} className="floats m-auto mt-[10vh] w-[calc(100vw-24px)] max-w-xl overflow-hidden p-0 text-text">
      <input
        autoFocus
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={`palette-${picked}`}
        aria-label="Command or session"
        placeholder="Find a command or session"
        value={wanted}
        onChange={(event) => (setWanted(event.target.value), setPicked(0))}
        onKeyDown={(event) => {
          const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
          if (move) {
            event.preventDefault();
            setPicked((picked + move + entries.length) % Math.max(1, entries.length));
          } else if (event.key === "Enter") {
            event.preventDefault();
            run(entries[picked]);
          }
        }}
        className="w-full border-b border-line bg-transparent px-4 py-3 outline-none focus-visible:outline-none"
      />
      <ul id="palette-list" role="listbox" aria-label="Results" className="max-h-[56vh] overflow-y-auto p-1 text-sm">
        {entries.map((entry, index) => (
          <li key={entry.id} id={`palette-${index}`} role="option" aria-selected={index === picked} onMouseMove={() => setPicked(index)} onClick={() => run(entry)} className={`flex cursor-pointer items-center gap-2 rounded px-3 py-1.5 ${index === picked ? "bg-hover" : ""}`}>
            {entry.mark && <Dot state={entry.mark} silent />}
            <span className="min-w-0 flex-1 truncate">{entry.title}</span>
            {entry.keys ? <Keys keys={entry.keys} /> : <span className="text-xs text-quiet">{entry.group}</span>}
          </li>
        ))}
      </ul>
    </dialog>
  );
}

export function Keys({ keys }: { keys: string }) {
  return (
    <span className="flex shrink-0 gap-1">
      {shownKeys(keys).map((key, index) => <kbd key={index}>{key}</kbd>)}
    </span>
  );
}
