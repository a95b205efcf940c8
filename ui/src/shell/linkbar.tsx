// Thin status bars: connection lost, newer page available, damaged data on the server. Above: the app. Below: the
// overview. The connection bar appears after a short delay, because reopening a stream is not a loss. It overlays the
// content below the heading, so nothing moves when it comes and goes. The other bars stay, so they take up space.

import { useEffect, useState } from "react";
import { Link } from "../parts/button";
import { useSeconds } from "../parts/clock";
import { useOverview } from "../state/sessions";
import { counting } from "../text/words";
import { get } from "../wire/api";
import { compare } from "./version";

const GRACE_MS = 600;

/** `list`: whether the session list fills the page (phones). Its heading is taller than a view's. */
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
          Some stored data is damaged and was set aside. Everything else works. <Link to="/settings" className="underline underline-offset-2">Details</Link>
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

/** How many sessions and launches the server can't read. Fetched on every connect. */
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

/** Checked on every reconnect, because updating the server restarts it. */
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
