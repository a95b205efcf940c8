// One slim line that says when the page is not live, no longer the newest, or when the server has set something aside. Above: the app. Below: the overview. It waits a
// moment before it appears, since a stream that is opened anew is not a loss, and lies over what is below the heading, so
// that nothing moves when it comes and goes. That there is a newer page stays until it is loaded, so that takes room.

import { useEffect, useState } from "react";
import { Link } from "../parts/button";
import { useSeconds } from "../parts/clock";
import { useOverview } from "../state/sessions";
import { counting } from "../text/words";
import { get } from "../wire/api";
import { compare } from "./version";

const GRACE_MS = 600;

/** `list`: on a phone the list of sessions fills the page, and its heading is taller than that of a view. */
export function LinkBar({ list }: { list: boolean }) {
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
  const outdated = useOutdated();
  const damaged = useDamaged();
  return (
    <div role="status" aria-live="polite">
      {outdated && (
        <p className="border-b border-line bg-accent-soft px-4 py-1 text-center text-xs">
          The page was updated. <button type="button" className="underline underline-offset-2" onClick={() => location.reload()}>Reload</button>
        </p>
      )}
      {damaged > 0 && (
        <p className="border-b border-amber-line bg-amber-soft px-4 py-1 text-center text-xs text-amber">
          Some of what is stored is damaged and was set aside; everything else goes on. <Link to="/settings" className="underline underline-offset-2">See what</Link>
        </p>
      )}
      <div className="relative">
        {shown && <div className={`absolute inset-x-0 z-40 md:top-13 md:left-68 ${list ? "top-16" : "top-13"}`}><Words since={lastEventAt} /></div>}
      </div>
    </div>
  );
}

function Words({ since }: { since: number }) {
  const now = useSeconds();
  return <p className="border-b border-amber-line bg-amber-soft px-4 py-1 text-center text-xs text-amber">Reconnecting, last event {counting(Math.max(0, now - since))} ago</p>;
}

/** How many sessions and launches can't be read, as the server knows when the connection is there. */
function useDamaged(): number {
  const { link } = useOverview();
  const [damaged, setDamaged] = useState(0);
  useEffect(() => {
    let current = true;
    if (link === "live") void get<{ damaged?: number }>("/api/health").then((health) => current && setDamaged(health.damaged ?? 0), () => undefined);
    return () => {
      current = false;
    };
  }, [link]);
  return damaged;
}

/** Looked at whenever the connection is back, since a server is updated by starting another one. */
function useOutdated(): boolean {
  const { link } = useOverview();
  const [outdated, setOutdated] = useState(false);
  useEffect(() => {
    let current = true;
    if (link === "live") void compare().then((known) => current && setOutdated(known === "other"));
    return () => {
      current = false;
    };
  }, [link]);
  return outdated;
}
