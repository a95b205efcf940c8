// Queued messages, waiting for the running turn to end. They can be removed, or moved back to the composer. Above: the
// session view. Below: the API.

import { IconButton } from "../parts/button";
import { Icon } from "../parts/icons";
import { attempt } from "../shell/toast";
import { plural } from "../text/words";
import { at, remove } from "../wire/api";
import type { Queued } from "../wire/types";
import { filesBack } from "./attachments";
import { takeBack } from "./drafts";

export function QueueList({ session, queue, onEdit }: { session: string; queue: Queued[]; onEdit: (message: Queued) => void }) {
  if (!queue.length) return null;
  const unqueue = (message: Queued) => remove(at(session, `/queue/${encodeURIComponent(message.message_id)}`));
  // The server deletes the files with the message, so download them first.
  const edit = async (message: Queued) => {
    const files = await filesBack(session, message.attachments ?? []);
    await takeBack("draft." + session, message.text, files, () => unqueue(message));
    onEdit(message);
  };
  return (
    <ul aria-label={`Queue: ${plural(queue.length, "message")}`} className="divide-y divide-line rounded-lg border border-line bg-sunken text-sm">
      {queue.map((message) => (
        <li key={message.message_id} className="flex items-center gap-2 py-0.5 pr-1 pl-3">
          <Icon name="queue" size={12} className="text-quiet" />
          <span className="min-w-0 flex-1 truncate">{message.text}</span>
          {!!message.attachments?.length && <span className="flex shrink-0 items-center gap-1 text-xs text-quiet"><Icon name="clip" size={12} />{plural(message.attachments.length, "file")}</span>}
          <IconButton icon="pencil" label="Edit: move back to the composer" size={14} onClick={() => void attempt(edit(message))} />
          <IconButton icon="cross" label="Remove from the queue" size={14} onClick={() => void attempt(unqueue(message))} />
        </li>
      ))}
    </ul>
  );
}
