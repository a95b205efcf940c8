// The composer: always visible, grows with its text, saves its draft. Above: the session view and the new-session view,
// which provide the send action and the chips. Below: completion and attachments. Enter sends, Shift+Enter adds a line.
// While a turn runs, sending queues the message, or interrupts the turn.

import { useEffect, useImperativeHandle, useLayoutEffect, useRef, useState, type ReactNode, type Ref } from "react";
import { Button, IconButton } from "../parts/button";
import { Menu } from "../parts/menu";
import { Icon } from "../parts/icons";
import { say } from "../shell/toast";
import { sentence } from "../wire/api";
import type { Attachment, Command } from "../wire/types";
import { AttachmentList, readFiles } from "./attachments";
import { useCompletions, wantedAt } from "./completion";
import { changeFiles, draftOf, sent, useFiles, whenPut, write } from "./drafts";

export interface ComposerHandle {
  focus(): void;
}

export interface Sent {
  text: string;
  attachments: Attachment[];
  whenBusy?: "queue" | "interrupt";
}

interface Props {
  draftKey: string;
  session: string | null;
  commands: Command[];
  busy: boolean;
  /** The label of the button that sends immediately. */
  interrupts?: string;
  disabled?: string;
  placeholder: string;
  chips: ReactNode;
  /** If it returns a promise, the text stays until the promise resolves to true. */
  onSend: (sent: Sent) => void | Promise<boolean>;
  onEscape?: () => void;
  /** Whether Escape leaves the composer, so that shortcut keys answer a waiting prompt. */
  leaves?: boolean;
  autoFocus?: boolean;
  /** Whether an empty text can be sent, because a kickoff is sent instead. */
  emptySends?: boolean;
  /** Called on every change of the text, for a preview. */
  onText?: (text: string) => void;
  ref?: Ref<ComposerHandle>;
}

const isPhone = () => matchMedia("(pointer: coarse)").matches;

