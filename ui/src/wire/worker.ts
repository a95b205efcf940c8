// The shared worker: one feed for all tabs of a browser. Above: tabs, each at a port (link.ts). Below: the feed.

import { Feed, type Tab, type ToFeed } from "./feed";

const feed = new Feed();

(self as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = (event) => {
  const port = event.ports[0]!;
  const tab: Tab = { send: (message) => port.postMessage(message), close: () => port.close() };
  feed.join(tab);
  port.onmessage = (message: MessageEvent<ToFeed>) => feed.hear(tab, message.data);
};
