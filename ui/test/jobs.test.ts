// Jobs: presets as cron expressions, future times, and which form fields are sent.

import { describe, expect, it } from "vitest";
import { bodyOf, draftOf, fieldOf, newDraft, previewOf, type JobDraft } from "../src/state/jobdraft";
import { ahead, cronOf, fieldTime, inZone, isSameZone, outcomeOf, presetLike, presetOf, PRESETS, secondsOf, since, splitSeconds, stateOf, USUAL } from "../src/text/schedule";
import type { Job } from "../src/wire/jobs";

const NOW = Date.parse("2026-11-18T12:00:00Z");
const later = (seconds: number) => new Date(NOW + seconds * 1000).toISOString();

const JOB: Job = {
  id: "tests",
  name: "Tests",
  message: "Run them",
  cron: "30 9 * * 1-5",
  every_s: null,
  time_zone: "Europe/Berlin",
  starts_at: "2026-12-01T08:00:00.000Z",
  until: null,
  max_runs: null,
  jitter_s: 0,
  missed: "once",
  missed_max: 10,
  overlap: "wait",
  session: "new",
  agent: "claude",
  model: "large",
  mode: null,
  project: "site",
  workdir: null,
  labels: ["a", "b"],
  max_failures: 5,
  keep_sessions: 20,
  keep_days: null,
  state: "active",
  paused_by: null,
  reason: "",
  schedule: "",
  created_at: "2026-11-01T00:00:00.000Z",
  next_run_at: null,
  next_runs: [],
  run_count: 0,
  failures: 0,
  backoff_until: null,
  session_id: null,
  last_run: null,
};

describe("a preset schedule", () => {
  it("fills in the cron expression", () => {
    const given = { ...USUAL, time: "18:05", weekday: 5, day: 15 };
    expect(PRESETS.map(([kind]) => cronOf({ ...given, kind }))).toEqual(["5 * * * *", "5 18 * * *", "5 18 * * 1-5", "5 18 * * 5", "5 18 15 * *"]);
  });

  it("is recognized in a cron expression, and gives the same expression again", () => {
    for (const cron of ["0 * * * *", "15 * * * *", "0 0 * * *", "59 23 * * *", "30 9 * * 1-5", "5 18 * * 0", "5 18 * * 6", "0 6 31 * *"]) expect(cronOf(presetOf(cron)!)).toBe(cron);
    expect(presetOf("  0  9 * *  1-5 ")).toMatchObject({ kind: "weekdays", time: "09:00" });
  });

  it("is not recognized in an expression that means something else", () => {
    for (const cron of ["", "@daily", "*/5 * * * *", "0 9 1 * 1", "0 9 * 1 *", "60 9 * * *", "0 24 * * *", "0 9 32 * *", "0 9 0 * *", "0 9 * * 7", "0 * * * 1", "0 * 1 * *", "0 9 * * * *"]) expect(presetOf(cron), cron).toBeNull();
  });

  it("keeps its time of day when another preset is chosen", () => {
    expect(cronOf(presetLike("5 18 * * *", "weekly"))).toBe("5 18 * * 1");
    expect(cronOf(presetLike("5 18 * * *", "hourly"))).toBe("0 * * * *");
    expect(cronOf(presetLike("0 * * * *", "daily"))).toBe("0 9 * * *");
    expect(cronOf(presetLike("*/7 * * * *", "daily"))).toBe("0 9 * * *");
  });
});

describe("an interval", () => {
  it("is written in the largest whole unit", () => {
    expect([90, 120, 7200, 86_400, 5].map((seconds) => Object.values(splitSeconds(seconds)).join(" "))).toEqual(["90 seconds", "2 minutes", "2 hours", "1 days", "5 seconds"]);
    for (const seconds of [1, 59, 60, 3600, 90_000]) {
      const { number, unit } = splitSeconds(seconds);
      expect(secondsOf(number, unit)).toBe(seconds);
    }
  });
});

describe("times", () => {
  it("in the future are relative", () => {
    expect([-5, 0.4, 20, 300, 7200, 172_800].map((seconds) => ahead(later(seconds), NOW))).toEqual(["now", "now", "in 20 s", "in 5 min", "in 2 h", "in 2 d"]);
  });

  it("in the past are marked as past", () => {
    expect([-5, -300, -7200].map((seconds) => since(later(seconds), NOW))).toEqual(["just now", "5 min ago", "2 h ago"]);
  });

  it("are shown in the job's time zone", () => {
    expect(inZone("2026-07-01T12:00:00Z", "Asia/Tokyo")).toMatch(/\b(21|9|09):00/);
    expect(inZone("2026-07-01T12:00:07Z", "UTC")).toContain("07");
    expect(inZone("2026-07-01T12:00:00+02:00", "Mars/Phobos")).toBe("2026-07-01 12:00:00+02:00");
  });

  it("are in the same zone under another name", () => {
    expect(isSameZone("UTC", "Etc/UTC")).toBe(true);
    expect(isSameZone("UTC", "Asia/Tokyo")).toBe(false);
    expect(isSameZone("UTC", "Mars/Phobos")).toBe(false);
  });

  it("appear in a field as local times of the zone", () => {
    expect(fieldTime("2026-12-31T23:30:00.000Z", "Europe/Berlin")).toBe("2027-01-01T00:30");
    expect(fieldTime("2026-12-31T23:30:15.000Z", "UTC")).toBe("2026-12-31T23:30:15");
  });
});

