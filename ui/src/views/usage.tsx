// Usage over time by agent, project or model: small plots on one time axis, with a table under each. Also shows how
// many turns continued in an existing context, and what that saved. Above: the app. Below: the server's totals; uPlot
// draws.

import { useEffect, useMemo, useState } from "react";
import { Empty } from "../parts/empty";
import { PageHead } from "../parts/pagehead";
import { go } from "../shell/router";
import { drawn, tokensOf, type Figures } from "../state/spending";
import { bytes, count, duration, money } from "../text/words";
import { get, query, sentence } from "../wire/api";
import { Plot } from "./plot";

interface Answer {
  usage: Figures[];
  total: Figures | null;
}

const DIMENSIONS = ["agent", "project", "model"] as const;
const RANGES = [7, 30, 90] as const;

const MEASURES: { name: string; value: (one: Figures) => number; show: (value: number) => string }[] = [
  { name: "Turns", value: (one) => one.turns, show: (value) => value.toLocaleString("en") },
  { name: "Tokens", value: tokensOf, show: count },
  { name: "Cost", value: (one) => one.cost_usd, show: money },
  { name: "Context reused", value: (one) => one.saved_bytes, show: bytes },
];

function dayOf(age: number): string {
  return new Date(Date.now() - age * 86_400_000).toISOString().slice(0, 10);
}

export default function UsageView() {
  const [by, setBy] = useState<(typeof DIMENSIONS)[number]>("agent");
  const [days, setDays] = useState<(typeof RANGES)[number]>(30);
  const [series, setSeries] = useState<Answer | null>(null);
  const [sums, setSums] = useState<Answer | null>(null);
  const [error, setError] = useState("");

  useEffect(() => {
    const since = dayOf(days - 1);
    Promise.all([get<Answer>("/api/usage" + query({ group_by: `day,${by}`, since })), get<Answer>("/api/usage" + query({ group_by: by, since }))]).then(
      ([overTime, all]) => (setSeries(overTime), setSums(all), setError("")),
      (problem) => setError(sentence(problem)),
    );
  }, [by, days]);

  const axis = useMemo(() => Array.from({ length: days }, (_, index) => dayOf(days - 1 - index)), [days]);
  const groups = useMemo(() => drawn(sums?.usage ?? []), [sums]);
  const total = sums?.total;
  return (
    <div className="min-h-0 flex-1 overflow-y-auto">
      <PageHead title="Usage" about="Turns, tokens, cost and reused context" />
      <div className="mx-auto max-w-[1100px] p-4 sm:p-6">
        <div className="mb-6 flex flex-wrap gap-4">
          <Choice label="Group by" values={DIMENSIONS} value={by} onChange={setBy} />
          <Choice label="Days" values={RANGES} value={days} onChange={setDays} />
        </div>
        {error && <p role="alert" className="text-sm text-red">{error}</p>}
        {total && total.turns > 0 ? <Continuity total={total} /> : sums && <Empty action="New session" icon="plus" onAction={() => go("/new")}>No turns in this period. Each turn's tokens, cost and context appear here when it ends.</Empty>}
        {series && total && total.turns > 0 && (
          <div className="grid gap-x-8 gap-y-10 lg:grid-cols-2">
            {MEASURES.map((measure) => <Measure key={measure.name} {...measure} axis={axis} by={by} series={series.usage} groups={groups} others={sums!.usage.filter((one) => !groups.includes(one))} />)}
          </div>
        )}
      </div>
    </div>
  );
}

function Choice<T extends string | number>({ label, values, value, onChange }: { label: string; values: readonly T[]; value: T; onChange: (value: T) => void }) {
  return (
    <fieldset className="flex items-center gap-1 text-sm">
      <legend className="float-left mr-2 text-xs leading-8 text-quiet">{label}</legend>
      {values.map((one) => (
        <button key={one} type="button" aria-pressed={one === value} onClick={() => onChange(one)} className={`min-h-(--target) rounded-md px-3 ${one === value ? "bg-accent-soft text-accent" : "text-quiet hover:bg-hover"}`}>{one}</button>
      ))}
    </fieldset>
  );
}

/** How turns started: the share that continued in an existing context. */
function Continuity({ total }: { total: Figures }) {
  const { live, resumed, fresh } = total.contexts;
  const all = Math.max(1, live + resumed + fresh);
  const shares: [string, number, string][] = [["live", live, "bg-green"], ["resumed", resumed, "bg-accent"], ["first turn or replay", fresh, "bg-strong"]];
  return (
    <section aria-label="Continuity" className="mb-8">
      <div className="mb-2 flex h-2 overflow-hidden rounded-full" aria-hidden="true">
        {shares.map(([name, value, colour]) => <span key={name} className={colour} style={{ width: `${(100 * value) / all}%` }} />)}
      </div>
      <p className="flex flex-wrap gap-x-5 gap-y-1 text-sm">
        {shares.map(([name, value, colour]) => (
          <span key={name} className="flex items-center gap-1.5"><span className={`size-2 rounded-full ${colour}`} aria-hidden="true" />{name} <span className="text-quiet tabular-nums">{value} ({Math.round((100 * value) / all)} %)</span></span>
        ))}
        <span className="text-quiet">{bytes(total.saved_bytes)} of context reused · {duration(total.duration_ms)} of turn time</span>
      </p>
    </section>
  );
}

interface MeasureProps {
  name: string;
  value: (one: Figures) => number;
  show: (value: number) => string;
  axis: string[];
  by: string;
  series: Figures[];
  groups: Figures[];
  others: Figures[];
}

function Measure({ name, value, show, axis, by, series, groups, others }: MeasureProps) {
  const lines = useMemo(() => {
    const at = new Map(axis.map((day, index) => [day, index]));
    return groups.map((group) => {
      const values = new Array<number>(axis.length).fill(0);
      for (const one of series) if (String(one[by] ?? "") === group.key) values[at.get(one.day ?? one.key) ?? -1] = value(one);
      return { name: group.key || "none", values };
    });
  }, [axis, series, groups]);
  return (
    <section aria-label={name}>
      <h2 className="mb-1 text-sm font-semibold">{name}</h2>
      {[...groups, ...others].every((group) => value(group) === 0) ? <p className="py-4 text-sm text-quiet">No agent reported this in the selected period.</p> : <Plot axis={axis} lines={lines} show={show} label={`${name} per day`} />}
      <table className="mt-2 w-full text-sm">
        <caption className="sr-only">{name} by {by}</caption>
        <thead className="sr-only"><tr><th scope="col">{by}</th><th scope="col">{name}</th></tr></thead>
        <tbody>
          {groups.map((group, index) => (
            <tr key={group.key} className="border-t border-line">
              <th scope="row" className="max-w-0 truncate py-1 pr-3 text-left font-normal"><span className={`mr-2 inline-block size-2 rounded-full align-middle series-${index}`} aria-hidden="true" />{group.key || "none"}</th>
              <td className="w-28 py-1 text-right tabular-nums">{show(value(group))}</td>
            </tr>
          ))}
          {others.length > 0 && (
            <tr className="border-t border-line text-quiet">
              <th scope="row" className="py-1 pr-3 pl-4 text-left font-normal">{others.length} more</th>
              <td className="py-1 text-right tabular-nums">{show(others.reduce((sum, one) => sum + value(one), 0))}</td>
            </tr>
          )}
        </tbody>
      </table>
    </section>
  );
}
