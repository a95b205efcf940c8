// Buttons and links. Above: every view. Below: the router, for links.

import type { ButtonHTMLAttributes, MouseEvent, ReactNode } from "react";
import { go } from "../shell/router";
import { Icon, type IconName } from "./icons";

type Props = ButtonHTMLAttributes<HTMLButtonElement> & { tone?: "plain" | "primary" | "danger" | "quiet"; icon?: IconName; keys?: string };

const TONES = {
  plain: "border border-line bg-raised hover:bg-hover",
  primary: "bg-accent text-on-accent border border-transparent hover:opacity-90",
  danger: "border border-line bg-raised text-red hover:bg-red-soft",
  quiet: "border border-transparent text-quiet hover:bg-hover hover:text-text",
};

export function Button({ tone = "plain", icon, keys, children, className = "", ...rest }: Props) {
  return (
    <button type="button" className={`inline-flex min-h-(--target) items-center justify-center gap-1.5 rounded-md px-3 text-sm font-medium whitespace-nowrap disabled:opacity-50 ${TONES[tone]} ${className}`} {...rest}>
      {icon && <Icon name={icon} size={14} />}
      {children}
      {keys && <span className="ml-1 hidden text-xs font-normal opacity-75 md:inline" aria-hidden="true">{keys}</span>}
    </button>
  );
}

export function IconButton({ icon, label, className = "", pressed, size = 16, ...rest }: Omit<Props, "icon"> & { icon: IconName; label: string; pressed?: boolean; size?: number }) {
  return (
    <button type="button" aria-label={label} title={label} aria-pressed={pressed} className={`inline-flex size-(--target) shrink-0 items-center justify-center rounded-md text-quiet hover:bg-hover hover:text-text disabled:opacity-40 ${pressed ? "bg-hover text-text" : ""} ${className}`} {...rest}>
      <Icon name={icon} size={size} />
    </button>
  );
}

/** A link within the page. The browser handles clicks with a modifier key. */
export function Link({ to, children, className = "", ...rest }: { to: string; children: ReactNode; className?: string; [attribute: string]: unknown }) {
  const follow = (event: MouseEvent) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to);
  };
  return (
    <a href={to} onClick={follow} className={className} {...rest}>
      {children}
    </a>
  );
}
