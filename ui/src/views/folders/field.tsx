// A text field for a folder on the server, which offers projects, recent folders and completions of the typed path.
// Above: the new-session view, the projects view. Below: options.ts and the server's directories. It is a combobox as in
// the ARIA practices: arrows choose, Enter takes, Tab completes a path like in a shell, Escape closes. A chosen folder of
// a path stays open and offers the folders in it.

import { useEffect, useId, useMemo, useRef, useState, type KeyboardEvent } from "react";
import { IconButton } from "../../parts/button";
import { Ago } from "../../parts/clock";
import { Icon } from "../../parts/icons";
import { isPath, useCompletedPath, useKnownDirectories } from "../../state/directories";
import { visible } from "../../text/visible";
import { plural } from "../../text/words";
import { BranchState } from "./branch";
import { optionsOf, pathOfTyped, type FolderOption } from "./options";

interface Props {
  label: string;
  value: string;
  onChange: (path: string) => void;
  /** A project was chosen from the list. */
  onProject?: (project: string) => void;
  placeholder: string;
  /** Id of the element that describes the state of the chosen folder. */
  describedBy?: string;
  invalid?: boolean;
  required?: boolean;
}

export function FolderField({ label, value, onChange, onProject, placeholder, describedBy, invalid, required }: Props) {
  const [open, setOpen] = useState(false);
  const [moved, setMoved] = useState<number | null>(null);
  /** Tab was pressed before the server answered. */
  const [completing, setCompleting] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const id = useId();
  const known = useKnownDirectories(open);
  const { typed, found, trouble } = useCompletedPath(value, open);
  const home = known?.path ?? null;
  const options = useMemo(() => optionsOf(value, known, found), [value, known, found]);
  const isAnswered = typed === value;
  const active = moved ?? (isAnswered ? automatic(value, options) : -1);
  // Nothing to offer if only the typed folder itself is left. The list would cover what is below.
  const isDone = options.length === 1 && options[0]!.path === value;
  const shown = open && !isDone && (options.length > 0 || !!trouble || !!found?.truncated);

  const change = (text: string) => {
    onChange(text);
    setMoved(null);
    setCompleting(false);
    setOpen(true);
  };
  const close = () => {
    setOpen(false);
    setMoved(null);
    const path = pathOfTyped(value, home);
    if (path !== value) onChange(path);
  };
  const pick = (option: FolderOption) => {
    field.current?.focus();
    if (option.group === "Folders") return change(option.path === "/" ? "/" : option.path + "/");
    onChange(option.path);
    if (option.project) onProject?.(option.project);
    setOpen(false);
    setMoved(null);
  };
  const keys = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move) {
      event.preventDefault();
      if (!open) return setOpen(true);
      const from = active < 0 && move < 0 ? 0 : active;
      if (options.length) setMoved((from + move + options.length) % options.length);
    } else if (event.key === "Enter" && open) {
      event.preventDefault();
      if (shown && options[active]) pick(options[active]);
      else close();
    } else if (event.key === "Tab" && !event.shiftKey && open && isPath(value) && (options[active] ? options[active].path !== value : isPartial(value) && !isAnswered)) {
      event.preventDefault();
      if (options[active]) pick(options[active]);
      else setCompleting(true);
    } else if (event.key === "Escape" && open) {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  };
  useEffect(() => {
    if (!completing || !isAnswered) return;
    setCompleting(false);
    if (options[active]) pick(options[active]);
  }, [completing, isAnswered]);
  // The end of a long path says more than its start.
  useEffect(() => {
    const element = field.current!;
    if (document.activeElement !== element) element.scrollLeft = element.scrollWidth;
  }, [value, open]);
  useEffect(() => {
    if (shown && active >= 0) list.current?.querySelector(`[id="${CSS.escape(`${id}-${active}`)}"]`)?.scrollIntoView({ block: "nearest" });
  }, [shown, active, id]);

  return (
    <div className="relative min-w-0">
      <div className={`flex items-center rounded-md border bg-raised focus-within:border-accent ${invalid ? "border-red" : "border-strong"}`}>
        <Icon name="folder" size={14} className="ml-2 text-quiet" />
        <input
          ref={field}
          role="combobox"
          aria-label={label}
          aria-autocomplete="list"
          aria-expanded={shown}
          aria-controls={`${id}-list`}
          aria-activedescendant={shown && active >= 0 ? `${id}-${active}` : undefined}
          aria-describedby={describedBy}
          aria-invalid={invalid || undefined}
          required={required}
          autoComplete="off"
          autoCapitalize="none"
          autoCorrect="off"
          spellCheck={false}
          placeholder={placeholder}
          value={value}
          onChange={(event) => change(event.target.value)}
          onClick={() => setOpen(true)}
          onKeyDown={keys}
          onBlur={close}
          className="min-h-(--target) min-w-0 flex-1 bg-transparent px-2 font-mono text-sm outline-none placeholder:font-sans focus-visible:outline-none"
        />
        {value && <IconButton icon="cross" label="Clear" size={12} onClick={() => (change(""), field.current?.focus())} />}
        <IconButton icon="down" label="Show folders" size={12} tabIndex={-1} aria-expanded={shown} onMouseDown={(event) => event.preventDefault()} onClick={() => (shown ? close() : (field.current?.focus(), setOpen(true)))} />
      </div>
      <p role="status" className="sr-only">{shown ? plural(options.length, "folder") : ""}</p>
      {/* Pressing it must not take the focus from the field, which would close the list. */}
      <div ref={list} id={`${id}-list`} role="listbox" aria-label="Suggestions" hidden={!shown} onMouseDown={(event) => event.preventDefault()} className="floats absolute inset-x-0 top-full z-30 mt-1 max-h-[min(320px,50vh)] overflow-y-auto p-1 text-sm">
        {groupsOf(options).map(({ group, first, members }) => (
          <div key={group} role="group" aria-labelledby={`${id}-${group}`}>
            <div id={`${id}-${group}`} role="presentation" className="truncate px-2 pt-1.5 pb-0.5 text-xs text-quiet">{group === "Folders" ? `In ${visible((isPath(value) ? found : known)?.path ?? "")}` : group}</div>
            {members.map((option, index) => (
              <Option key={option.path} id={`${id}-${first + index}`} option={option} active={first + index === active} onPick={() => pick(option)} />
            ))}
          </div>
        ))}
        {trouble && isAnswered && <div role="presentation" className="px-2 py-1.5 text-xs break-words text-quiet">{trouble}</div>}
        {isPath(value) && found?.truncated && <div role="presentation" className="px-2 py-1.5 text-xs text-quiet">{found.entries.length ? "There are more. Type more letters." : "The server could not list this folder in time."}</div>}
      </div>
    </div>
  );
}