describe("states", () => {
  it("of a job have a label", () => {
    const word = (changes: Partial<Job>) => stateOf({ ...JOB, ...changes }, NOW).word;
    expect(word({})).toBe("Active");
    expect(word({ backoff_until: later(60) })).toBe("Backing off");
    expect(word({ backoff_until: later(-60) })).toBe("Active");
    expect(word({ state: "paused", paused_by: "person" })).toBe("Paused");
    expect(word({ state: "paused", paused_by: "failures" })).toBe("Paused after failures");
    expect(word({ state: "ended" })).toBe("Ended");
  });

  it("of a run show what it does until it ends", () => {
    expect((["waiting", "starting", "running"] as const).map((state) => outcomeOf({ state, outcome: null }).word)).toEqual(["Waiting", "Starting", "Running"]);
    expect((["completed", "failed", "cancelled", "skipped"] as const).map((outcome) => outcomeOf({ state: "ended", outcome }).word)).toEqual(["Completed", "Failed", "Cancelled", "Skipped"]);
  });
});

describe("the request body", () => {
  const made = (changes: Partial<JobDraft>) => bodyOf({ ...newDraft("Asia/Tokyo"), ...changes }, newDraft("Asia/Tokyo"), true);
  const edited = (changes: Partial<JobDraft>, job = JOB) => bodyOf({ ...draftOf(job), ...changes }, draftOf(job), false);

  it("of a new job has the required fields and the time zone shown in the form", () => {
    expect(made({ name: "Tests", message: "Run them" })).toEqual({ name: "Tests", message: "Run them", cron: "0 9 * * *", time_zone: "Asia/Tokyo" });
    expect(made({ name: "n", message: "m", kind: "every", every: "2", unit: "hours" })).toEqual({ name: "n", message: "m", every_s: 7200, time_zone: "Asia/Tokyo" });
  });

  it("otherwise has only the fields that were filled in", () => {
    const { name, message, cron, time_zone, ...rest } = made({ agent: "codex", labels: " a, b ,,a", jitter_s: "30", max_runs: "3", until: "2026-12-31T18:00", overlap: "skip" });
    expect(rest).toEqual({ agent: "codex", labels: ["a", "b"], jitter_s: 30, max_runs: 3, until: "2026-12-31T18:00", overlap: "skip" });
  });

  it("of an unchanged job is empty", () => {
    expect(edited({})).toEqual({});
    expect(edited({}, { ...JOB, cron: null, every_s: 90, session: "s_1", project: null, model: null, labels: [] })).toEqual({});
  });

  it("clears a setting with null, or with its default if it has one", () => {
    expect(edited({ agent: "", keep_sessions: "", starts_at: "", max_failures: "", labels: "" })).toEqual({ agent: null, keep_sessions: null, starts_at: null, max_failures: 5, labels: [] });
    expect(edited({ max_failures: "" }, { ...JOB, max_failures: 9 })).toEqual({ max_failures: 5 });
  });

  it("replaces one kind of schedule with the other", () => {
    expect(edited({ kind: "every", every: "5", unit: "minutes" })).toEqual({ every_s: 300 });
    expect(edited({ every: "5" })).toEqual({});
  });

  it("repeats times that mean another moment in the new time zone", () => {
    expect(edited({ time_zone: "UTC" })).toEqual({ time_zone: "UTC", starts_at: "2026-12-01T09:00" });
  });

  it("omits what an existing session already has", () => {
    expect(edited({ session: "one", session_id: "s_1" })).toEqual({ session: "s_1", project: null, model: null, labels: [] });
    expect(made({ session: "one", session_id: "s_1", project: "site", labels: "x" })).toMatchObject({ session: "s_1" });
    expect(made({ session: "one", session_id: "s_1", project: "site", labels: "x" })).not.toHaveProperty("project");
  });
});

describe("a preview", () => {
  it("requests what the form shows, once it is complete", () => {
    const draft = newDraft("UTC");
    expect(previewOf(draft, null)).toEqual({ cron: "0 9 * * *", time_zone: "UTC" });
    expect(previewOf({ ...draft, cron: " " }, null)).toBeNull();
    expect(previewOf({ ...draft, kind: "every", every: "" }, null)).toBeNull();
    expect(previewOf({ ...draft, kind: "every", every: "1.5", unit: "seconds" }, null)).toBeNull();
    expect(previewOf({ ...draft, time_zone: "" }, null)).toBeNull();
  });

  it("counts the interval of an existing job from its creation", () => {
    expect(previewOf({ ...newDraft("UTC"), kind: "every", every: "60", unit: "seconds" }, "2026-11-01T00:00:00.000Z")).toEqual({ every_s: 60, time_zone: "UTC", starts_at: "2026-11-01T00:01:00.000Z" });
  });
});

describe("an invalid field", () => {
  it("maps to the form's field", () => {
    expect(["cron", "every_s", "labels[0]", "labels.0"].map(fieldOf)).toEqual(["cron", "every", "labels", "labels"]);
  });
});