export function Composer({ draftKey, session, commands, busy, interrupts = "Interrupt and send", disabled, placeholder, chips, onSend, onEscape, leaves, autoFocus, emptySends, onText, ref }: Props) {
  const [text, setText] = useState(() => draftOf(draftKey));
  const [cursor, setCursor] = useState(0);
  const attachments = useFiles(draftKey);
  const [closed, setClosed] = useState(false);
  const [picked, setPicked] = useState(0);
  const [over, setOver] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);
  const chooser = useRef<HTMLInputElement>(null);
  /** The cursor position to set after the next render. */
  const completed = useRef<number | null>(null);

  const show = (value: string) => {
    setText(value);
    setClosed(false);
    setPicked(0);
  };
  const change = (value: string) => {
    write(draftKey, value);
    show(value);
  };
  useImperativeHandle(ref, () => ({ focus: () => area.current?.focus() }));
  useEffect(
    () =>
      whenPut(draftKey, (value) => {
        show(value);
        requestAnimationFrame(() => area.current?.focus());
      }),
    [draftKey],
  );
  useLayoutEffect(() => {
    const element = area.current!;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight, innerHeight * 0.4)}px`;
    // Set it now, not in the next frame, so that the next typed character goes after the completion.
    if (completed.current === null) return;
    element.focus();
    element.setSelectionRange(completed.current, completed.current);
    setCursor(completed.current);
    completed.current = null;
  }, [text]);
  useEffect(() => {
    if (autoFocus && !isPhone()) area.current?.focus();
  }, [autoFocus]);

  const wanted = closed ? null : wantedAt(text, cursor);
  const completions = useCompletions(session, commands, wanted);
  const at = Math.min(picked, completions.length - 1);
  const offers = completions.length > 0;

  useEffect(() => onText?.(text), [text, onText]);

  const nothing = !text.trim() && !emptySends;
  const send = (whenBusy?: "queue" | "interrupt") => {
    if (nothing || disabled) return;
    const written = text.trimEnd();
    const taken = onSend({ text: written, attachments, whenBusy: busy ? (whenBusy ?? "queue") : undefined });
    if (taken) void taken.then((done) => done && sent(draftKey, written, attachments) && change(""));
    else {
      sent(draftKey, written, attachments);
      change("");
    }
  };
  const complete = (index: number) => {
    const choice = completions[index];
    if (!choice || !wanted) return;
    const next = text.slice(0, wanted.from) + choice.value + text.slice(cursor);
    change(next);
    completed.current = wanted.from + choice.value.length;
  };
  const attach = async (files: Iterable<File>) => {
    // Copy the list now: the browser empties it after this event.
    const read = await readFiles([...files]).catch((error) => (say(sentence(error), true), []));
    changeFiles(draftKey, (now) => [...now, ...read]);
    // Focus the text, unless the user has moved elsewhere. Not on phones: the keyboard would hide the attachments.
    const here = document.activeElement === document.body || area.current?.parentElement?.contains(document.activeElement);
    if (here && !isPhone()) area.current?.focus();
  };

  const keys = (event: React.KeyboardEvent<HTMLTextAreaElement>) => {
    if (event.nativeEvent.isComposing) return;
    if (offers) {
      const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (move) {
        event.preventDefault();
        setPicked((at + move + completions.length) % completions.length);
        return;
      }
      if (event.key === "Tab" || (event.key === "Enter" && !event.shiftKey)) {
        event.preventDefault();
        complete(at);
        return;
      }
      if (event.key === "Escape") {
        event.preventDefault();
        event.stopPropagation();
        setClosed(true);
        return;
      }
    }
    if (event.key === "Enter" && !event.shiftKey && !isPhone()) {
      event.preventDefault();
      send(event.metaKey || event.ctrlKey ? "interrupt" : "queue");
    } else if (event.key === "Escape" && leaves) {
      event.stopPropagation();
      area.current?.blur();
    } else if (event.key === "Escape" && onEscape) {
      event.stopPropagation();
      // A held key counts as one press.
      if (!event.nativeEvent.repeat) onEscape();
    }
  };

  return (
    <div
      className={`relative rounded-xl border bg-raised ${over ? "border-accent" : "border-line"} focus-within:border-strong`}
      onDragOver={(event) => (event.preventDefault(), setOver(true))}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        void attach(event.dataTransfer.files);
      }}
    >
      {offers && (
        <ul id="completions" role="listbox" aria-label={wanted?.kind === "file" ? "Files" : "Commands"} className="floats absolute inset-x-2 bottom-full z-20 mb-1 max-h-64 overflow-y-auto p-1 text-sm">
          {completions.map((one, index) => (
            <li key={one.value} id={`completion-${index}`} role="option" aria-selected={index === at} className={`cursor-pointer truncate rounded px-2 py-1 ${index === at ? "bg-hover" : ""}`} onMouseDown={(event) => (event.preventDefault(), complete(index))}>
              <span className="font-mono">{one.value.trim()}</span> <span className="text-xs text-quiet">{one.hint}</span>
            </li>
          ))}
        </ul>
      )}
      <AttachmentList attachments={attachments} onRemove={(index) => changeFiles(draftKey, (now) => now.filter((one) => one !== attachments[index]))} />
      <textarea
        ref={area}
        value={text}
        rows={1}
        dir="auto"
        data-composer=""
        disabled={!!disabled}
        placeholder={disabled || placeholder}
        aria-label="Message"
        aria-autocomplete="list"
        {...(offers ? { role: "combobox", "aria-expanded": true, "aria-controls": "completions", "aria-activedescendant": `completion-${at}` } : {})}
        onChange={(event) => (change(event.target.value), setCursor(event.target.selectionStart))}
        onSelect={(event) => setCursor(event.currentTarget.selectionStart)}
        onKeyDown={keys}
        onPaste={(event) => {
          if (event.clipboardData.files.length) {
            event.preventDefault();
            void attach(event.clipboardData.files);
          }
        }}
        className="block max-h-[40vh] min-h-11 w-full resize-none bg-transparent px-3 pt-2.5 pb-1 outline-none focus-visible:outline-none"
      />
      <div className="flex flex-wrap items-center gap-1 px-2 pb-2">
        {chips}
        <div className="ml-auto flex items-center gap-1">
          <input ref={chooser} type="file" multiple hidden onChange={(event) => (void attach(event.target.files ?? []), (event.target.value = ""))} />
          <IconButton icon="clip" label="Attach files" onClick={() => chooser.current?.click()} disabled={!!disabled} />
          {/* Shown only when there is text to send, so that the composer does not change when a turn starts. */}
          {busy && text.trim() && (
            <Button tone="quiet" onClick={() => send("interrupt")} keys="Ctrl+Enter">{interrupts}</Button>
          )}
          <Button tone="primary" icon={busy ? "queue" : "send"} disabled={nothing || !!disabled} onClick={() => send()}>{busy ? "Queue" : "Send"}</Button>
        </div>
      </div>
    </div>
  );
}

/** A small choice on the composer: agent, model, mode. */
export function Chip({ label, value, options, onChange, disabled }: { label: string; value: string; options: { value: string; name: string; hint?: string; disabled?: boolean }[]; onChange: (value: string) => void; disabled?: boolean }) {
  const shown = options.find((option) => option.value === value)?.name ?? value;
  return (
    <Menu
      label={`${label}: ${shown || "default"}`}
      disabled={disabled || options.length === 0}
      className="inline-flex min-h-(--target) max-w-48 min-w-0 items-center gap-1 rounded-md px-2 text-xs text-quiet hover:bg-hover hover:text-text disabled:opacity-70"
      items={options.map((option) => ({ label: option.name, hint: option.hint, checked: option.value === value, disabled: option.disabled, run: () => onChange(option.value) }))}
    >
      <span className="truncate">{shown || label}</span>
      {options.length > 0 && <Icon name="down" size={10} />}
    </Menu>
  );
}
