// One session: header, conversation, waiting prompt, queue, composer, and the side panel. Above: the app. Below: the
// session's store and the views it consists of. It only sends commands; the log shows their effect.

import { useEffect, useLayoutEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { Button } from "../parts/button";
import { Nowhere } from "../parts/nowhere";
import { go, isBrowsing, pathOf, pathOfChanges, type ChangesPlace, type Place } from "../shell/router";
import { whenNeeded } from "../shell/boundary";
import { attempt } from "../shell/toast";
import { register } from "../shell/commands";
import { useAgents } from "../state/lists";
import { useChanges } from "../state/changes";
import { keep, kept } from "../state/kept";
import { send } from "../state/outbox";
import { attention, ATTENTION_WORDS, isBusy, overviewNow } from "../state/sessions";
import { storeOf, useHead } from "../state/store";
import { at, patch, post, query } from "../wire/api";
import { watch } from "../wire/link";
import type { ConfigOption, Session, ToolPart } from "../wire/types";
import { useStill } from "./answering";
import { agentChoices, AnotherAgent } from "./agentchoice";
import { Aside, isWide } from "./aside";
import { Chip, Composer, type ComposerHandle } from "./composer";
import { Conversation, type ConversationHandle } from "./conversation";
import { answerByKey, PromptCard } from "./prompt";
import { QueueList } from "./queue";
import { useRewinding } from "./rewinding";
import { sayPlan, SessionHeader } from "./sessionheader";
import type { Turn } from "../state/session";
import type { TurnActions } from "./turnrows";
import { interrupt } from "./working";

const ChangesView = whenNeeded(() => import("./changes/changes"));

const TWICE_MS = 1500;

const wideEnough = typeof matchMedia === "function" ? matchMedia("(min-width: 80rem)") : null;
const onWidth = (changed: () => void) => {
  wideEnough?.addEventListener("change", changed);
  return () => wideEnough?.removeEventListener("change", changed);
};
/** Whether the changes fit beside the conversation. */
const useWide = () => useSyncExternalStore(onWidth, () => !!wideEnough?.matches);

/** `changes`: shown beside the conversation, or instead of it if there is no room. */
export function SessionView({ id, place, changes }: { id: string; place: Place | null; changes: ChangesPlace | null }) {
  const store = useMemo(() => storeOf(id), [id]);
  const { session, prompts, queue, commands, gone } = useHead(store);
  const composer = useRef<ComposerHandle>(null);
  const conversation = useRef<ConversationHandle>(null);
  const [denying, setDenying] = useState({ prompt: "", count: 0 });
  const [fresh, setFresh] = useState(false);
  const [nextAgent, setNextAgent] = useState<string | null>(null);
  const [panel, setPanel] = useState(false);
  const [beside, setBeside] = useState(() => kept("panel") !== "hidden");
  const [escaped, setEscaped] = useState(0);
  const [elsewhere, setElsewhere] = useState<Turn | null>(null);
  const wide = useWide();
  const [full, setFull] = useState(() => kept("changes.full") === "yes");
  const changed = useChanges(id);
  const alone = changes !== null && (!wide || full);
  const agents = useAgents().value.agents;
  const others = agentChoices(agents).filter((choice) => !choice.disabled).length > 1;
  // Don't focus the composer if a prompt is waiting or the user steps through sessions: shortcut keys must work then.
  const [keysFirst] = useState(() => isBrowsing() || overviewNow().sessions.some((one) => one.id === id && one.pending_prompts > 0));

  useEffect(() => {
    watch([id]);
    return () => watch([]);
  }, [id]);

  const busy = isBusy(session);
  const waitsFor = session?.state === "accepted" ? session.waits_for : null;
  // The session takes on a message's agent only when its turn starts.
  const agent = (session?.state === "accepted" && store.state.turns.at(-1)?.info?.agent) || (session?.agent ?? "");
  const ended = session?.state === "ended";
  // Keys answer only a prompt that is shown.
  const prompt = alone ? undefined : prompts[0];
  const still = useStill(prompt?.prompt_id);

  const togglePanel = () => {
    if (changes && wide) {
      keep("panel", null);
      setBeside(true);
      return go(pathOf(id));
    }
    if (!isWide()) return setPanel(!panel);
    keep("panel", beside ? "hidden" : null);
    setBeside(!beside);
  };
  const escape = () => {
    if (!busy) return;
    const now = Date.now();
    if (now - escaped < TWICE_MS) void interrupt(id);
    setEscaped(now);
    setTimeout(() => setEscaped((before) => (before === now ? 0 : before)), TWICE_MS);
  };

  useLayoutEffect(
    () =>
      register([
        { id: "allow", title: "Allow", keys: "y", group: "Prompt", when: () => !!prompt, run: () => void (still && prompt && answerByKey(id, prompt, "y")) },
        { id: "always", title: "Always allow", keys: "a", group: "Prompt", when: () => !!prompt, run: () => void (still && prompt && answerByKey(id, prompt, "a")) },
        { id: "deny", title: "Deny with a reason", keys: "n", group: "Prompt", when: () => prompt?.kind === "permission", run: () => setDenying(({ count }) => ({ prompt: prompt?.prompt_id ?? "", count: count + 1 })) },
        { id: "compose", title: "Write a message", keys: "i", group: "Session", run: () => composer.current?.focus() },
        { id: "interrupt", title: "Interrupt the turn", keys: "Escape Escape", group: "Session", when: () => busy, run: () => void interrupt(id) },
        { id: "end", title: "Jump to the end", keys: "Shift+g", group: "Session", run: () => conversation.current?.toEnd() },
        { id: "panel", title: "Plan, files, outline", keys: "o", group: "Session", run: togglePanel },
        { id: "changes", title: changes ? "Close changes" : "Review changes", keys: "d", group: "Session", run: () => go(changes ? pathOf(id) : pathOfChanges(id)) },
        { id: "fresh", title: "Restart context with the next message", group: "Session", run: () => setFresh((on) => !on) },
        { id: "plan", title: "Preview the next turn", group: "Session", run: () => void sayPlan(id) },
        { id: "inspect", title: "Inspect events", group: "Session", run: () => go(pathOf(id) + "/events") },
      ]),
    [id, prompt, still, busy, panel, beside, changes, wide, alone],
  );

  const { begin, dialog } = useRewinding(store);
  const rewinding = useRef(begin);
  rewinding.current = begin;
  const actions = useMemo<TurnActions>(
    () => ({
      edit: async (turn, text) => (await attempt(patch(at(id, `/messages/${encodeURIComponent(turn.message!.message_id)}`), { text, ...store.revision }))) !== undefined,
      retry: (turn, text, agent) => rewinding.current({ action: "retry", turn, text, agent }),
      rewind: (turn) => rewinding.current({ action: "rewind", turn }),
      fork: (turn, agent) => void attempt(post<Session>(at(id, "/fork"), { turn: turn.turn, ...(agent ? { agent } : {}) })).then((made) => made && go(pathOf(made.id))),
      another: others ? setElsewhere : null,
    }),
    [id, store, others],
  );

  if (gone === "damaged") {
    return <Nowhere title="This session is damaged">It was set aside, and nothing was deleted. Run <code>perdure doctor --deep</code> on the server to see what can't be read and what to do.</Nowhere>;
  }
  if (gone) {
    return <Nowhere title="Session not found">It was erased, or the link is wrong.</Nowhere>;
  }

  const tool = prompt?.tool_id ? (store.state.turns[store.state.turns.length - 1]?.parts.find((part) => part.type === "tool" && part.tool_id === prompt.tool_id) as ToolPart | undefined) : undefined;
  const besideChanges = changes !== null && wide && !full;
  const hasChanges = changes !== null || !!changed?.files.length;
  const setWhole = (whole: boolean) => (keep("changes.full", whole ? "yes" : null), setFull(whole));
  if (alone) return <ChangesView store={store} place={changes} beside={false} wide={wide} onWide={setWhole} />;
  return (
    <div className="flex min-h-0 min-w-0 flex-1">
      <div className="flex min-h-0 min-w-0 flex-1 flex-col">
        <p className="sr-only" role="status">{prompt ? `Waiting for you: ${prompt.title}` : waitsFor?.message ?? (session ? ATTENTION_WORDS[attention(session)] : "")}</p>
        <SessionHeader id={id} session={session} agent={agent} panel={besideChanges ? false : isWide() ? beside : panel} onPanel={togglePanel} changes={hasChanges ? besideChanges : null} onChanges={() => go(changes ? pathOf(id) : pathOfChanges(id))} />
        {session ? (
          <Conversation key={id} ref={conversation} store={store} place={place} actions={actions} onRewound={(turns) => void attempt(store.loadRewound(turns))} />
        ) : (
          <div className="flex-1" aria-busy="true" />
        )}
        <div className="mx-auto w-full max-w-[calc(92ch+48px)] space-y-2 px-3 pb-[max(12px,env(safe-area-inset-bottom))] sm:px-6">
          {prompt && session && <PromptCard key={prompt.prompt_id} session={id} prompt={prompt} workdir={session.workdir} project={session.project} diff={tool?.diff} denying={denying.prompt === prompt.prompt_id ? denying.count : 0} keys={still ? "ready" : "soon"} />}
          {prompts.length > 1 && <p className="text-xs text-amber">{prompts.length - 1} more waiting</p>}
          <QueueList session={id} queue={queue} onEdit={(message) => message.agent && setNextAgent(message.agent)} />
          {busy && escaped > 0 && <p className="text-xs text-quiet" role="status">Press Esc again to {waitsFor ? "cancel the waiting message" : "interrupt"}.</p>}
          {ended && session && <EndedRow id={id} project={session.project} agent={session.agent} />}
          <Composer
            key={id}
            ref={composer}
            draftKey={"draft." + id}
            session={id}
            commands={commands}
            busy={busy}
            interrupts={waitsFor ? "Send instead" : "Interrupt and send"}
            disabled={ended ? "This session has ended." : undefined}
            placeholder={busy ? "Message to send after this turn" : "Message"}
            autoFocus={!keysFirst}
            leaves={!!prompt}
            onEscape={escape}
            onSend={(sent) => {
              send({ session: id, text: sent.text, attachments: sent.attachments.length ? sent.attachments : undefined, when_busy: sent.whenBusy ?? "queue", ...(nextAgent && nextAgent !== agent ? { agent: nextAgent } : {}), ...(fresh ? { fresh: true } : {}) });
              setFresh(false);
              setNextAgent(null);
              conversation.current?.toEnd();
            }}
            chips={session && !ended && <SessionChips session={session} agent={nextAgent ?? agent} onAgent={setNextAgent} fresh={fresh} onFresh={() => setFresh(!fresh)} />}
          />
        </div>
      </div>
      {dialog}
      {elsewhere && <AnotherAgent turn={elsewhere} agents={agents} onClose={() => setElsewhere(null)} onRetry={busy || ended ? null : (agent) => void actions.retry(elsewhere, undefined, agent)} onFork={(agent) => actions.fork(elsewhere, agent)} />}
      {besideChanges ? (
        <div className="flex w-[50vw] max-w-[calc(100%-25rem)] shrink-0 border-l border-line">
          <ChangesView store={store} place={changes} beside wide={false} onWide={setWhole} />
        </div>
      ) : (
        <Aside store={store} changes={changed} shown={panel} beside={beside} onClose={() => setPanel(false)} />
      )}
    </div>
  );
}

/** The actions for a session that has ended. */
function EndedRow({ id, project, agent }: { id: string; project: string | null; agent: string }) {
  return (
    <div className="flex flex-wrap items-center gap-2 text-sm">
      <span className="flex-1 text-quiet max-sm:basis-full">Fork the session to continue it, or start a new one.</span>
      <Button icon="fork" onClick={() => void attempt(post<Session>(at(id, "/fork"), {})).then((made) => made && go(pathOf(made.id)))}>Fork</Button>
      <Button icon="plus" onClick={() => go("/new" + query({ project, agent }))}>New session</Button>
    </div>
  );
}

/** Model, mode and the agent's other options, as one list. */
export function optionsOf(session: Session): ConfigOption[] {
  const options = (session.config_options ?? []).filter((option) => option.options?.length);
  const has = (id: string) => options.some((option) => option.id === id || option.category === id);
  if (!has("model") && session.models?.availableModels?.length) options.push({ id: "model", name: "Model", currentValue: session.model ?? session.models.currentModelId, options: session.models.availableModels.map((one) => ({ value: one.modelId, name: one.name })) });
  if (!has("mode") && session.modes?.availableModes?.length) options.push({ id: "mode", name: "Mode", currentValue: session.mode ?? session.modes.currentModeId, options: session.modes.availableModes.map((one) => ({ value: one.id, name: one.name })) });
  return options;
}

function SessionChips({ session, agent, onAgent, fresh, onFresh }: { session: Session; agent: string; onAgent: (agent: string) => void; fresh: boolean; onFresh: () => void }) {
  const agents = useAgents().value.agents;
  return (
    <>
      <Chip label="Agent" value={agent} options={agentChoices(agents)} onChange={onAgent} />
      {agent === session.agent &&
        optionsOf(session).map((option) => (
          <Chip
            key={option.id}
            label={option.name}
            value={String((option.id === "model" ? session.model : option.id === "mode" ? session.mode : null) ?? option.currentValue ?? "")}
            options={option.options!.map((one) => ({ value: one.value, name: one.name, hint: one.description }))}
            onChange={(value) => void attempt(post(at(session.id, "/config"), { config_id: option.id, value }))}
          />
        ))}
      <button type="button" aria-pressed={fresh} onClick={onFresh} title="With the next message, start a new agent session and replay the whole conversation to it" className={`min-h-(--target) shrink-0 rounded-md px-2 text-xs hover:bg-hover ${fresh ? "bg-accent-soft text-accent" : "text-quiet"}`}>
        {fresh ? "Context restarts next turn" : "Restart context"}
      </button>
    </>
  );
}
