// Which jobs there are, and which of them paused themselves: what the inbox and its badge show. Above: sidebar, inbox, the
// views of jobs. Below: the API and the overview. It is fetched at the start, by whoever looks, when a session of a job has
// ended a turn, and every few minutes while the page is in sight: a run that could not begin is in no session.

import { labelOf, type Job } from "../wire/jobs";
import type { Event } from "../wire/types";
import { fetched } from "./lists";
import { onHappening, overviewNow } from "./sessions";

/** The server notes the end of a run a moment after the end of its turn. */
const SETTLE_MS = 1000;

export const useJobs = fetched<{ jobs: Job[] }>("/api/jobs", { jobs: [] });
export const refreshJobs = useJobs.refresh;

/** Jobs that wait for the person: each failed too often, and paused itself. */
export const stuck = (jobs: Job[]) => jobs.filter((job) => job.state === "paused" && job.paused_by === "failures");

/** Whether a session belongs to this job: it opened it, or its runs go there. */
export const belongs = (session: { id: string; labels: string[] }, job: Job) => session.labels.includes(labelOf(job.id)) || job.session === session.id || job.session_id === session.id;

function isOfAJob(event: Event): boolean {
  const session = overviewNow().sessions.find((one) => one.id === event.session_id);
  // One that was opened a moment ago is not in the list yet.
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
