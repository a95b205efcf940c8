// Scheduled jobs: the list, a job with its history, and the form. Above: the app, which loads all three together on
// first use. Below: one file for each.

import type { Route } from "../../shell/router";
import { JobEdit, JobForm } from "./form";
import { JobView } from "./job";
import { JobList } from "./list";

type OfJobs = Extract<Route, { view: "jobs" | "newjob" | "job" | "editjob" }>;

export default function Jobs({ route }: { route: OfJobs }) {
  switch (route.view) {
    case "newjob":
      return <JobForm />;
    case "editjob":
      return <JobEdit key={route.job} id={route.job} />;
    case "job":
      return <JobView key={route.job} id={route.job} />;
    default:
      return <JobList />;
  }
}
