// An empty state: one sentence that explains, and one action. Above: views with nothing to show. Below: buttons.

import type { ReactNode } from "react";
import { Button } from "./button";
import type { IconName } from "./icons";

export function Empty({ children, action, icon, onAction }: { children: ReactNode; action: string; icon?: IconName; onAction: () => void }) {
  return (
    <div className="flex flex-col items-center gap-4 px-4 py-12 text-center text-quiet">
      <p className="max-w-[52ch] text-balance">{children}</p>
      <Button icon={icon} className="text-text" onClick={onAction}>{action}</Button>
    </div>
  );
}
