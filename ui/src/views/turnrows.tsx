// The rows of a turn other than answer text: the user's message with its menu, the separator with figures and the
// context badge, thoughts, plans, resolved prompts, notices. Above: conversation.tsx. Below: parts.

import { memo, useState } from "react";
import { Button } from "../parts/button";
import { Ago } from "../parts/clock";
import { copyText } from "../parts/copy";
import { Icon } from "../parts/icons";
import { Prose } from "../parts/markdown";
import { Menu, type MenuItem } from "../parts/menu";
import { pathOfTurn } from "../shell/router";
import { attempt } from "../shell/toast";
import type { Turn } from "../state/session";
import { bytes, contextReason, CONTEXT_WORDS, count, duration, exact, money, plural, replayedWords, STOP_WORDS, withTimes } from "../text/words";
import { at } from "../wire/api";
import { download } from "../wire/download";
import type { ImagePart, NoticePart, PlanPart, Prompt, ResolvedPart, TextPart, TurnInfo } from "../wire/types";

export interface TurnActions {
  edit: (turn: Turn, text: string) => Promise<boolean>;
  /** Both return whether it was done, and not cancelled or refused. */
  retry: (turn: Turn, text?: string, agent?: string) => Promise<boolean>;
  rewind: (turn: Turn) => Promise<boolean>;
  fork: (turn: Turn, agent?: string) => void;
  /** Null if there is only one agent. */
  another: ((turn: Turn) => void) | null;
}

const SHOWN_LINES = 12;
const SHOWN_CHARS = 1600;

export const MessageRow = memo(function MessageRow({ turn, actions, busy, waits, ended, session }: { turn: Turn; actions: TurnActions; busy: boolean; waits: boolean; ended: boolean; session: string }) {
  const [editing, setEditing] = useState<string | null>(null);
  const [whole, setWhole] = useState(false);
  const message = turn.message!;
  const lines = message.text.split("\n");
  const long = lines.length > SHOWN_LINES + 4 || message.text.length > SHOWN_CHARS * 1.5;
  const first = lines.slice(0, SHOWN_LINES).join("\n").slice(0, SHOWN_CHARS) + " …";
  // A turn the agent started itself has no user message that could be edited or retried.
  const byItself = message.origin === "agent";
  const another = byItself ? null : actions.another;
  const unsent = waits && !turn.info?.stop_reason && !turn.info?.context;
  // These are not offered in an ended session.
  const again: MenuItem[] = [
    { label: "Edit in place", icon: "pencil", hint: unsent ? "Changes what is sent when the turn starts" : "Changes the message; later turns stay", disabled: busy && !waits, run: () => setEditing(message.text) },
    { label: "Retry from here", icon: "retry", hint: "Rewinds this turn and all later ones, then sends the message again", disabled: busy, run: () => void actions.retry(turn) },
  ];
  const changes: MenuItem[] = [
    ...(byItself ? [] : again),
    { label: "Rewind to before this turn", icon: "undo", hint: "Removes this turn and all later ones from the conversation", disabled: busy, run: () => void actions.rewind(turn) },
  ];
  const items: MenuItem[] = [
    { label: "Copy", icon: "copy", run: () => void copyText(message.text) },
    { label: "Copy link", icon: "link", run: () => void copyText(location.origin + pathOfTurn(session, turn.turn)) },
    ...(ended ? [] : changes),
    { label: "Fork from here", icon: "fork", hint: "New session with the history up to and including this turn", run: () => actions.fork(turn) },
    ...(another ? [{ label: "With another agent", icon: "agent", hint: ended ? "Fork this turn" : "Retry or fork this turn", run: () => another(turn) } as const] : []),
  ];
  const keys = (event: React.KeyboardEvent) => {
    if (event.key !== "Escape" || event.nativeEvent.isComposing) return;
    event.stopPropagation();
    // Escape closes only an unchanged edit. Discard changes with the Cancel button.
    if (editing === message.text) setEditing(null);
  };
  return (
    <article aria-label={`${byItself ? "Started by the agent" : "Your message"}, turn ${turn.turn}`} className={`group mt-6 max-w-[92ch] rounded-lg border border-line px-3 py-2 ${turn.rewound ? "" : "bg-raised"}`}>
      <header className="flex items-center gap-2 text-xs text-quiet">
        <span className="font-semibold text-text">{byItself ? `Started by ${turn.info?.agent ?? "the agent"}` : "You"}</span>
        <Ago at={message.at} />
        {message.edited_at && <span title={exact(message.edited_at)}>edited</span>}
        {turn.rewound && <span>rewound</span>}
        <span className="flex-1" />
        {!turn.rewound && (
          <Menu label={`Actions for turn ${turn.turn}`} items={items} align="end" className="-my-1 -mr-2 inline-flex size-(--target) items-center justify-center rounded-md text-quiet hover:bg-hover hover:text-text">
            <Icon name="more" />
          </Menu>
        )}
      </header>
      {editing === null ? (
        <>
          <div className="said max-w-[76ch] break-words whitespace-pre-wrap">{long && !whole ? first : message.text}</div>
          {long && <button type="button" aria-expanded={whole} className="reach mt-1 text-xs text-quiet underline underline-offset-2 hover:text-text" onClick={() => setWhole(!whole)}>{whole ? "Show less" : `Show all ${plural(lines.length, "line")}`}</button>}
        </>
      ) : (
        <form
          className="mt-1 space-y-2"
          onSubmit={(event) => {
            event.preventDefault();
            void actions.edit(turn, editing).then((done) => done && setEditing(null));
          }}
        >
          <textarea autoFocus value={editing} onChange={(event) => setEditing(event.target.value)} onKeyDown={keys} aria-label="Message" rows={Math.min(12, editing.split("\n").length + 1)} className="w-full rounded-md border border-line bg-ground p-2" />
          <div className="flex flex-wrap gap-2">
            <Button type="submit" tone="primary" disabled={!editing.trim()}>Save</Button>
            {!busy && <Button disabled={!editing.trim()} onClick={() => void actions.retry(turn, editing).then((done) => done && setEditing(null))}>Save and retry</Button>}
            <Button tone="quiet" onClick={() => setEditing(null)}>Cancel</Button>
          </div>
        </form>
      )}
      {!!message.attachments?.length && (
        <ul className="mt-2 flex flex-wrap gap-2" aria-label="Attachments">
          {message.attachments.map((attachment, index) => (
            <li key={index} className="flex items-center gap-1.5 rounded-md border border-line px-2 py-1 text-xs text-quiet">
              <Icon name="clip" size={12} />
              {attachment.file && session ? <button type="button" title={`Download ${attachment.name}`} onClick={() => void attempt(download(at(session, `/attachments/${encodeURIComponent(attachment.file!)}`), attachment.name))} className="reach cursor-pointer underline underline-offset-2">{attachment.name}</button> : attachment.name}
            </li>
          ))}
        </ul>
      )}
    </article>
  );
});

