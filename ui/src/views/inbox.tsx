// The inbox: every prompt that waits for the person, across all sessions, answered on the spot. Above: the app. Below: the
// overview says which sessions have prompts; the API has them.

import { useEffect, useLayoutEffect, useState } from "react";
import { Link } from "../parts/button";
import { Empty } from "../parts/empty";
import { PageHead } from "../parts/pagehead";
import { go, pathOf } from "../shell/router";
import { register } from "../shell/commands";
import { titleOf, useOverview } from "../state/sessions";
import { at, get, query } from "../wire/api";
import type { Diff, Prompt, TranscriptTurn } from "../wire/types";
import { diffOf, marked, useStill } from "./answering";
import { answerByKey, PromptCard } from "./prompt";

/** By prompt, fetched once each. */
function useDiffs(prompts: Record<string, Prompt[]>): Record<string, Diff[] | undefined> {
  const [diffs, setDiffs] = useState<Record<string, Diff[] | undefined>>({});
  useEffect(() => {
    for (const [session, some] of Object.entries(prompts)) {
      for (const { kind, prompt_id, tool_id, turn, diff } of some) {
        if (kind !== "permission" || diff?.length || !tool_id || turn === null || prompt_id in diffs) continue;
        get<{ turns: TranscriptTurn[] }>(at(session, "/transcript" + query({ from_turn: turn, to_turn: turn })))
          .then((found) => setDiffs((before) => ({ ...before, [prompt_id]: diffOf(found.turns, tool_id) })))
          .catch(() => undefined);
      }
    }
  }, [prompts]);
  return diffs;
}

export function Inbox() {
  const { sessions, loaded } = useOverview();
  const waiting = sessions.filter((session) => session.pending_prompts > 0);
  const [prompts, setPrompts] = useState<Record<string, Prompt[]>>({});
  const [denying, setDenying] = useState({ prompt: "", count: 0 });
  const diffs = useDiffs(prompts);
  const key = waiting.map((session) => `${session.id}:${session.pending_prompts}:${session.event_count}`).join();

  useEffect(() => {
    let current = true;
    void Promise.all(waiting.map(async (session) => [session.id, (await get<{ prompts: Prompt[] }>(at(session.id, "/prompts"))).prompts] as const))
      .then((found) => current && setPrompts(Object.fromEntries(found)))
      .catch(() => undefined);
    return () => {
      current = false;
    };
  }, [key]);

  // The keys are for the card that is marked: it stays the same while sessions change places.
  const [mark, setMark] = useState<string | null>(null);
  const target = marked(waiting.flatMap((session) => (prompts[session.id] ?? []).map((prompt) => ({ session, prompt }))), mark);
  const id = target?.prompt.prompt_id;
  const still = useStill(id);
  useEffect(() => setMark(id ?? null), [id]);
  useLayoutEffect(() => {
    const byKey = (key: string) => void (still && target && answerByKey(target.session.id, target.prompt, key));
    return register([
      { id: "allow", title: "Allow the marked one", keys: "y", group: "Prompt", when: () => !!target, run: () => byKey("y") },
      { id: "always", title: "Allow the marked one always", keys: "a", group: "Prompt", when: () => !!target, run: () => byKey("a") },
      { id: "deny", title: "Deny the marked one with a reason", keys: "n", group: "Prompt", when: () => target?.prompt.kind === "permission", run: () => setDenying(({ count }) => ({ prompt: id ?? "", count: count + 1 })) },
    ]);
  }, [id, still]);

  return (
    <div className="min-h-0 flex-1 overflow-y-auto">
      <PageHead title="Inbox" about="What waits for you, in all sessions" />
      <div className="mx-auto max-w-[92ch] space-y-6 p-4 sm:p-6">
        {waiting.map((session) => (
          <section key={session.id} aria-label={titleOf(session)}>
            <h2 className="mb-2 flex min-w-0 items-baseline gap-2 text-sm">
              <Link to={pathOf(session.id)} className="reach min-w-0 font-semibold underline-offset-2 hover:underline"><span className="block truncate">{titleOf(session)}</span></Link>
              <span className="shrink-0 text-xs text-quiet">{session.agent}</span>
            </h2>
            <div className="space-y-2">
              {(prompts[session.id] ?? []).map((prompt) => <PromptCard key={prompt.prompt_id} session={session.id} prompt={prompt} workdir={session.workdir} project={session.project} diff={diffs[prompt.prompt_id]} denying={prompt.prompt_id === denying.prompt ? denying.count : 0} keys={prompt.prompt_id !== id ? "none" : still ? "ready" : "soon"} onMark={() => setMark(prompt.prompt_id)} />)}
            </div>
          </section>
        ))}
        {loaded && !waiting.length && <Empty action="New session" icon="plus" onAction={() => go("/new")}>Nothing waits for you. Permission requests and questions of all sessions appear here.</Empty>}
      </div>
    </div>
  );
}
