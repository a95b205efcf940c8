// An image before and after a change. Above: a file's section. Below: the contents, as the server has them. They are
// shown as images only, so scripts in them never run.

import { useEffect, useState } from "react";
import { sentence } from "../../wire/api";
import { bytes } from "../../text/words";
import { getContent, type ChangedFile } from "../../wire/changes";

const TYPES: Record<string, string> = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", avif: "image/avif", bmp: "image/bmp", ico: "image/x-icon" };

export function Images({ session, turn, file }: { session: string; turn: number | null; file: ChangedFile }) {
  const before = file.status !== "added";
  const after = file.status !== "deleted";
  return (
    <div className={`grid gap-3 p-3 ${before && after ? "grid-cols-2" : ""}`}>
      {before && <Picture session={session} turn={turn} path={file.old_path ?? file.path} side="before" id={file.old_id} size={file.old_size} />}
      {after && <Picture session={session} turn={turn} path={file.path} side="after" id={file.new_id} size={file.new_size} />}
    </div>
  );
}

function Picture({ session, turn, path, side, id, size }: { session: string; turn: number | null; path: string; side: "before" | "after"; id: string | null; size: number | null }) {
  const [url, setUrl] = useState<string | null>(null);
  const [trouble, setTrouble] = useState("");
  const [pixels, setPixels] = useState("");
  useEffect(() => {
    const abort = new AbortController();
    let made = "";
    getContent(session, turn, path, side, abort.signal).then(
      (blob) => {
        if (abort.signal.aborted) return;
        made = URL.createObjectURL(new Blob([blob], { type: TYPES[path.slice(path.lastIndexOf(".") + 1).toLowerCase()] ?? "application/octet-stream" }));
        setUrl(made);
      },
      (error) => !abort.signal.aborted && setTrouble(sentence(error)),
    );
    return () => {
      abort.abort();
      if (made) URL.revokeObjectURL(made);
    };
  }, [session, turn, path, side, id]);
  const word = side === "before" ? "Before" : "After";
  return (
    <figure className="flex min-w-0 flex-col items-center gap-1">
      <div className={`flex min-h-24 w-full items-center justify-center rounded-md border bg-[repeating-conic-gradient(var(--sunken)_0_25%,transparent_0_50%)] bg-size-[16px_16px] p-2 ${side === "before" ? "border-red" : "border-green"}`}>
        {url ? (
          <img src={url} alt={`${path}, ${word.toLowerCase()} the change`} className="max-h-80 max-w-full object-contain" onLoad={(event) => setPixels(`${event.currentTarget.naturalWidth} × ${event.currentTarget.naturalHeight} px`)} onError={() => (setUrl(null), setTrouble("The browser can't show this image."))} />
        ) : (
          <span className="p-2 text-xs text-quiet">{trouble || "Loading"}</span>
        )}
      </div>
      <figcaption className="text-xs text-quiet tabular-nums">{[word, pixels, size === null ? "" : bytes(size)].filter(Boolean).join(" · ")}</figcaption>
    </figure>
  );
}