const BADGES = { live: "text-green", resumed: "text-accent", fresh: "text-quiet" };

export const Separator = memo(function Separator({ turn }: { turn: Turn }) {
  const info = turn.info;
  const ended = info?.stop_reason;
  const usage = info?.usage;
  const tokens = (usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0) + (usage?.cache_read_tokens ?? 0) + (usage?.cache_write_tokens ?? 0);
  const cost = info?.cost_usd ?? usage?.cost_usd;
  const filled = usage?.context_used && usage.context_size ? Math.round((100 * usage.context_used) / usage.context_size) : null;
  return (
    <div role="group" aria-label={`Turn ${turn.turn}`} className="my-2 flex max-w-[92ch] items-center gap-3 text-xs text-quiet">
      <span className="flex flex-wrap items-center gap-x-2 gap-y-0.5">
        <span title={exact(info?.started_at)}>Turn {turn.turn}</span>
        {info && <Sep>{info.agent}</Sep>}
        {info?.context && info.duration_ms != null && <Sep><span className="tabular-nums">{duration(info.duration_ms)}</span></Sep>}
        {tokens > 0 && (
          <Sep>
            <span className="tabular-nums" title={`${(usage?.input_tokens ?? 0).toLocaleString("en")} in, ${(usage?.output_tokens ?? 0).toLocaleString("en")} out, ${(usage?.cache_read_tokens ?? 0).toLocaleString("en")} from the cache`}>{count(tokens)} tokens</span>
          </Sep>
        )}
        {cost != null && <Sep><span className="tabular-nums">{money(cost)}</span></Sep>}
        {filled !== null && <Sep><span className="tabular-nums" title="How full the agent's context is">{filled} % of context</span></Sep>}
        {info?.context && (
          <Sep>
            <Badge context={info.context} why={info.context_reason} />
          </Sep>
        )}
        {ended && ended !== "end_turn" && <Sep><span className={ended === "cancelled" ? "" : "font-medium text-red"}>{STOP_WORDS[ended] ?? ended}</span></Sep>}
      </span>
      <span className="h-px flex-1 bg-line" />
    </div>
  );
});

