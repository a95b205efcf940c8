// Notifies the user: the tab's title and icon, and notifications when a turn ends or a prompt is waiting. Above: the
// app starts it. Below: the overview; notes.ts, which decides what to show; and the browser's notifications, which on
// phones need a service worker (public/telling.js). All tabs use the same tag, so several tabs produce one
// notification. They also tell each other which session the user is looking at.

import { useEffect } from "react";
import { keep, kept } from "../state/kept";
import { onHappening, overviewNow, titleOf, useOverview } from "../state/sessions";
import { at, get } from "../wire/api";
import type { Event, Session } from "../wire/types";
import { Notes, type Note, type Seen } from "./notes";
import { go, nameOf, pathOf, routeNow, useRoute } from "./router";

export function useTitleAndIcon(): void {
  const { sessions, link } = useOverview();
  const route = useRoute();
  useEffect(() => look(), [route]);
  const waiting = sessions.filter((session) => session.pending_prompts > 0).length;
  const working = sessions.filter((session) => session.state === "processing" && !session.pending_prompts).length;
  const here = "id" in route ? sessions.find((session) => session.id === route.id) : undefined;
  useEffect(() => {
    const name = here ? titleOf(here) : nameOf(route);
    document.title = waiting ? `(${waiting}) ${name}` : working ? `• ${name}` : name;
    const icon = link === "lost" ? "icon-lost" : waiting ? "icon-waiting" : working ? "icon-working" : "icon";
    document.getElementById("favicon")?.setAttribute("href", `/page/${icon}.svg`);
  }, [waiting, working, here?.title, route, link]);
}

export type Telling = "off" | "on" | "refused" | "impossible";

/** On phones only service workers can show notifications; the constructor throws. */
let byWorker = typeof navigator !== "undefined" && /Android/i.test(navigator.userAgent);

export function telling(): Telling {
  if (typeof Notification === "undefined" || (byWorker && !navigator.serviceWorker)) return "impossible";
  if (Notification.permission === "denied") return "refused";
  return Notification.permission === "granted" && kept("notify") === "yes" ? "on" : "off";
}

export async function setTelling(on: boolean): Promise<Telling> {
  if (on && telling() !== "impossible") {
    if ((await Notification.requestPermission()) === "granted") keep("notify", "yes");
  } else keep("notify", null);
  return telling();
}

/** Close notifications about what the user sees now. */
let look: () => void = () => {};

/** Whether the user is looking at this session in this tab. */
function looking(session: string): boolean {
  const route = routeNow();
  return document.visibilityState === "visible" && document.hasFocus() && "id" in route && route.id === session;
}

export function startTelling(): void {
  const tabs = typeof BroadcastChannel === "function" ? new BroadcastChannel("perdure seen") : null;
  const tell = (seen: Seen) => tabs?.postMessage(seen);
  const notes = new Notes({ looking, show, tell });
  if (tabs) tabs.onmessage = (message: MessageEvent<Seen>) => notes.seen(message.data);
  onHappening((event) => notes.hear(event));
  look = () => {
    const route = routeNow();
    if (!("id" in route) || !looking(route.id)) return;
    notes.seen({ session: route.id });
    tell({ session: route.id });
  };
  // The user clicked a notification shown by the service worker.
  navigator.serviceWorker?.addEventListener("message", (message: MessageEvent<{ path: string }>) => go(message.data.path));
  addEventListener("focus", () => look());
  document.addEventListener("visibilitychange", () => look());
}

async function show(event: Event, words: string, key: string): Promise<Note | null> {
  if (telling() !== "on") return null;
  // A session created a moment ago is not in the list yet.
  const known = overviewNow().sessions.find((one) => one.id === event.session_id);
  const session = known ?? (await get<Session>(at(event.session_id)).catch(() => null));
  const title = session ? titleOf(session) : "Perdure";
  const path = pathOf(event.session_id);
  const options = { body: words, tag: `perdure ${key}`, icon: "/page/icon.svg", data: path };
  try {
    if (!byWorker) return ofTab(title, options, path);
  } catch {
    byWorker = true;
  }
  return ofWorker(title, options);
}

function ofTab(title: string, options: NotificationOptions, path: string): Note {
  const note = new Notification(title, options);
  note.onclick = () => {
    focus();
    go(path);
    note.close();
  };
  return note;
}

async function ofWorker(title: string, options: NotificationOptions): Promise<Note | null> {
  if (telling() !== "on") return null;
  const registration = await navigator.serviceWorker.register("/page/telling.js");
  for (let starting; !registration.active && (starting = registration.installing ?? registration.waiting); ) {
    await new Promise((resolve) => starting!.addEventListener("statechange", resolve, { once: true }));
  }
  await registration.showNotification(title, options);
  return { close: () => void registration.getNotifications({ tag: options.tag }).then((notes) => notes.forEach((note) => note.close())) };
}
