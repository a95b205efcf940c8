// Being told: the tab's title and icon, and notifications when a turn ends or a prompt waits. Above: the app starts it.
// Below: the overview and the browser's notifications. Tabs use the same tag, so that many tabs make one notification.

import { useEffect } from "react";
import { keep, kept } from "../state/kept";
import { onHappening, overviewNow, titleOf, useOverview } from "../state/sessions";
import { at, get } from "../wire/api";
import type { Event, Session } from "../wire/types";
import { go, nameOf, pathOf, routeNow, useRoute } from "./router";

export function useTitleAndIcon(): void {
  const { sessions, link } = useOverview();
  const route = useRoute();
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

export function telling(): Telling {
  if (typeof Notification === "undefined") return "impossible";
  if (Notification.permission === "denied") return "refused";
  return Notification.permission === "granted" && kept("notify") === "yes" ? "on" : "off";
}

export async function setTelling(on: boolean): Promise<Telling> {
  if (on && typeof Notification !== "undefined") {
    if ((await Notification.requestPermission()) === "granted") keep("notify", "yes");
  } else keep("notify", null);
  return telling();
}

export function startTelling(): void {
  onHappening((event) => {
    if (telling() !== "on") return;
    const route = routeNow();
    const looking = document.visibilityState === "visible" && document.hasFocus() && "id" in route && route.id === event.session_id;
    const words = looking ? null : wordsOf(event);
    if (!words) return;
    void notify(event, words);
  });
}

async function notify(event: Event, words: string): Promise<void> {
  // A session that was made a moment ago is not in the list yet.
  const known = overviewNow().sessions.find((one) => one.id === event.session_id);
  const session = known ?? (await get<Session>(at(event.session_id)).catch(() => null));
  const note = new Notification(session ? titleOf(session) : "Perdure", { body: words, tag: `perdure ${event.session_id} ${event.type}`, icon: "/page/icon.svg" });
  note.onclick = () => {
    focus();
    go(pathOf(event.session_id));
    note.close();
  };
}

function wordsOf(event: Event): string | null {
  if (event.type === "pending_prompt") return `Waiting for you: ${event.title || event.questions?.[0]?.question || "a prompt"}`;
  if (event.type !== "turn_end" || event.stop_reason === "cancelled") return null;
  return event.stop_reason === "end_turn" ? "The turn is done." : "The turn failed.";
}