/** The conversation was replayed to the agent, and why. */
export const ReplayedRow = memo(function ReplayedRow({ info }: { info: TurnInfo }) {
  return <p className="max-w-[92ch] pb-1 pl-6 text-xs break-words text-quiet">{replayedWords(info.agent, info.context_reason)}</p>;
});

/** How the turn started. Click to see why. */
function Badge({ context, why }: { context: NonNullable<TurnInfo["context"]>; why: string }) {
  const [told, setTold] = useState(false);
  const reason = contextReason(context, why);
  return (
    <>
      <button type="button" aria-expanded={told} title={reason} className={`reach hover:underline ${BADGES[context]}`} onClick={() => setTold(!told)}>{why === "first_turn" ? "new" : CONTEXT_WORDS[context]}</button>
      {told && <span>{reason}</span>}
    </>
  );
}

const Sep = ({ children }: { children: React.ReactNode }) => (
  <><span aria-hidden="true">·</span>{children}</>
);

export const Thinking = memo(function Thinking({ part, live, isOpen, onToggle }: { part: TextPart; live: boolean; isOpen: boolean; onToggle: () => void }) {
  const first = part.text.trim().split("\n")[0] ?? "";
  return (
    <div className="max-w-[92ch] text-sm text-quiet">
      <button type="button" aria-expanded={isOpen} onClick={onToggle} className="flex w-full items-center gap-2 rounded-md py-1 pr-2 pl-1 text-left hover:bg-hover">
        <Icon name="right" size={12} className={isOpen ? "rotate-90" : ""} />
        <span className="shrink-0">{live ? "Thinking" : "Thought"} </span>
        {!isOpen && <span className="min-w-0 truncate italic">{first}</span>}
      </button>
      {isOpen && <Prose raw={part.text} className="mb-2 ml-2 border-l border-line pl-4 italic" />}
    </div>
  );
});

export function PlanList({ part }: { part: PlanPart }) {
  return (
    <ol className="space-y-1 text-sm">
      {part.entries.map((entry, index) => (
        <li key={index} className="flex items-start gap-2">
          <span className={`mt-1 flex size-3.5 shrink-0 items-center justify-center rounded-sm border ${entry.status === "completed" ? "border-green text-green" : entry.status === "in_progress" ? "border-accent" : "border-strong"}`}>
            {entry.status === "completed" && <Icon name="check" size={10} />}
            {entry.status === "in_progress" && <span className="pulse size-1.5 rounded-full bg-accent" />}
          </span>
          <span className={entry.status === "completed" ? "text-quiet" : ""}>
            <span className="sr-only">{entry.status.replace("_", " ")}: </span>
            {entry.content}
          </span>
        </li>
      ))}
    </ol>
  );
}

/** An image from the agent. The server stores only image types that browsers can show safely. */
export const ImageRow = memo(function ImageRow({ part }: { part: ImagePart }) {
  const what = `${part.mime_type.replace("image/", "").toUpperCase()} image, ${bytes(part.size)}`;
  if (part.data === null) return <p className="max-w-[92ch] py-1 pl-6 text-sm text-quiet">{what}: not available.</p>;
  return (
    <figure className="my-2 max-w-[92ch] pl-6">
      <img src={`data:${part.mime_type};base64,${part.data}`} alt={what} className="max-h-96 max-w-full rounded-md border border-line object-contain" />
      <figcaption className="mt-1 text-xs text-quiet">{what}</figcaption>
    </figure>
  );
});

export const PlanRow = memo(function PlanRow({ part, isOpen, onToggle }: { part: PlanPart; isOpen: boolean; onToggle: () => void }) {
  const done = part.entries.filter((entry) => entry.status === "completed").length;
  const now = part.entries.find((entry) => entry.status === "in_progress");
  return (
    <div className="max-w-[92ch] text-sm">
      <button type="button" aria-expanded={isOpen} onClick={onToggle} className="flex w-full items-center gap-2 rounded-md py-1 pr-2 pl-1 text-left hover:bg-hover">
        <Icon name="right" size={12} className={`text-quiet ${isOpen ? "rotate-90" : ""}`} />
        <span>Plan </span>
        <span className="min-w-0 flex-1 truncate text-quiet">{now?.content ?? ""}</span>
        <span className="text-xs text-quiet tabular-nums">{done} of {part.entries.length}</span>
      </button>
      {isOpen && <div className="mb-2 ml-2 border-l border-line pl-4"><PlanList part={part} /></div>}
    </div>
  );
});

