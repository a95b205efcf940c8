// A job's schedule: presets that fill in the cron expression, or an interval; the time zone; and a live preview. Above:
// the form. Below: the server's preview endpoint.

import { useEffect, useState } from "react";
import { previewOf } from "../../state/jobdraft";
import { cronOf, presetLike, presetOf, PRESETS, secondsOf, UNIT_NAMES, WEEKDAYS, type Preset, type Unit } from "../../text/schedule";
import { Problem, request, sentence } from "../../wire/api";
import type { Preview } from "../../wire/jobs";
import { Field, FIELD, TextField, useForm } from "./fields";
import { NextRuns, scheduleWords } from "./parts";

const PAUSE_MS = 250;

function zones(): string[] {
  try {
    return ["UTC", ...Intl.supportedValuesOf("timeZone")];
  } catch {
    return ["UTC"];
  }
}

export interface Previewed {
  found: Preview | null;
  /** The error in the schedule, and its field. */
  wrong: Problem | Error | null;
}

/** The schedule's preview, debounced. */
export function usePreview(asked: ReturnType<typeof previewOf>): Previewed {
  const [shown, setShown] = useState<Previewed>({ found: null, wrong: null });
  const key = JSON.stringify(asked);
  useEffect(() => {
    if (!asked) return setShown({ found: null, wrong: null });
    const left = new AbortController();
    const timer = setTimeout(() => {
      request<Preview>("POST", "/api/jobs/preview", asked, undefined, left.signal).then(
        (found) => left.signal.aborted || setShown({ found, wrong: null }),
        (wrong) => left.signal.aborted || setShown({ found: null, wrong }),
      );
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      left.abort();
    };
  }, [key]);
  return shown;
}

export function When({ preview }: { preview: Previewed }) {
  const { draft, set } = useForm();
  return (
    <section aria-labelledby="job-when" className="space-y-4">
      <h2 id="job-when" className="mb-2 text-base font-semibold">When</h2>
      <div role="group" aria-label="Schedule type" className="flex flex-wrap gap-x-4">
        {(["cron", "every"] as const).map((kind) => (
          <label key={kind} className="flex min-h-(--target) items-center gap-2 text-sm">
            <input type="radio" name="kind" checked={draft.kind === kind} onChange={() => set({ kind })} />
            {kind === "cron" ? "At set times" : "At an interval"}
          </label>
        ))}
      </div>
      {draft.kind === "cron" ? <Times /> : <Interval />}
      <TextField name="time_zone" label="Time zone" list="job-zones" required maxLength={100} />
      <datalist id="job-zones">{zones().map((zone) => <option key={zone} value={zone} />)}</datalist>
      <div role="status" aria-label="Schedule preview" className="min-h-34 rounded-md border border-line bg-sunken p-3 text-sm">
        {preview.found ? (
          <>
            <p className="mb-1 font-medium">{scheduleWords(preview.found)}</p>
            <NextRuns runs={preview.found.next_runs} zone={preview.found.time_zone} label="Next five runs" />
          </>
        ) : preview.wrong ? (
          <p className="text-quiet">{preview.wrong instanceof Problem ? "Fix the marked field to see the next runs." : sentence(preview.wrong)}</p>
        ) : (
          <p className="text-quiet">The next five runs appear here.</p>
        )}
      </div>
    </section>
  );
}

function Times() {
  const { draft, set } = useForm();
  const preset = presetOf(draft.cron);
  const change = (changes: Partial<Preset>) => set({ cron: cronOf({ ...preset!, ...changes }) });
  const small = FIELD + " w-auto!";
  return (
    <>
      <div role="group" aria-label="Common schedules" className="flex flex-wrap gap-2">
        {PRESETS.map(([kind, name]) => (
          <button key={kind} type="button" aria-pressed={preset?.kind === kind} onClick={() => set({ cron: cronOf(presetLike(draft.cron, kind)) })} className={`min-h-(--target) rounded-md border px-3 text-sm ${preset?.kind === kind ? "border-accent bg-accent-soft text-accent" : "border-line text-quiet hover:bg-hover"}`}>{name}</button>
        ))}
      </div>
      {preset && preset.kind !== "hourly" && (
        <div className="flex flex-wrap items-center gap-2 text-sm">
          {preset.kind === "weekly" && (
            <label className="flex items-center gap-2">on
              <select aria-label="Day of the week" value={preset.weekday} onChange={(event) => change({ weekday: Number(event.target.value) })} className={small}>{WEEKDAYS.map((name, index) => <option key={name} value={index}>{name}</option>)}</select>
            </label>
          )}
          {preset.kind === "monthly" && (
            <label className="flex items-center gap-2">on day
              <select aria-label="Day of the month" value={preset.day} onChange={(event) => change({ day: Number(event.target.value) })} className={small}>{Array.from({ length: 31 }, (_, index) => <option key={index}>{index + 1}</option>)}</select>
            </label>
          )}
          <label className="flex items-center gap-2">at
            <input type="time" aria-label="Time of day" value={preset.time} onChange={(event) => event.target.value && change({ time: event.target.value.slice(0, 5) })} className={small} />
          </label>
        </div>
      )}
      <TextField name="cron" label="Cron expression" mono required maxLength={200} hint="Minute, hour, day of month, month, day of week. Also @hourly, @daily, @weekly, @monthly, @yearly." />
    </>
  );
}

function Interval() {
  const { draft, set } = useForm();
  const seconds = secondsOf(draft.every, draft.unit);
  return (
    <Field name="every" label="Every" hint={Number.isFinite(seconds) && seconds > 0 && draft.unit !== "seconds" ? `${seconds.toLocaleString("en")} seconds` : undefined}>
      {(about) => (
        <div className="flex gap-2">
          <input {...about} type="number" required min={1} step={1} value={draft.every} onChange={(event) => set({ every: event.target.value })} className={FIELD + " w-28!"} />
          <select aria-label="Unit" value={draft.unit} onChange={(event) => set({ unit: event.target.value as Unit })} className={FIELD + " w-auto!"}>{UNIT_NAMES.map((unit) => <option key={unit}>{unit}</option>)}</select>
        </div>
      )}
    </Field>
  );
}
