// The event inspector: a session's stored log, filtered by type, with details for each event. Above: the app. Below:
// the log endpoint, read in pages from the end or from any position.

import { useEffect, useMemo, useState } from "react";
import { Button } from "../parts/button";
import { Code } from "../parts/markdown";
import { PageHead } from "../parts/pagehead";
import { pathOf } from "../shell/router";
import { attempt } from "../shell/toast";
import { at, get, sentence } from "../wire/api";
import { ask } from "../wire/ask";
import { download } from "../wire/download";
import type { Event, Session } from "../wire/types";

const PIECE = 300;

async function readLog(id: string, offset: number): Promise<Event[]> {
  const answer = await ask(at(id, `/log?offset=${offset}&limit=${PIECE}`));
  if (!answer.ok) throw new Error((await answer.json()).error);
  return (await answer.text()).split("\n").filter(Boolean).map((line) => JSON.parse(line) as Event);
}

function gist(event: Event): string {
  const { seq: _s, first_seq: _f, type: _t, at: _a, session_id: _i, turn: _n, ...rest } = event;
  return Object.entries(rest).filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && !value.length)).map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join("  ").slice(0, 300);
}

export default function Inspector({ id }: { id: string }) {
  const [events, setEvents] = useState<Event[]>([]);
  const [last, setLast] = useState<number | null>(null);
  const [from, setFrom] = useState<number | null>(null);
  const [type, setType] = useState("");
  const [open, setOpen] = useState<number | null>(null);
  const [error, setError] = useState("");
  const [title, setTitle] = useState("");

  useEffect(() => {
    get<Session>(at(id)).then((session) => {
      setTitle(session.title);
      setLast(session.event_count);
      setFrom((before) => before ?? Math.max(0, session.event_count - PIECE));
    }, (problem) => setError(sentence(problem)));
  }, [id]);
  useEffect(() => {
    if (from === null) return;
    readLog(id, from).then(setEvents, (problem) => setError(sentence(problem)));
  }, [id, from]);

  const types = useMemo(() => [...new Set(events.map((event) => event.type))].sort(), [events]);
  const shown = type ? events.filter((event) => event.type === type) : events;
  const end = events[events.length - 1]?.seq ?? 0;
  return (
    <div className="min-h-0 flex-1 overflow-y-auto">
      <PageHead title="Events" about={title} back={pathOf(id)}>
        <button type="button" onClick={() => void attempt(download(at(id, "/log?limit=100000000"), `${id}.ndjson`))} className="hidden cursor-pointer text-xs text-quiet underline underline-offset-2 sm:block">Download</button>
      </PageHead>
      <div className="p-4 sm:p-6">
        <div className="mb-3 flex flex-wrap items-center gap-2 text-sm">
          <Button disabled={!from} onClick={() => setFrom(Math.max(0, (from ?? 0) - PIECE))}>Earlier</Button>
          <Button disabled={last === null || end >= last} onClick={() => setFrom(end)}>Later</Button>
          <label className="flex items-center gap-2 text-quiet">
            Type
            <select value={type} onChange={(event) => setType(event.target.value)} className="min-h-(--target) rounded-md border border-line bg-raised px-2 text-text">
              <option value="">all</option>
              {types.map((one) => <option key={one}>{one}</option>)}
            </select>
          </label>
          <span className="text-xs text-quiet tabular-nums">{events.length ? `${events[0]!.first_seq ?? events[0]!.seq} to ${end} of ${(last ?? end).toLocaleString("en")}` : ""}</span>
        </div>
        {error && <p role="alert" className="text-sm text-red">{error}</p>}
        <ol aria-label="Events" className="font-mono text-xs">
          {shown.map((event) => (
            <li key={event.seq} className="border-b border-line">
              <button type="button" aria-expanded={open === event.seq} onClick={() => setOpen(open === event.seq ? null : event.seq)} className="grid w-full grid-cols-[4rem_minmax(0,1fr)] gap-x-3 gap-y-0.5 py-1 text-left hover:bg-hover sm:grid-cols-[4rem_7rem_11rem_minmax(0,1fr)]">
                <span className="text-right text-quiet tabular-nums">{event.seq}</span>
                <time dateTime={event.at} className="text-quiet max-sm:hidden">{event.at.slice(11, 23)}</time>
                <span className="font-semibold">{event.type}</span>
                <span className="truncate text-quiet max-sm:col-start-2">{gist(event)}</span>
              </button>
              {open === event.seq && <Code text={JSON.stringify(event, null, 2)} lang="json" className="mb-2 overflow-x-auto rounded-md border border-line bg-sunken p-3 break-words whitespace-pre-wrap" />}
            </li>
          ))}
        </ol>
      </div>
    </div>
  );
}
