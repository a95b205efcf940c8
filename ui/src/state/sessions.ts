// The session list and the connection state, available to every view. Above: the sidebar, the inbox, the tab title.
// Below: the link. It also reports each new event once (a turn ended, a prompt is waiting), for notifications.

import { useSyncExternalStore } from "react";
import type { LinkState } from "../wire/feed";
import { listen } from "../wire/link";
import type { Event, Session } from "../wire/types";

export interface Overview {
  sessions: Session[];
  loaded: boolean;
  more: boolean;
  link: LinkState;
  lastEventAt: number;
}

let overview: Overview = { sessions: [], loaded: false, more: false, link: "connecting", lastEventAt: Date.now() };
const listeners = new Set<() => void>();
const happenings = new Set<(event: Event) => void>();

function set(changes: Partial<Overview>): void {
  overview = { ...overview, ...changes };
  for (const listener of listeners) listener();
}

listen((message) => {
  if (message.kind === "sessions") set({ sessions: message.sessions, loaded: true, more: message.cursor !== null });
  else if (message.kind === "link") set({ link: message.state, lastEventAt: message.at });
  else if (message.kind === "changes") for (const event of message.events) for (const happening of happenings) happening(event);
});

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export const useOverview = () => useSyncExternalStore(subscribe, () => overview);
export const overviewNow = () => overview;

export function onHappening(listener: (event: Event) => void): () => void {
  happenings.add(listener);
  return () => happenings.delete(listener);
}

export * from "./attention";