const isPartial = (value: string) => isPath(value) && !value.endsWith("/") && value !== "~";

/** The option that Enter and Tab take while a path is typed: the folder itself if it exists, or else the first one that
 * completes its last part. */
function automatic(value: string, options: FolderOption[]): number {
  if (!isPartial(value)) return -1;
  const same = options.findIndex((option) => option.path === value);
  const depth = Math.min(...options.map((option) => option.path.split("/").length));
  return same >= 0 ? same : options.findIndex((option) => option.path.split("/").length === depth);
}

function groupsOf(options: FolderOption[]): { group: FolderOption["group"]; first: number; members: FolderOption[] }[] {
  return (["Projects", "Recent", "Folders"] as const)
    .map((group) => ({ group, first: options.findIndex((option) => option.group === group), members: options.filter((option) => option.group === group) }))
    .filter(({ members }) => members.length);
}

const lastPart = (path: string) => path.split("/").pop() || path;

function Option({ id, option, active, onPick }: { id: string; option: FolderOption; active: boolean; onPick: () => void }) {
  return (
    <div id={id} role="option" aria-selected={active} onClick={onPick} className={`flex cursor-pointer items-center gap-2 rounded px-2 py-1 ${active ? "bg-hover" : "hover:bg-hover"}`}>
      <div className="min-w-0 flex-1">
        <div className="truncate">{option.project ? option.name : <span className="font-mono">{visible(lastPart(option.path))}</span>}</div>
        {option.group !== "Folders" && (
          <div className="truncate font-mono text-xs text-quiet" title={option.path}>{visible(option.path)}</div>
        )}
      </div>
      {option.group === "Folders" && option.repository && <span className="inline-flex items-center gap-1 text-xs text-quiet"><Icon name="fork" size={12} />git</span>}
      <span className="flex max-w-[50%] shrink-0 flex-col items-end">
        <BranchState state={option} className="max-w-full" />
        {option.at && (
          <span className="text-xs text-quiet">
            {option.sessions != null && `${plural(option.sessions, "session")} · `}
            <Ago at={option.at} />
          </span>
        )}
      </span>
    </div>
  );
}
