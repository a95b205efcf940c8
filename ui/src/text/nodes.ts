// Nodes in words: their state, what they run, and what becomes of their sessions. Above: the view of nodes. Below: plain
// words.

import type { Node } from "../wire/nodes";
import { count, duration, plural } from "./words";

export type NodeTone = "good" | "working" | "waiting" | "bad";

const STATES: Record<Node["state"], { word: string; tone: NodeTone }> = {
  alive: { word: "Alive", tone: "good" },
  draining: { word: "Draining", tone: "working" },
  silent: { word: "Silent", tone: "waiting" },
  dead: { word: "Dead", tone: "bad" },
};

export const stateOf = (node: Node) => STATES[node.state];

/** Since when nobody has heard of it; empty for one that is heard all the time. */
export function lastSeen(node: Node): string {
  if (node.last_seen_s === null || (node.state !== "silent" && node.state !== "dead")) return "";
  return `last seen ${duration(Math.max(1, Math.round(node.last_seen_s)) * 1000)} ago`;
}

/** What a node runs that nobody hears of is not known. */
export function loadWords(node: Node): string {
  if (isGone(node)) return plural(node.sessions, "session");
  const turns = node.slots ? `${count(node.running)} of ${plural(node.slots, "turn")} running` : `${plural(node.running, "turn")} running`;
  return `${plural(node.sessions, "session")} · ${turns}`;
}

export const isGone = (node: Node) => node.state === "silent" || node.state === "dead";

/** What waits for a node that is gone; empty if nothing does, or others take it over. */
export function waitingWords(node: Node): string {
  if (!isGone(node) || !node.sessions || node.workdirs === "shared") return "";
  return `${plural(node.sessions, "session waits", "sessions wait")} for this node, which has the working ${node.sessions === 1 ? "directory" : "directories"}. Start it again, or move ${node.sessions === 1 ? "it" : "them"}:`;
}

/** As it is typed: a name is whatever somebody chose. */
export const moveCommand = (node: Node) => `perdure nodes move --from ${/^[\w.:@-]+$/.test(node.name) ? node.name : node.id} --to NODE`;

export function drainWords(node: Node): string {
  const running = node.running ? `${plural(node.running, "turn that runs", "turns that run")} there ${node.running === 1 ? "goes" : "go"} on to ${node.running === 1 ? "its" : "their"} end` : "No turn runs there now";
  return `It starts no new turns. ${running}. New messages begin on other nodes where these can run them, and otherwise wait. You can resume it at any time.`;
}

export function removeWords(node: Node): string {
  const left = node.sessions ? `Its ${plural(node.sessions, "session has", "sessions have")} no node until another one takes ${node.sessions === 1 ? "it" : "them"}.` : "It has no sessions.";
  const files = node.workdirs === "local" && node.sessions ? " Working directories on that machine are not moved." : "";
  return `The node is forgotten. ${left}${files} If its server still runs somewhere, it stops. This can't be undone.`;
}
