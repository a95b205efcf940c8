// Nodes as the server says them, and where they are. Above: the state and the view of nodes. Below: nothing. Fields that the
// page does not read are left out.

export interface Node {
  id: string;
  name: string;
  url: string | null;
  version: string | null;
  /** Silent: nobody has heard of it for longer than its own limit. */
  state: "alive" | "silent" | "draining" | "dead";
  /** A person wants it to start nothing new, whether it is alive or not. */
  draining: boolean;
  /** The node that this page talks to. */
  this: boolean;
  started_at: string | null;
  /** For how long no new heartbeat was seen; null for the node that answers. */
  last_seen_s: number | null;
  sessions: number;
  running: number;
  /** 0: no limit. Null: not known. */
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
