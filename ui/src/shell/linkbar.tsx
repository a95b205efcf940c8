// One slim line that says when the page is not live. Above: the app. Below: the overview. It waits a moment before it
// appears, since a stream that is opened anew is not a loss.

import { useEffect, useState } from "react";
import { useSeconds } from "../parts/clock";
import { useOverview } from "../state/sessions";
import { duration } from "../text/words";

const GRACE_MS = 600;

export function LinkBar() {
  const { link, lastEventAt } = useOverview();
  const [shown, setShown] = useState(false);
  useEffect(() => {
    if (link !== "lost") {
      setShown(false);
      return;
    }
    const timer = setTimeout(() => setShown(true), GRACE_MS);
    return () => clearTimeout(timer);
  }, [link]);
  return <div role="status" aria-live="polite">{shown && <Words since={lastEventAt} />}</div>;
}

function Words({ since }: { since: number }) {
  const now = useSeconds();
  return <p className="border-b border-amber-line bg-amber-soft px-4 py-1 text-center text-xs text-amber">Reconnecting, last event {duration(Math.max(0, Math.round((now - since) / 1000) * 1000))} ago</p>;
}
