// A fake server for wire tests: answers fetches, and records the streams that were opened.

import { vi } from "vitest";

export interface Opened {
  url: string;
  position: string;
  closed: boolean;
  send(event: object, id?: string): void;
  /** Ends the stream cleanly. */
  end(): void;
}

export interface Server {
  streams: Opened[];
  requests: string[];
  /** The response to other requests and streams; undefined: the usual one. */
  answer: (url: string, options?: RequestInit) => Response | Promise<Response> | undefined;
  open(part: string): Opened[];
}

export function serve(): Server {
  const server: Server = { streams: [], requests: [], answer: () => undefined, open: (part) => server.streams.filter((one) => one.url.includes(part) && !one.closed) };
  vi.stubGlobal("fetch", async (url: string, options: RequestInit = {}) => {
    server.requests.push(url);
    options.signal?.throwIfAborted();
    const given = server.answer(url, options);
    if (given) {
      const gone = new Promise<never>((_, refuse) => options.signal?.addEventListener("abort", () => refuse(new Error("aborted"))));
      return Promise.race([given, gone]);
    }
    if (!url.includes("/api/events")) return new Response(JSON.stringify({ sessions: [], next_cursor: null }));
    return stream(server, url, options);
  });
  return server;
}

function stream(server: Server, url: string, options: RequestInit): Response {
  let out: ReadableStreamDefaultController<Uint8Array>;
  const body = new ReadableStream<Uint8Array>({ start: (controller) => void (out = controller) });
  const opened: Opened = {
    url,
    position: (options.headers as Record<string, string>)?.["last-event-id"] ?? "",
    closed: false,
    send: (event, id = "1") => out.enqueue(new TextEncoder().encode(`id: ${id}\nevent: x\ndata: ${JSON.stringify(event)}\n\n`)),
    end: () => {
      opened.closed = true;
      out.close();
    },
  };
  options.signal?.addEventListener("abort", () => {
    if (opened.closed) return;
    opened.closed = true;
    out.error(new Error("aborted"));
  });
  server.streams.push(opened);
  return new Response(body);
}
