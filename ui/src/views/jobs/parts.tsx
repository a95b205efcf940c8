// Shared by the job views: states, times, actions and periodic refresh. Above: the job list, the job page and the job
// form. Below: the API, the overview, the clock.

import { useEffect, useRef, useState } from "react";
import { Button } from "../../parts/button";
import { useSeconds } from "../../parts/clock";
import { attempt, say } from "../../shell/toast";
import { refreshJobs } from "../../state/jobs";
import { ahead, inZone, isSameZone, outcomeOf, since, stateOf, type Tone } from "../../text/schedule";
import { until } from "../../text/words";
import { newId, post } from "../../wire/api";
import { atJob, type Job, type JobRun } from "../../wire/jobs";

const LOOK_MS = 15_000;
/** The server records the end of a run shortly after the end of its turn. */
const SETTLE_MS = 1000;
/** The server's clock may be a little ahead of the browser's. */
const AHEAD_MS = 5000;

export const OWN_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

/** The schedule in words, with the time zone if it differs from the browser's. */
export const scheduleWords = ({ schedule, time_zone }: { schedule: string; time_zone: string }) => (isSameZone(time_zone, OWN_ZONE) ? schedule : `${schedule}, ${time_zone}`);

const TONES: Record<Tone, string> = { good: "text-green", plain: "", quiet: "text-quiet", working: "text-accent", waiting: "text-amber", bad: "text-red" };

export function StateWord({ job }: { job: Job }) {
  const now = useSeconds();
  const { word, tone } = stateOf(job, now);
  return <span className={`font-medium ${TONES[tone]}`}>{word}{word === "Backing off" && ` until ${until(job.backoff_until!, now)}`}</span>;
}

export function OutcomeWord({ run }: { run: JobRun }) {
  const { word, tone } = outcomeOf(run);
  return <span className={`font-medium ${TONES[tone]}`}>{word}</span>;
}

/** A future time: the time until then, and the local time in the job's zone. */
export function Ahead({ at, zone, seconds, wide = "" }: { at: string; zone: string; seconds?: boolean; wide?: string }) {
  const now = useSeconds();
  return (
    <time dateTime={at} title={zone} className="tabular-nums">
      <span className={wide}>{ahead(at, now)}</span> <span className="text-quiet">{!wide && "· "}{inZone(at, zone, seconds)}</span>
    </time>
  );
}

/** A past time, with the exact time on hover. It can be in the future if the job skipped a run in advance. */
export function Since({ at, zone }: { at: string; zone: string }) {
  const now = useSeconds();
  return <time dateTime={at} title={`${inZone(at, zone, true)} (${zone})`} className="whitespace-nowrap tabular-nums">{Date.parse(at) > now + AHEAD_MS ? ahead(at, now) : since(at, now)}</time>;
}

export function NextRuns({ runs, zone, label }: { runs: string[]; zone: string; label: string }) {
  const seconds = runs.some((at) => new Date(at).getUTCSeconds() !== 0);
  return <ol aria-label={label} className="space-y-0.5 text-sm">{runs.map((at) => <li key={at}><Ahead at={at} zone={zone} seconds={seconds} wide="inline-block w-18" /></li>)}</ol>;
}

/** Run now, and pause or resume. */
export function JobActions({ job, onDone }: { job: Job; onDone: () => void }) {
  const [busy, setBusy] = useState(false);
  const act = (verb: "run" | "pause" | "resume", done?: string) => async () => {
    setBusy(true);
    const answer = await attempt(post(atJob(job.id, "/" + verb), verb === "run" ? { run_id: newId("run") } : {}));
    if (answer && done) say(done);
    setBusy(false);
    onDone();
  };
  return (
    <>
      <Button icon="bolt" disabled={busy} onClick={() => void act("run", `Triggered a run of ${job.name}.`)()}>Run now</Button>
      {job.state === "paused" && <Button icon="play" disabled={busy} onClick={() => void act("resume")()}>Resume</Button>}
      {job.state === "active" && <Button icon="pause" disabled={busy} onClick={() => void act("pause")()}>Pause</Button>}
    </>
  );
}

/** Refetch when the key changes, once more after the server has recorded the change, regularly while the page is
 * visible, and when it becomes visible. The key describes the states of the jobs' sessions. */
export function useCurrent(look: () => void, key: string): void {
  const latest = useRef(look);
  latest.current = look;
  useEffect(() => {
    latest.current();
    const timer = setTimeout(() => latest.current(), SETTLE_MS);
    return () => clearTimeout(timer);
  }, [key]);
  useEffect(() => {
    const seen = () => void (document.visibilityState === "visible" && latest.current());
    const timer = setInterval(seen, LOOK_MS);
    document.addEventListener("visibilitychange", seen);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, []);
}

export const relook = () => void refreshJobs();
