// Comments on lines, inside the diff: those that are sent, and drafts with their form. Above: a file's section. Below:
// the drafts in the browser's storage.

import { memo, useEffect, useLayoutEffect, useRef } from "react";
import { Button, IconButton } from "../../parts/button";
import { Ago } from "../../parts/clock";
import { change, drop, useDrafts, type Draft } from "../../state/review";
import type { Comment, Passage } from "../../wire/changes";
import { linesOf } from "./cursor";

const STATES: Record<Comment["state"], [word: string, why: string, look: string]> = {
  sent: ["Sent", "The agent has not worked on it yet", "text-quiet"],
  open: ["Open", "The agent's turn has ended, and these lines are unchanged", "text-amber"],
  addressed: ["Addressed", "The agent changed these lines after the comment", "text-green"],
  outdated: ["Outdated", "These lines are not there any more", "text-quiet"],
};

/** The lines as they were. */
const Quoted = ({ passage }: { passage: Passage }) => passage.quote && <pre className="code mt-1 max-h-20 overflow-auto rounded bg-sunken px-2 break-words whitespace-pre-wrap text-quiet" tabIndex={0}>{passage.quote}</pre>;

export const CommentCard = memo(function CommentCard({ comment, placed, shift }: { comment: Comment; placed: boolean; shift: number }) {
  const [word, why, look] = STATES[comment.state];
  return (
    <article aria-label={`Comment on ${linesOf(comment, shift).toLowerCase()}`} className="my-1.5 mr-2 ml-3 max-w-[76ch] rounded-lg border border-line bg-raised px-3 py-2 font-sans text-sm">
      <p className="flex flex-wrap items-center gap-x-2 text-xs text-quiet">
        <span className="font-semibold text-text">You</span>
        <span>{linesOf(comment, shift)}</span>
        {comment.turn !== null && !placed && <span>in turn {comment.turn}</span>}
        <Ago at={comment.at} />
        <span className="flex-1" />
        <span title={why} className={`font-medium ${look}`}>{word}</span>
      </p>
      {!placed && <Quoted passage={comment} />}
      <p className="said mt-1 break-words whitespace-pre-wrap">{comment.text}</p>
    </article>
  );
});

/** The draft as it is now: rows are not computed again for each letter. */
export function DraftCard({ session, id, placed, shift, onDone }: { session: string; id: string; placed: boolean; shift: number; onDone: () => void }) {
  const draft = useDrafts(session).find((one) => one.id === id);
  if (!draft) return null;
  if (draft.open) return <DraftForm session={session} draft={draft} shift={shift} onDone={onDone} />;
  return (
    <article aria-label={`Draft on ${linesOf(draft, shift).toLowerCase()}`} className="group my-1.5 mr-2 ml-3 max-w-[76ch] rounded-lg border border-amber-line bg-raised px-3 py-2 font-sans text-sm">
      <p className="flex items-center gap-x-2 text-xs text-quiet">
        <span className="flex min-w-0 flex-1 flex-wrap gap-x-2">
          <span className="font-semibold text-text">You</span>
          <span>{linesOf(draft, shift)}</span>
          {!placed && <span>not shown here</span>}
        </span>
        <span className="shrink-0 font-medium text-amber">Not sent yet</span>
        <IconButton icon="pencil" label="Edit comment" size={14} className="-my-1" onClick={() => change(session, draft.id, { open: true })} />
        <IconButton icon="trash" label="Delete comment" size={14} className="-my-1 -mr-2" onClick={() => (drop(session, draft.id), onDone())} />
      </p>
      {!placed && <Quoted passage={draft} />}
      <p className="said mt-1 break-words whitespace-pre-wrap">{draft.text}</p>
    </article>
  );
}

/** Forms that were just opened take the focus, those that a reload brought back do not. */
const focused = new Set<string>();
export const focusSoon = (draft: string) => focused.add(draft);

function DraftForm({ session, draft, shift, onDone }: { session: string; draft: Draft; shift: number; onDone: () => void }) {
  const area = useRef<HTMLTextAreaElement>(null);
  const first = useRef(draft.text);
  useEffect(() => {
    if (focused.delete(draft.id)) area.current?.focus({ preventScroll: true });
  });
  useLayoutEffect(() => {
    const element = area.current!;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight + 2, 320)}px`;
  }, [draft.text]);
  const save = () => {
    if (!draft.text.trim()) return;
    change(session, draft.id, { open: false });
    onDone();
  };
  const cancel = () => {
    if (first.current.trim()) change(session, draft.id, { open: false, text: first.current });
    else drop(session, draft.id);
    onDone();
  };
  const keys = (event: React.KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) {
      event.preventDefault();
      save();
    } else if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      // Escape closes only an unchanged comment. Discard changes with the Cancel button.
      if (draft.text === first.current) cancel();
    }
  };
  return (
    <form
      aria-label={`Comment on ${linesOf(draft, shift).toLowerCase()}`}
      className="my-1.5 mr-2 ml-3 max-w-[76ch] rounded-lg border border-line bg-raised p-2 font-sans text-sm focus-within:border-strong"
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}
    >
      <p className="px-1 pb-1 text-xs text-quiet">{linesOf(draft, shift)}</p>
      <textarea ref={area} value={draft.text} rows={2} dir="auto" aria-label="Comment" placeholder="What should be different?" onChange={(event) => change(session, draft.id, { text: event.target.value })} onKeyDown={keys} className="block w-full resize-none rounded-md border border-line bg-ground px-2 py-1.5" />
      <div className="mt-2 flex flex-wrap items-center justify-end gap-2">
        <Button tone="quiet" onClick={cancel}>Cancel</Button>
        <Button type="submit" tone="primary" disabled={!draft.text.trim()} keys="Ctrl+Enter">Add comment</Button>
      </div>
    </form>
  );
}
