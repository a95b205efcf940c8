// Nodes: wire types and paths. Above: the state and the view of nodes. Below: nothing. Fields the page does not read
// are left out.

export interface Node {
  id: string;
  name: string;
  url: string | null;
  version: string | null;
  /** Silent: no heartbeat for longer than the node's own limit. */
  state: "alive" | "silent" | "draining" | "dead";
  /** Someone asked it to start no new turns, whether it is alive or not. */
  draining: boolean;
  /** The node that this page talks to. */
  this: boolean;
  started_at: string | null;
  /** Seconds since the last heartbeat; null for the node that sent this response. */
  last_seen_s: number | null;
  sessions: number;
  running: number;
  /** 0: no limit. Null: unknown. */
  slots: number | null;
  labels: string[];
  workdirs: "local" | "shared";
}

export interface Removed {
  id: string;
  name: string;
  sessions: number;
}

export const atNode = (id: string, rest = "") => `/api/nodes/${encodeURIComponent(id)}${rest}`;
