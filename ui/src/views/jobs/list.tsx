// The list of jobs: schedule, last run and actions for each. Above: jobs.tsx. Below: the API.

import { Button, Link } from "../../parts/button";
import { Empty } from "../../parts/empty";
import { PageHead } from "../../parts/pagehead";
import { go, pathOfJob } from "../../shell/router";
import { belongs, useJobs } from "../../state/jobs";
import { useOverview } from "../../state/sessions";
import { withTimes } from "../../text/words";
import type { Job } from "../../wire/jobs";
import { Ahead, JobActions, OutcomeWord, relook, scheduleWords, Since, StateWord, useCurrent } from "./parts";

export function JobList() {
  const { value, loaded, error } = useJobs();
  const { sessions } = useOverview();
  useCurrent(relook, sessions.filter((session) => value.jobs.some((job) => belongs(session, job))).map((session) => `${session.id}:${session.state}:${session.turn_count}`).join());
  return (
    <div className="min-h-0 flex-1 overflow-y-auto">
      <PageHead title="Jobs" about="Messages sent on a schedule">
        <Button icon="plus" onClick={() => go("/jobs/new")}>New job</Button>
      </PageHead>
      <div className="mx-auto max-w-[92ch] p-4 sm:p-6">
        {error && <p role="alert" className="mb-4 text-sm text-red">{error}</p>}
        {!loaded && !error && <p role="status" className="text-sm text-quiet">Loading jobs</p>}
        {loaded && !value.jobs.length && <Empty action="Create the first job" icon="plus" onAction={() => go("/jobs/new")}>No jobs yet. A job sends a message to an agent on a schedule, such as every weekday at 9:00, and records how each run went.</Empty>}
        <ul aria-label="Jobs" className="divide-y divide-line">{value.jobs.map((job) => <Row key={job.id} job={job} />)}</ul>
      </div>
    </div>
  );
}

function Row({ job }: { job: Job }) {
  return (
    <li className="flex flex-wrap items-start gap-x-4 gap-y-2 py-3">
      <div className="min-w-0 flex-1 basis-72">
        <h2 className="font-semibold break-words"><Link to={pathOfJob(job.id)} className="reach underline-offset-2 hover:underline">{job.name}</Link></h2>
        <p className="text-sm break-words text-quiet">{scheduleWords(job)}</p>
        <p className="text-sm"><StateWord job={job} />{job.next_run_at && <> · next <Ahead at={job.next_run_at} zone={job.time_zone} /></>}</p>
        {job.last_run && <p className="text-sm">Last run: <OutcomeWord run={job.last_run} /> <span className="text-quiet"><Since at={job.last_run.due_at} zone={job.time_zone} /></span></p>}
        {job.reason ? <p className="text-sm break-words text-amber">{withTimes(job.reason)}</p> : job.last_run?.detail && <p className="text-sm break-words text-quiet">{withTimes(job.last_run.detail)}</p>}
      </div>
      <div className="flex flex-wrap gap-2"><JobActions job={job} onDone={relook} /></div>
    </li>
  );
}
