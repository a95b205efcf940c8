// The list of jobs, and which of them were paused after failures, for the inbox and its badge. Above: the sidebar, the
// inbox and the job views. Below: the API and the overview. The list is fetched at startup, when a view needs it, when
// a job's session ends a turn, and every few minutes while the page is visible (a run that failed to start has no
// session).

import { labelOf, type Job } from "../wire/jobs";
import type { Event } from "../wire/types";
import { fetched } from "./lists";
import { onHappening, overviewNow } from "./sessions";

/** The server records the end of a run shortly after the end of its turn. */
const SETTLE_MS = 1000;

export const useJobs = fetched<{ jobs: Job[] }>("/api/jobs", { jobs: [] });
export const refreshJobs = useJobs.refresh;

/** Jobs that need the user: they failed too often, so the server paused them. */
export const stuck = (jobs: Job[]) => jobs.filter((job) => job.state === "paused" && job.paused_by === "failures");

/** Whether a session belongs to this job: the job created it or runs in it. */
export const belongs = (session: { id: string; labels: string[] }, job: Job) => session.labels.includes(labelOf(job.id)) || job.session === session.id || job.session_id === session.id;

function isOfAJob(event: Event): boolean {
  const session = overviewNow().sessions.find((one) => one.id === event.session_id);
  // A session created a moment ago is not in the list yet.
  return !session || session.labels.some((label) => label.startsWith(labelOf(""))) || useJobs.now().value.jobs.some((job) => belongs(session, job));
}

const LOOK_MS = 120_000;
setInterval(() => {
  if (document.visibilityState === "visible") void refreshJobs();
}, LOOK_MS);
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") void refreshJobs();
});

let settling: ReturnType<typeof setTimeout> | null = null;
onHappening((event) => {
  if (event.type !== "turn_end" || settling || !isOfAJob(event)) return;
  settling = setTimeout(() => {
    settling = null;
    void refreshJobs();
  }, SETTLE_MS);
});