const OUTCOMES: Record<string, string> = {
  allowed: "Allowed",
  denied: "Denied",
  answered: "Answered",
  cancelled: "Skipped",
  withdrawn: "Withdrawn",
  discarded: "Discarded",
  agent_lost: "Closed",
};
const BY: Record<string, string> = { person: "by you", rule: "by a rule", agent: "by the agent", server: "by the server" };

export function ResolvedRow({ part, prompt }: { part: ResolvedPart; prompt: Prompt | null }) {
  const refused = part.outcome === "denied" || part.outcome === "agent_lost";
  const answers = part.questions?.map((question) => `${question.question} ${[part.answers?.[question.question_id] ?? []].flat().join(", ")}`).join("; ");
  const about = [answers || part.title || prompt?.title || prompt?.questions[0]?.question, part.reason && `“${part.reason}”`, part.outcome === "agent_lost" && "the agent process is gone"].filter(Boolean).join(", ");
  return (
    <p className="flex max-w-[92ch] items-center gap-2 py-1 pl-1 text-sm">
      <Icon name={refused || part.outcome === "cancelled" ? "cross" : "check"} size={12} className={refused ? "text-red" : "text-green"} />
      <span className="min-w-0 break-words">
        {OUTCOMES[part.outcome] ?? part.outcome} <span className="text-quiet">{BY[part.by] ?? part.by}{about ? `: ${about}` : ""}</span>
      </span>
    </p>
  );
}

export function AskedRow({ prompt }: { prompt: Prompt | null }) {
  return (
    <p className="flex max-w-[92ch] items-center gap-2 py-1 pl-1 text-sm text-amber">
      <span className="size-2 shrink-0 rounded-full bg-amber-mark" />
      <span className="min-w-0 truncate">Waiting for you: {prompt ? prompt.title || prompt.questions[0]?.question : "a prompt"}</span>
    </p>
  );
}

export const Notice = memo(function Notice({ part, turn, onRetry }: { part: NoticePart; turn: Turn; onRetry: (() => void) | null }) {
  if (part.type !== "error" && part.message) return <p className="max-w-[92ch] py-1 pl-6 text-sm break-words text-quiet">{withTimes(part.message)}</p>;
  if (part.type !== "error") {
    if (!part.reason) return null;
    const words = (part.reason ?? "").replace(/_/g, " ");
    return <p className="max-w-[92ch] py-1 pl-6 text-sm break-words text-quiet">{part.type === "context_fallback" ? `The agent could not continue its own session (${words}), so the conversation was replayed to it.` : `From now on, this agent uses another driver (${words}).`}</p>;
  }
  return (
    <div role="group" aria-label="Error" className="my-2 max-w-[92ch] rounded-lg border border-line bg-red-soft px-3 py-2 text-sm">
      <p className="font-medium break-words text-red">{withTimes(part.message ?? "")}</p>
      {!/kept|saved|retry|again|send a(nother)? message/i.test(part.message ?? "") && <p className="mt-1 text-text">The conversation is saved. Retry this turn, or send another message.</p>}
      {part.detail && (
        <details className="mt-1">
          <summary className="text-xs text-quiet">Details</summary>
          <pre className="code mt-1 max-h-60 overflow-auto text-xs break-words whitespace-pre-wrap" tabIndex={0}>{part.detail}</pre>
        </details>
      )}
      {onRetry && <div className="mt-2"><Button icon="retry" onClick={onRetry}>Retry turn {turn.turn}</Button></div>}
    </div>
  );
});

export function RewoundRow({ turns, isOpen, onToggle }: { turns: number[]; isOpen: boolean; onToggle: () => void }) {
  const which = turns.length === 1 ? `Turn ${turns[0]} was` : `Turns ${turns[0]} to ${turns[turns.length - 1]} were`;
  return (
    <div className="my-2 flex max-w-[92ch] items-center gap-2 text-xs text-quiet">
      <Icon name="undo" size={12} />
      <span>{which} rewound</span>
      <button type="button" className="reach underline underline-offset-2 hover:text-text" aria-expanded={isOpen} onClick={onToggle}>{isOpen ? "Hide" : `Show ${plural(turns.length, "turn")}`}</button>
      <IconGap />
    </div>
  );
}

const IconGap = () => <span className="h-px flex-1 bg-line" />;
