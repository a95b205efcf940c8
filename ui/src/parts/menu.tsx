// A menu that opens from a button. Arrow keys move, Escape closes and returns focus; there is no type-ahead. Above:
// views. Below: the browser's popover, which handles stacking and clicks outside, so no library is needed.

import { useId, useLayoutEffect, useRef, useState, type KeyboardEvent, type ReactNode } from "react";
import { Icon, type IconName } from "./icons";

export interface MenuItem {
  label: string;
  hint?: string;
  icon?: IconName;
  checked?: boolean;
  /** Whether several items can be checked at the same time. */
  many?: boolean;
  danger?: boolean;
  disabled?: boolean;
  run: () => void;
}

interface Props {
  label: string;
  items: MenuItem[];
  className?: string;
  children: ReactNode;
  title?: string;
  disabled?: boolean;
  align?: "start" | "end";
}

export function Menu({ label, items, className = "", children, title, disabled, align = "start" }: Props) {
  const id = useId();
  const button = useRef<HTMLButtonElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const [open, setOpen] = useState(false);

  useLayoutEffect(() => {
    const menu = list.current;
    if (!menu) return;
    const toggled = (event: Event) => setOpen((event as ToggleEvent).newState === "open");
    menu.addEventListener("toggle", toggled);
    return () => menu.removeEventListener("toggle", toggled);
  }, []);

  const place = () => {
    const menu = list.current!;
    const from = button.current!.getBoundingClientRect();
    menu.showPopover();
    const size = menu.getBoundingClientRect();
    const left = align === "end" ? from.right - size.width : from.left;
    const below = from.bottom + 4 + size.height <= innerHeight - 8;
    menu.style.left = `${Math.max(8, Math.min(left, innerWidth - size.width - 8))}px`;
    menu.style.top = `${below ? from.bottom + 4 : Math.max(8, from.top - 4 - size.height)}px`;
    const items = menu.querySelectorAll<HTMLElement>("[role^=menuitem]:not([disabled])");
    (menu.querySelector<HTMLElement>("[aria-checked=true]") ?? items[0])?.focus();
  };

  const move = (event: KeyboardEvent) => {
    const all = [...list.current!.querySelectorAll<HTMLElement>("[role^=menuitem]:not([disabled])")];
    const at = all.indexOf(document.activeElement as HTMLElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (next === undefined) {
      if (event.key === "Tab") list.current!.hidePopover();
      else if (event.key === "Escape") {
        event.stopPropagation();
        event.preventDefault();
        list.current!.hidePopover();
        button.current?.focus();
      }
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    all[(next + all.length) % all.length]?.focus();
  };

  return (
    <>
      <button ref={button} type="button" aria-haspopup="menu" aria-expanded={open} aria-controls={id} aria-label={label} title={title ?? label} disabled={disabled} className={className} onClick={() => (open ? list.current!.hidePopover() : place())}>
        {children}
      </button>
      <div ref={list} id={id} popover="auto" role="menu" aria-label={label} onKeyDown={move} className="floats fixed inset-auto m-0 max-h-[min(60vh,420px)] max-w-[min(360px,calc(100vw-16px))] min-w-44 overflow-y-auto p-1 text-sm text-text">
        {items.map((item) => (
          <button
            key={item.label}
            type="button"
            role={item.checked === undefined ? "menuitem" : item.many ? "menuitemcheckbox" : "menuitemradio"}
            aria-checked={item.checked}
            disabled={item.disabled}
            tabIndex={-1}
            className={`flex w-full items-start gap-2 rounded px-2 py-1.5 text-left hover:bg-hover focus:bg-hover disabled:text-quiet disabled:hover:bg-transparent ${item.danger ? "text-red" : ""}`}
            onClick={() => {
              list.current!.hidePopover();
              button.current?.focus();
              item.run();
            }}
          >
            {item.checked !== undefined && <Icon name="check" size={14} className={`mt-0.5 ${item.checked ? "" : "invisible"}`} />}
            {item.icon && <Icon name={item.icon} size={14} className="mt-0.5" />}
            <span className="min-w-0">
              <span className="block break-words">{item.label}</span>
              {item.hint && <span className="block text-xs break-words text-quiet">{item.hint}</span>}
            </span>
          </button>
        ))}
      </div>
    </>
  );
}
