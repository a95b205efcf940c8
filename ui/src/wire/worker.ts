// The shared worker: one feed for all tabs of a browser. Above: tabs, each with a port (link.ts). Below: the feed. The
// feed starts with the first message from a tab, which contains the page key.

import { learnPageKey } from "./ask";
import { Feed, type Tab, type ToFeed } from "./feed";

let feed: Feed | null = null;

(self as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = (event) => {
  const port = event.ports[0]!;
  const tab: Tab = { send: (message) => port.postMessage(message), close: () => port.close() };
  port.onmessage = (message: MessageEvent<ToFeed & { key: string | null }>) => {
    const isNew = learnPageKey(message.data.key);
    feed ??= new Feed();
    feed.hear(tab, message.data);
    if (isNew) feed.nudge();
  };
};
