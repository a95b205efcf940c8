// Texts about schedules and jobs: presets to and from cron expressions, future times, times in a job's time zone,
// states. Above: the job views. Below: words.ts. The server interprets cron expressions, not the page.

import type { Job, JobRun } from "../wire/jobs";
import { ago } from "./words";

export type PresetKind = "hourly" | "daily" | "weekdays" | "weekly" | "monthly";

/** A preset schedule. `time` is HH:MM; weekday 0 is Sunday. */
export interface Preset {
  kind: PresetKind;
  time: string;
  weekday: number;
  day: number;
}

export const PRESETS: [PresetKind, string][] = [
  ["hourly", "Every hour"],
  ["daily", "Every day"],
  ["weekdays", "Weekdays"],
  ["weekly", "Every week"],
  ["monthly", "Every month"],
];
export const WEEKDAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
export const USUAL: Preset = { kind: "daily", time: "09:00", weekday: 1, day: 1 };

export function cronOf({ kind, time, weekday, day }: Preset): string {
  const [hour, minute] = time.split(":").map(Number) as [number, number];
  switch (kind) {
    case "hourly":
      return `${minute} * * * *`;
    case "daily":
      return `${minute} ${hour} * * *`;
    case "weekdays":
      return `${minute} ${hour} * * 1-5`;
    case "weekly":
      return `${minute} ${hour} * * ${weekday}`;
    case "monthly":
      return `${minute} ${hour} ${day} * *`;
  }
}

/** The preset that matches a cron expression, or null. */
export function presetOf(cron: string): Preset | null {
  const found = /^(\d{1,2}) (\*|\d{1,2}) (\*|\d{1,2}) \* (\*|1-5|[0-6])$/.exec(cron.trim().replace(/\s+/g, " "));
  if (!found) return null;
  const [, minute, hour, day, weekday] = found as unknown as [string, string, string, string, string];
  const kind = hour === "*" ? "hourly" : weekday === "1-5" ? "weekdays" : weekday !== "*" ? "weekly" : day !== "*" ? "monthly" : "daily";
  const exact = (kind === "monthly" || day === "*") && (kind !== "hourly" || weekday === "*");
  if (!exact || Number(minute) > 59 || (hour !== "*" && Number(hour) > 23) || (day !== "*" && (Number(day) < 1 || Number(day) > 31))) return null;
  const two = (text: string) => text.padStart(2, "0");
  return {
    kind,
    time: `${hour === "*" ? "00" : two(hour)}:${two(minute)}`,
    weekday: kind === "weekly" ? Number(weekday) : USUAL.weekday,
    day: kind === "monthly" ? Number(day) : USUAL.day,
  };
}

/** Another preset at the same time of day. */
export function presetLike(cron: string, kind: PresetKind): Preset {
  const now = presetOf(cron);
  if (kind === "hourly") return { ...USUAL, kind, time: "00:00" };
  return { ...(now && now.kind !== "hourly" ? now : USUAL), kind };
}

const UNITS = [["days", 86_400], ["hours", 3600], ["minutes", 60], ["seconds", 1]] as const;
export type Unit = (typeof UNITS)[number][0];
export const UNIT_NAMES = UNITS.map(([name]) => name);

export const secondsOf = (number: string, unit: Unit): number => Number(number) * UNITS.find(([name]) => name === unit)![1];

/** A number of seconds in the largest unit that divides it evenly. */
export function splitSeconds(every_s: number): { number: string; unit: Unit } {
  const [unit, size] = UNITS.find(([, size]) => every_s % size === 0)!;
  return { number: String(every_s / size), unit };
}

/** The time until then: "in 5 min". */
export function ahead(at: string, now: number): string {
  const seconds = (Date.parse(at) - now) / 1000;
  if (seconds < 1) return "now";
  if (seconds < 60) return `in ${Math.round(seconds)} s`;
  if (seconds < 3600) return `in ${Math.round(seconds / 60)} min`;
  if (seconds < 86_400) return `in ${Math.round(seconds / 3600)} h`;
  return `in ${Math.round(seconds / 86_400)} d`;
}

/** The time since then: "5 min ago", or a date if it is long ago. */
export function since(at: string, now: number): string {
  const words = ago(at, now);
  return / (min|h|d)$/.test(words) ? `${words} ago` : words === "now" ? "just now" : words;
}

/** A local time in a time zone. If the browser does not know the zone, the time as the server wrote it. */
export function inZone(at: string, zone: string, seconds = new Date(at).getUTCSeconds() !== 0): string {
  try {
    return new Date(at).toLocaleString(undefined, { timeZone: zone, weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "numeric", minute: "2-digit", ...(seconds ? { second: "2-digit" } : {}) });
  } catch {
    return at.replace("T", " ");
  }
}

/** Whether two names mean the same time zone, such as UTC and Etc/UTC. */
export function isSameZone(one: string, other: string): boolean {
  const known = (zone: string) => new Intl.DateTimeFormat("en", { timeZone: zone }).resolvedOptions().timeZone;
  try {
    return one === other || known(one) === known(other);
  } catch {
    return false;
  }
}

/** A stored time as the local time in this zone, for a date-time field. */
export function fieldTime(at: string, zone: string): string {
  try {
    const parts = new Intl.DateTimeFormat("en", { timeZone: zone, hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" }).formatToParts(new Date(at));
    const part = (type: string) => parts.find((one) => one.type === type)!.value;
    const second = part("second");
    return `${part("year")}-${part("month")}-${part("day")}T${part("hour")}:${part("minute")}${second === "00" ? "" : ":" + second}`;
  } catch {
    return "";
  }
}

export type Tone = "good" | "plain" | "quiet" | "working" | "waiting" | "bad";

/** A job's state. */
export function stateOf(job: Job, now: number): { word: string; tone: Tone } {
  if (job.state === "ended") return { word: "Ended", tone: "quiet" };
  if (job.state === "paused") return job.paused_by === "failures" ? { word: "Paused after failures", tone: "waiting" } : { word: "Paused", tone: "quiet" };
  if (job.backoff_until && Date.parse(job.backoff_until) > now) return { word: "Backing off", tone: "bad" };
  return { word: "Active", tone: "good" };
}

/** A run's outcome, or its current state. */
export function outcomeOf(run: Pick<JobRun, "state" | "outcome">): { word: string; tone: Tone } {
  if (run.state !== "ended") return run.state === "waiting" ? { word: "Waiting", tone: "quiet" } : { word: run.state === "starting" ? "Starting" : "Running", tone: "working" };
  if (run.outcome === "failed") return { word: "Failed", tone: "bad" };
  if (run.outcome === "cancelled") return { word: "Cancelled", tone: "quiet" };
  return run.outcome === "skipped" ? { word: "Skipped", tone: "quiet" } : { word: "Completed", tone: "good" };
}
