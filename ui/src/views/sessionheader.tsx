// A session's header: title, state, agent and location, and the session menu. Above: the session view. Below: the API.

import { useEffect, useLayoutEffect, useRef, useState } from "react";
import { IconButton, Link } from "../parts/button";
import { Dialog } from "../parts/dialog";
import { Dot } from "../parts/dot";
import { Icon } from "../parts/icons";
import { Menu, type MenuItem } from "../parts/menu";
import { Button } from "../parts/button";
import { register } from "../shell/commands";
import { go, pathOf } from "../shell/router";
import { attempt, say } from "../shell/toast";
import { useNodeName } from "../state/nodes";
import { forgetReview } from "../state/review";
import { attention, ATTENTION_WORDS, isBusy, titleOf, useOverview } from "../state/sessions";
import { contextReason, CONTEXT_WORDS, exact, placeOf, until } from "../text/words";
import { at, patch, post, remove } from "../wire/api";
import { listen, relist } from "../wire/link";
import type { Session } from "../wire/types";
import { interrupt } from "./working";
import { MergeDialog } from "./worktree/merging";
import { WorktreeChip } from "./worktree/chip";

export function SessionHeader({ id, session, agent, panel, onPanel, changes, onChanges }: { id: string; session: Session | null; agent: string; panel: boolean; onPanel: () => void; changes: boolean | null; onChanges: () => void }) {
  const [asking, setAsking] = useState<"rename" | "labels" | "purge" | "merge" | null>(null);
  const node = useNodeName(id);
  const parent = useOverview().sessions.find((one) => one.id === session?.parent);

  useLayoutEffect(
    () =>
      register([
        { id: "rename", title: "Rename session", keys: "r", group: "Session", run: () => setAsking("rename") },
        { id: "labels", title: "Label session", keys: "l", group: "Session", run: () => setAsking("labels") },
        { id: "archive", title: session?.archived ? "Unarchive session" : "Archive session", keys: "e", group: "Session", run: () => void archive(id, !session?.archived) },
        { id: "stop", title: "End session", group: "Session", run: () => void attempt(post(at(id, "/stop"))) },
        { id: "merge", title: "Merge the session's branch", group: "Session", when: () => !!session?.worktree, run: () => setAsking("merge") },
        { id: "purge", title: "Erase session", group: "Session", run: () => setAsking("purge") },
      ]),
    [id, session?.archived, session?.worktree],
  );

  // An archived session's worktree is removed if nothing would be lost. Say what happened.
  useEffect(
    () =>
      listen((message) => {
        if (message.kind !== "events" || message.session !== id) return;
        const cleaned = message.events.find((event) => event.type === "files_changed" && event.action === "clean_up");
        if (cleaned?.message) say(cleaned.message);
      }),
    [id],
  );

  if (!session) return <header className="h-13 shrink-0 border-b border-line" />;
  const mark = attention(session);
  const items: MenuItem[] = [
    ...(isBusy(session) ? [{ label: mark === "accepted" ? "Cancel the waiting message" : "Interrupt the turn", icon: "stop" as const, run: () => void interrupt(id) }] : []),
    ...(session.parent ? [{ label: "Open parent session", icon: "back" as const, hint: parent ? titleOf(parent) : "Another session", run: () => go(pathOf(session.parent!)) }] : []),
    { label: "Rename", icon: "pencil", run: () => setAsking("rename") },
    { label: "Labels", icon: "tag", run: () => setAsking("labels") },
    { label: "Fork", icon: "fork", hint: "New session with this history", run: () => void attempt(post<Session>(at(id, "/fork"), {})).then((made) => made && go(pathOf(made.id))) },
    ...(session.worktree ? [{ label: `Merge into ${session.worktree.base ?? "its base branch"}`, icon: "down" as const, hint: "Merge or rebase the session's branch", run: () => setAsking("merge") }] : []),
    { label: "Preview the next turn", icon: "bolt", hint: "Whether it continues, resumes or replays the conversation", run: () => void sayPlan(id) },
    { label: "Events", icon: "list", hint: "The stored event log", run: () => go(pathOf(id) + "/events") },
    { label: session.archived ? "Unarchive" : "Archive", icon: "archive", hint: session.archived ? "Show it in the list again" : session.worktree ? "Hide it from the list; its worktree is removed if nothing would be lost" : "Hide it from the list; search still finds it", run: () => void archive(id, !session.archived) },
    { label: "End session", icon: "stop", hint: "Permanent; you can still read and fork it", disabled: session.state === "ended", run: () => void attempt(post(at(id, "/stop"))) },
    { label: "Erase", icon: "trash", danger: true, run: () => setAsking("purge") },
  ];
  return (
    <header className="flex min-h-13 shrink-0 flex-wrap items-center gap-2 border-b border-line px-2 py-1 sm:px-4">
      <Link to="/" aria-label="All sessions" className="inline-flex size-(--target) items-center justify-center rounded-md text-quiet hover:bg-hover md:hidden">
        <Icon name="back" />
      </Link>
      <Dot state={mark} />
      <div className="min-w-0 flex-1">
        <h1 className="truncate text-base leading-5 font-semibold" title={titleOf(session)}>{titleOf(session)}</h1>
        <p className="truncate text-xs text-quiet">
          <span className={mark === "waiting" ? "text-amber" : mark === "working" ? "text-accent" : mark === "accepted" ? "text-text" : mark === "failed" ? "text-red" : ""}>{session.state === "ended" ? `Ended: ${session.status}` : ATTENTION_WORDS[mark]}</span>
          <span title={session.workdir}> · {agent} · {placeOf(session)}</span>
          {node && <span title="The node that owns this session"> · on {node}</span>}
          {session.labels.map((label) => <span key={label}> · #{label}</span>)}
          {session.waiting_until && <span className="text-amber" title={exact(session.waiting_until)}> · waiting until {until(session.waiting_until, Date.now())}</span>}
        </p>
      </div>
      {session.parent && <Link to={pathOf(session.parent)} title="The session that started this one" className="hidden max-w-48 truncate text-xs text-quiet underline underline-offset-2 sm:block">Started by {parent ? titleOf(parent) : "another session"}</Link>}
      {session.worktree && <WorktreeChip session={id} worktree={session.worktree} onOpen={() => setAsking("merge")} />}
      {changes !== null && <IconButton icon="diff" label="Changed files" pressed={changes} onClick={onChanges} />}
      <IconButton icon="panel" label="Plan, files, outline" pressed={panel} onClick={onPanel} />
      <Menu label="Session actions" items={items} align="end" className="inline-flex size-(--target) items-center justify-center rounded-md text-quiet hover:bg-hover hover:text-text">
        <Icon name="more" />
      </Menu>
      {asking === "rename" && <OneField title="Rename session" label="Title" value={session.title} onClose={() => setAsking(null)} onSave={(title) => attempt(patch(at(id), { title }))} />}
      {asking === "labels" && <OneField title="Labels" label="Labels, separated by commas" placeholder="backend, urgent" value={session.labels.join(", ")} onClose={() => setAsking(null)} onSave={(text) => attempt(patch(at(id), { labels: text.split(",").map((one) => one.trim()).filter(Boolean) }))} />}
      {asking === "merge" && session.worktree && <MergeDialog session={id} title={titleOf(session)} worktree={session.worktree} archived={session.archived} busy={isBusy(session)} onClose={() => setAsking(null)} />}
      {asking === "purge" && (
        <Dialog title="Erase this session?" onClose={() => setAsking(null)}>
          <p className="mb-4 text-sm">This erases its log, its transcript and the workspace created for it{session.worktree && ", except for work in its worktree that no other branch has"}. It can't be undone. To hide the session instead, archive it.</p>
          <div className="flex justify-end gap-2">
            <Button onClick={() => setAsking(null)}>Cancel</Button>
            <Button tone="danger" onClick={() => void attempt(remove(at(id, "?purge=true"))).then((done) => done && (forgetReview(id), relist(), go("/"), say("Session erased.")))}>Erase</Button>
          </div>
        </Dialog>
      )}
    </header>
  );
}

/** Show how the next turn would start, and why. */
export async function sayPlan(id: string): Promise<void> {
  const plan = await attempt(post<{ context: "live" | "resumed" | "fresh"; reason: string; bytes?: number }>(at(id, "/plan"), {}));
  if (plan) say(`Next turn: ${plan.reason === "first_turn" ? "new" : CONTEXT_WORDS[plan.context]}. ${contextReason(plan.context, plan.reason).replace("was replayed", "would be replayed").replace("resumed its", "would resume its")}`);
}

async function archive(id: string, archived: boolean): Promise<void> {
  const done = await attempt(patch(at(id), { archived }));
  if (done) say(archived ? "Archived. Search still finds it." : "Unarchived.");
}

function OneField({ title, label, placeholder, value, onClose, onSave }: { title: string; label: string; placeholder?: string; value: string; onClose: () => void; onSave: (value: string) => Promise<unknown> }) {
  const [text, setText] = useState(value);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    field.current?.select();
  }, []);
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        className="flex gap-2"
        onSubmit={(event) => {
          event.preventDefault();
          void onSave(text).then((done) => done && onClose());
        }}
      >
        <input ref={field} autoFocus aria-label={label} placeholder={placeholder} value={text} onChange={(event) => setText(event.target.value)} className="min-h-(--target) min-w-0 flex-1 rounded-md border border-line bg-ground px-2" />
        <Button type="submit" tone="primary">Save</Button>
      </form>
    </Dialog>
  );
}
