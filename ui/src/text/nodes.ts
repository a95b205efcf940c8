// Texts about nodes: their state, their load, and what happens to their sessions. Above: the nodes view. Below:
// words.ts.

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

/** When a silent or dead node was last seen; empty for the others. */
export function lastSeen(node: Node): string {
  if (node.last_seen_s === null || (node.state !== "silent" && node.state !== "dead")) return "";
  return `last seen ${duration(Math.max(1, Math.round(node.last_seen_s)) * 1000)} ago`;
}

/** Sessions, and slots in use or running turns. What a silent or dead node runs is unknown. */
export function loadWords(node: Node): string {
  if (isGone(node)) return plural(node.sessions, "session");
  const turns = node.slots ? `${count(node.running)} of ${plural(node.slots, "slot")} in use` : `${plural(node.running, "turn")} running`;
  return `${plural(node.sessions, "session")} · ${turns}`;
}

export const isGone = (node: Node) => node.state === "silent" || node.state === "dead";

/** Sessions waiting for a silent or dead node; empty if there are none, or if other nodes can take them over. */
export function waitingWords(node: Node): string {
  if (!isGone(node) || !node.sessions || node.workdirs === "shared") return "";
  return `${plural(node.sessions, "session waits", "sessions wait")} for this node, which has ${node.sessions === 1 ? "its working directory" : "their working directories"}. Restart the node, or move the ${node.sessions === 1 ? "session" : "sessions"}:`;
}

/** The command to type. Names that a shell would not take as one word are replaced by the id. */
export const moveCommand = (node: Node) => `perdure nodes move --from ${/^[\w.:@-]+$/.test(node.name) ? node.name : node.id} --to NODE`;

export function drainWords(node: Node): string {
  const running = node.running ? `${plural(node.running, "running turn finishes", "running turns finish")} first` : "No turn is running now";
  return `The node starts no new turns. ${running}. New messages run on other nodes if possible, and otherwise wait. You can resume the node at any time.`;
}

export function removeWords(node: Node): string {
  const left = node.sessions ? `Its ${plural(node.sessions, "session has", "sessions have")} no owner until another node takes ${node.sessions === 1 ? "it" : "them"} over.` : "It has no sessions.";
  const files = node.workdirs === "local" && node.sessions ? " Working directories on that machine are not moved." : "";
  return `The node is removed from the list. ${left}${files} If its server is still running, it stops. This can't be undone.`;
}
