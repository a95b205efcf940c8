// Not found: what is missing, the likely reason, and where to go next. Above: the app, the session view and the views
// of jobs. Below: the router.

import type { ReactNode } from "react";
import { go } from "../shell/router";
import { Button, Link } from "./button";

export function Nowhere({ title, children }: { title: string; children: ReactNode }) {
  return (
    <div className="flex flex-1 flex-col items-center justify-center gap-2 p-8 text-center">
      <h1 className="text-lg font-semibold">{title}</h1>
      <p className="text-quiet">{children}</p>
      <Button icon="plus" className="mt-2" onClick={() => go("/new")}>New session</Button>
      <Link to="/" className="reach text-sm text-quiet underline underline-offset-2 md:hidden">All sessions</Link>
    </div>
  );
}
