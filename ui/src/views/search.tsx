// Search for sessions by terms in titles and transcripts, with the matching passage. Includes archived sessions. Above:
// the app. Below: the server's full-text search.

import { useEffect, useRef, useState } from "react";
import { Button, Link } from "../parts/button";
import { Ago } from "../parts/clock";
import { Dot } from "../parts/dot";
import { Empty } from "../parts/empty";
import { PageHead } from "../parts/pagehead";
import { go, pathOf, pathOfTurn } from "../shell/router";
import { attention, titleOf } from "../state/sessions";
import { withoutMarks } from "../text/words";
import { get, query, sentence } from "../wire/api";
import type { Session } from "../wire/types";

const PAUSE_MS = 150;

/** Highlights the matches, which the server puts in brackets. */
export function Snippet({ text }: { text: string }) {
  const pieces = text.split(/\[([^\]]*)\]/);
  return <>{pieces.map((piece, index) => (index % 2 ? <mark key={index}>{piece}</mark> : piece))}</>;
}

export default function Search({ q }: { q: string }) {
  const [text, setText] = useState(q);
  const [archived, setArchived] = useState(false);
  const [found, setFound] = useState<Session[] | null>(null);
  const [cursor, setCursor] = useState<string | null>(null);
  const [error, setError] = useState("");
  const field = useRef<HTMLInputElement>(null);

  const asked = useRef(0);

  const look = async (from?: string) => {
    const mine = ++asked.current;
    try {
      const answer = await get<{ sessions: Session[]; next_cursor: string | null }>("/api/sessions" + query({ q: text.trim(), archived: archived ? true : undefined, cursor: from, limit: 30 }));
      // The user has typed more since: a newer request is under way.
      if (mine !== asked.current) return;
      setFound((before) => (from ? [...(before ?? []), ...answer.sessions] : answer.sessions));
      setCursor(answer.next_cursor);
      setError("");
    } catch (problem) {
      if (mine === asked.current) setError(sentence(problem));
    }
  };
  useEffect(() => {
    field.current?.focus();
  }, []);
  // The address follows the text but without trailing spaces, so don't overwrite those.
  useEffect(() => setText((now) => (now.trim() === q ? now : q)), [q]);
  useEffect(() => {
    const timer = setTimeout(() => {
      go("/search" + query({ q: text.trim() }), true);
      void look();
    }, PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text, archived]);

  return (
    <div className="min-h-0 flex-1 overflow-y-auto">
      <PageHead title="Search" about="Titles and full conversations" />
      <div className="mx-auto max-w-[92ch] p-4 sm:p-6">
        <div className="mb-4 flex flex-wrap items-center gap-3">
          <input ref={field} type="search" value={text} onChange={(event) => setText(event.target.value)} aria-label="Search terms" placeholder="Search terms" className="min-h-9 min-w-0 flex-1 basis-64 rounded-md border border-strong bg-raised px-3" />
          <label className="reach flex items-center gap-2 text-sm text-quiet">
            <input type="checkbox" checked={archived} onChange={(event) => setArchived(event.target.checked)} /> Archived only
          </label>
        </div>
        {error && <p role="alert" className="text-sm text-red">{error}</p>}
        <ul aria-label="Search results" className="divide-y divide-line">
          {found?.map((session) => (
            <li key={session.id}>
              <Link to={session.snippet_turn ? pathOfTurn(session.id, session.snippet_turn, text.trim()) : pathOf(session.id)} className="flex gap-2 rounded-md px-2 py-3 hover:bg-hover">
                <span className="pt-1"><Dot state={attention(session)} /></span>
                <span className="min-w-0 flex-1">
                  <span className="flex items-baseline gap-2">
                    <span className="min-w-0 flex-1 truncate font-medium">{titleOf(session)}</span>
                    <Ago at={session.last_active_at} className="text-xs text-quiet" />
                  </span>
                  <span className="block text-sm break-words text-quiet">{session.snippet ? <Snippet text={session.snippet} /> : withoutMarks(session.last_line ?? "") || session.agent}</span>
                </span>
              </Link>
            </li>
          ))}
        </ul>
        {found?.length === 0 &&
          (text.trim() ? (
            <Empty action="Clear search" onAction={() => (setText(""), field.current?.focus())}>No results. Try fewer or different terms.</Empty>
          ) : archived ? (
            <Empty action="Show all sessions" onAction={() => setArchived(false)}>Nothing is archived. Archived sessions leave the list and appear here.</Empty>
          ) : (
            <Empty action="New session" icon="plus" onAction={() => go("/new")}>No sessions yet. Here you can search their titles and conversations.</Empty>
          ))}
        {cursor && <div className="pt-4"><Button onClick={() => void look(cursor)}>Show more</Button></div>}
      </div>
    </div>
  );
}
