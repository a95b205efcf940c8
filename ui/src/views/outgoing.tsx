// A message being sent: its text, and what to do if the server refused it. Above: conversation.tsx. Below: the outbox.

import { Button } from "../parts/button";
import { discard, tryAgain, type Outgoing } from "../state/outbox";

export function OutgoingRow({ message }: { message: Outgoing }) {
  return (
    <article aria-label="Message being sent" className="mt-6 max-w-[92ch] rounded-lg border border-line bg-raised px-3 py-2">
      <header className="text-xs text-quiet">
        <span className="font-semibold text-text">You</span> {message.refused ? "" : "sending"}
      </header>
      <div className="said max-w-[76ch] break-words whitespace-pre-wrap">{message.text}</div>
      {message.refused && (
        <div className="mt-2 flex flex-wrap items-center gap-2 text-sm">
          <span className="text-red">{message.refused}</span>
          <Button onClick={() => tryAgain(message.message_id)}>Send again</Button>
          <Button tone="quiet" onClick={() => discard(message.message_id)}>Discard</Button>
        </div>
      )}
    </article>
  );
}
