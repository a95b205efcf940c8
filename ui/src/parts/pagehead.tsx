// The header of every view except a session: title, subtitle, and a back link on phones. Above: views. Below: links.

import type { ReactNode } from "react";
import { Link } from "./button";
import { Icon } from "./icons";

export function PageHead({ title, about, back = "/", children }: { title: string; about?: string; back?: string; children?: ReactNode }) {
  return (
    <header className="sticky top-0 z-10 flex min-h-13 items-center gap-2 border-b border-line bg-ground px-2 py-1 sm:px-6">
      <Link to={back} aria-label="Back" className={`inline-flex size-(--target) items-center justify-center rounded-md text-quiet hover:bg-hover ${back === "/" ? "md:hidden" : ""}`}>
        <Icon name="back" />
      </Link>
      <div className="min-w-0 flex-1">
        <h1 className="truncate text-base leading-5 font-semibold">{title}</h1>
        {about && <p className="truncate text-xs text-quiet">{about}</p>}
      </div>
      {children}
    </header>
  );
}
