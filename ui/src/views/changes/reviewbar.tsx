// The comments that are not sent yet: how many, and sending them as one message. Above: the view of changes. Below: the
// drafts.

import { useState } from "react";
import { Button, IconButton } from "../../parts/button";
import { say } from "../../shell/toast";
import { refreshChanges } from "../../state/changes";
import { keep, kept } from "../../state/kept";
import { isWritten, sendDrafts, type Draft } from "../../state/review";
import { plural } from "../../text/words";
import { sentence } from "../../wire/api";

interface Props {
  session: string;
  drafts: Draft[];
  agent: string;
  busy: boolean;
  ended: boolean;
  onShow: (draft: Draft) => void;
  onSent: () => void;
}

export function ReviewBar({ session, drafts, agent, busy, ended, onShow, onSent }: Props) {
  const key = "reviewtext." + session;
  const [text, setText] = useState(() => kept(key) ?? "");
  const [sending, setSending] = useState(false);
  const [at, setAt] = useState(-1);
  const written = drafts.filter(isWritten);
  if (!written.length) return null;
  const write = (value: string) => (keep(key, value), setText(value));
  const next = () => {
    const index = (at + 1) % written.length;
    setAt(index);
    onShow(written[index]!);
  };
  const send = async () => {
    setSending(true);
    try {
      await sendDrafts(session, text.trim(), agent, "queue");
      say(`${plural(written.length, "comment")} ${busy ? "queued. The agent gets them after this turn" : "sent"}.`);
      write("");
      refreshChanges(session);
      onSent();
    } catch (error) {
      say(`${sentence(error)} Your comments are kept.`, true);
    } finally {
      setSending(false);
    }
  };
  return (
    <form
      aria-label="Review"
      className="flex flex-wrap items-center gap-2 border-t border-line bg-raised px-3 py-2 pb-[max(8px,env(safe-area-inset-bottom))]"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <span className="text-sm font-medium whitespace-nowrap tabular-nums" role="status">{plural(written.length, "comment")}</span>
      <IconButton icon="down" label="Show the next comment" size={14} onClick={next} />
      <input value={text} onChange={(event) => write(event.target.value)} aria-label="Message before the comments" placeholder="Add a message" className="min-h-(--target) min-w-0 flex-1 basis-32 rounded-md border border-line bg-ground px-2 text-sm" />
      <Button type="submit" tone="primary" icon={busy ? "queue" : "send"} disabled={sending || ended} title={ended ? "This session has ended" : `Send ${plural(written.length, "comment")} to ${agent}`}>{busy ? "Queue" : "Send"}</Button>
    </form>
  );
}
