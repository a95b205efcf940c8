// The shared worker: one feed for all tabs of a browser. Above: tabs, each at a port (link.ts). Below: the feed. It begins
// with the first word of a tab, which brings the page's key.

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
