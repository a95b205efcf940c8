// Messages that wait for the running turn to end: taken back, or put back into the composer to be changed. Above: the
// session view. Below: the API.

import { useEffect } from "react";
import { IconButton } from "../parts/button";
import { Icon } from "../parts/icons";
import { attempt } from "../shell/toast";
import { useOutbox } from "../state/outbox";
import { plural } from "../text/words";
import { at, remove } from "../wire/api";
import type { Attachment, Queued } from "../wire/types";
import { rememberedFiles, rememberFiles } from "./drafts";

export function QueueList({ session, queue, onEdit }: { session: string; queue: Queued[]; onEdit: (message: Queued, attachments: Attachment[]) => void }) {
  const outbox = useOutbox();
  useEffect(() => {
    for (const message of outbox) if (message.session === session && message.attachments?.length) rememberFiles(message.message_id, message.attachments);
  }, [outbox, session]);
  if (!queue.length) return null;
  const takeBack = (message: Queued) => attempt(remove(at(session, `/queue/${encodeURIComponent(message.message_id)}`)).then(() => true));
  return (
    <ul aria-label={`Queue: ${plural(queue.length, "message")}`} className="divide-y divide-line rounded-lg border border-line bg-sunken text-sm">
      {queue.map((message) => (
        <li key={message.message_id} className="flex items-center gap-2 py-0.5 pr-1 pl-3">
          <Icon name="queue" size={12} className="text-quiet" />
          <span className="min-w-0 flex-1 truncate">{message.text}</span>
          <IconButton icon="pencil" label="Edit: take it back into the composer" size={14} onClick={() => void takeBack(message).then((done) => done && onEdit(message, rememberedFiles(message.message_id)))} />
          <IconButton icon="cross" label="Remove from the queue" size={14} onClick={() => void takeBack(message)} />
        </li>
      ))}
    </ul>
  );
}
