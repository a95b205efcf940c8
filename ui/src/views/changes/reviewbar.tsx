// The comments that are not sent yet: how many, and sending them as one message. Above: the view of changes. Below: the
// drafts.

import { useLayoutEffect, useRef, useState } from "react";
import { Button, IconButton } from "../../parts/button";
import { register } from "../../shell/commands";
import { say } from "../../shell/toast";
import { refreshChanges } from "../../state/changes";
import { keep, kept } from "../../state/kept";
import { isWritten, sendDrafts, type Draft } from "../../state/review";
import { visible } from "../../text/visible";
import { plural } from "../../text/words";
import { sentence } from "../../wire/api";
import { DraftCard } from "./comments";

interface Props {
  session: string;
  drafts: Draft[];
  /** Those on files that are not among the changes any more. */
  lost: Draft[];
  agent: string;
  busy: boolean;
  ended: boolean;
  onShow: (draft: Draft) => void;
  /** The focus goes back to the diffs. */
  onLeave: () => void;
  /** Whether the keys of the view apply. */
  within: () => boolean;
}

export function ReviewBar({ session, drafts, lost, agent, busy, ended, onShow, onLeave, within }: Props) {
  const key = "reviewtext." + session;
  const [text, setText] = useState(() => kept(key) ?? "");
  const [sending, setSending] = useState(false);
  const [at, setAt] = useState(-1);
  const field = useRef<HTMLInputElement>(null);
  const written = drafts.filter(isWritten);
  const now = useRef(() => {});
  now.current = () => {
    if (written.length) field.current?.focus();
    else say("There are no comments to send. Press c on a line to write one.");
  };
  useLayoutEffect(() => register([{ id: "changes.send", title: "Send the comments", keys: "s", group: "Changes", within, run: () => now.current() }]), [within]);
  if (!written.length) return null;
  const write = (value: string) => (keep(key, value), setText(value));
  const next = () => {
    // Those below are in sight.
    const shown = written.filter((one) => !lost.includes(one));
    const index = (at + 1) % shown.length;
    setAt(index);
    onShow(shown[index]!);
  };
  const send = async () => {
    if (sending || ended) return;
    setSending(true);
    try {
      await sendDrafts(session, text.trim(), agent, "queue");
      say(`${plural(written.length, "comment")} ${busy ? "queued. The agent gets them after this turn" : "sent"}.`);
      write("");
      refreshChanges(session);
      onLeave();
    } catch (error) {
      say(`${sentence(error)} Your comments are kept.`, true);
    } finally {
      setSending(false);
    }
  };
  return (
    <>
      {lost.length > 0 && (
        <section aria-label="Comments on files that are not shown" className="max-h-[30%] shrink-0 overflow-y-auto border-t border-line bg-ground py-1">
          {lost.map((one) => (
            <div key={one.id}>
              <p className="px-3 pt-1 text-xs break-words text-quiet"><span className="font-mono">{visible(one.path)}</span> is not among these changes any more.</p>
              <DraftCard session={session} id={one.id} placed={false} shift={0} onDone={onLeave} />
            </div>
          ))}
        </section>
      )}
      <form
        aria-label="Review"
        className="flex flex-wrap items-center gap-2 border-t border-line bg-raised px-3 py-2 pb-[max(8px,env(safe-area-inset-bottom))]"
        onSubmit={(event) => {
          event.preventDefault();
          void send();
        }}
      >
        <span className="text-sm font-medium whitespace-nowrap tabular-nums" role="status">{plural(written.length, "comment")}</span>
        <IconButton icon="down" label="Show the next comment" size={14} disabled={written.length === lost.length} onClick={next} />
        <input ref={field} value={text} onKeyDown={(event) => event.key === "Escape" && !event.nativeEvent.isComposing && (event.preventDefault(), onLeave())} onChange={(event) => write(event.target.value)} aria-label="Message before the comments" placeholder="Add a message" className="min-h-(--target) min-w-0 flex-1 basis-32 rounded-md border border-line bg-ground px-2 text-sm" />
        <Button type="submit" tone="primary" icon={busy ? "queue" : "send"} disabled={sending || ended} title={ended ? "This session has ended" : `Send ${plural(written.length, "comment")} to ${agent}`}>{busy ? "Queue" : "Send"}</Button>
      </form>
    </>
  );
}
