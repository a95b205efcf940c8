// Files that go with a message: pasted, dropped or chosen, read in the browser and sent inside of the message; or of one
// that is taken back, had from the server. Above: the composer and the queue. Below: the browser's file reader.

import { IconButton } from "../parts/button";
import { say } from "../shell/toast";
import { bytes } from "../text/words";
import { at } from "../wire/api";
import { ask } from "../wire/ask";
import type { Attachment } from "../wire/types";

/** What the server takes by default, all together. */
const MOST_BYTES = 10 * 1024 * 1024;

export async function readFiles(files: Iterable<File>): Promise<Attachment[]> {
  const read: Attachment[] = [];
  for (const file of files) {
    if (file.size > MOST_BYTES) {
      say(`${file.name} has ${bytes(file.size)}; at most ${bytes(MOST_BYTES)} can be attached. Put it into the working directory instead.`, true);
      continue;
    }
    read.push({ name: file.name || "pasted", mime_type: file.type || "application/octet-stream", data: await base64(file) });
  }
  return read;
}

/** The files of a message that the server has, as they were when it was sent. Those that are only named stay so; those that
 * it no longer has are left out. */
export async function filesBack(session: string, attachments: Attachment[]): Promise<Attachment[]> {
  const missing: string[] = [];
  const back = async ({ name, mime_type, file, path, uri }: Attachment): Promise<Attachment[]> => {
    if (!file) return [{ name, mime_type, ...(path ? { path } : {}), ...(uri ? { uri } : {}) }];
    const answer = await ask(at(session, `/attachments/${encodeURIComponent(file)}`)).catch(() => null);
    if (answer?.status === 404) {
      missing.push(name);
      return [];
    }
    if (!answer?.ok) throw new Error(`${name} can't be had from the server, so nothing was taken back.`);
    return [{ name, mime_type, data: await base64(await answer.blob()) }];
  };
  const files = await Promise.all(attachments.map(back));
  if (missing.length) say(`No longer on the server, and so left out: ${missing.join(", ")}.`, true);
  return files.flat();
}

function base64(file: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).split(",", 2)[1] ?? "");
    reader.onerror = () => reject(reader.error ?? new Error("The file can't be read."));
    reader.readAsDataURL(file);
  });
}

export function AttachmentList({ attachments, onRemove }: { attachments: Attachment[]; onRemove: (index: number) => void }) {
  if (!attachments.length) return null;
  return (
    <ul aria-label="Attachments" className="flex flex-wrap gap-2 px-3 pt-2">
      {attachments.map((attachment, index) => (
        <li key={index} className="flex items-center gap-1 rounded-md border border-line pl-2 text-xs">
          {attachment.data && attachment.mime_type.startsWith("image/") && <img src={`data:${attachment.mime_type};base64,${attachment.data}`} alt="" className="size-6 rounded object-cover" />}
          <span className="max-w-40 truncate">{attachment.name}</span>
          <IconButton icon="cross" label={`Remove ${attachment.name}`} size={12} onClick={() => onRemove(index)} className="size-6" />
        </li>
      ))}
    </ul>
  );
}
