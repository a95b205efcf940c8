// Attachments. Pasted, dropped or chosen files are read in the browser and sent within the message. When a message is
// undone, its files are downloaded from the server. Above: the composer and the queue. Below: the browser's file
// reader.

import { IconButton } from "../parts/button";
import { say } from "../shell/toast";
import { bytes } from "../text/words";
import { at } from "../wire/api";
import { ask } from "../wire/ask";
import type { Attachment } from "../wire/types";

/** The server's default limit for all attachments of a message. */
const MOST_BYTES = 10 * 1024 * 1024;

export async function readFiles(files: Iterable<File>): Promise<Attachment[]> {
  const read: Attachment[] = [];
  for (const file of files) {
    if (file.size > MOST_BYTES) {
      say(`${file.name} is ${bytes(file.size)}; the limit is ${bytes(MOST_BYTES)}. Put it in the working directory instead.`, true);
      continue;
    }
    read.push({ name: file.name || "pasted", mime_type: file.type || "application/octet-stream", data: await base64(file) });
  }
  return read;
}

/** Download a message's files as they were sent. Files that are only referenced stay references. Files the server no
 * longer has are left out. */
export async function filesBack(session: string, attachments: Attachment[]): Promise<Attachment[]> {
  const missing: string[] = [];
  const back = async ({ name, mime_type, file, path, uri }: Attachment): Promise<Attachment[]> => {
    if (!file) return [{ name, mime_type, ...(path ? { path } : {}), ...(uri ? { uri } : {}) }];
    const answer = await ask(at(session, `/attachments/${encodeURIComponent(file)}`)).catch(() => null);
    if (answer?.status === 404) {
      missing.push(name);
      return [];
    }
    if (!answer?.ok) throw new Error(`Can't download ${name} from the server, so nothing was changed.`);
    return [{ name, mime_type, data: await base64(await answer.blob()) }];
  };
  const files = await Promise.all(attachments.map(back));
  if (missing.length) say(`Skipped attachments that are no longer on the server: ${missing.join(", ")}.`, true);
  return files.flat();
}

function base64(file: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).split(",", 2)[1] ?? "");
    reader.onerror = () => reject(reader.error ?? new Error("Can't read the file."));
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
