// The list of nodes. Usually there is one, and then no view mentions nodes. Above: the sidebar, the app, the session
// header and the nodes view. Below: the API. Fetched at startup, when a view needs it, and regularly while there are
// several.

import { useEffect, useState } from "react";
import { at, get } from "../wire/api";
import type { Node } from "../wire/nodes";
import type { Session } from "../wire/types";
import { fetched } from "./lists";
import { useOverview } from "./sessions";

const LOOK_MS = 60_000;

export const useNodes = fetched<{ nodes: Node[] }>("/api/nodes", { nodes: [] });
export const refreshNodes = useNodes.refresh;

/** Whether there are several nodes, so that views mention them. */
export const useSeveralNodes = () => useNodes().value.nodes.length > 1;

setInterval(() => {
  if (document.visibilityState === "visible" && useNodes.now().value.nodes.length > 1) void refreshNodes();
}, LOOK_MS);

/** The name of the node that owns a session; empty if there is only one node. Old sessions are not in the session list,
 * so their node is fetched. */
export function useNodeName(id: string): string {
  const several = useSeveralNodes();
  const { sessions, loaded } = useOverview();
  const listed = sessions.find((session) => session.id === id);
  const [asked, setAsked] = useState({ id: "", name: "" });
  const unlisted = several && loaded && !listed;
  useEffect(() => {
    if (!unlisted) return;
    let current = true;
    void get<Session>(at(id, "?limit=1")).then((session) => current && setAsked({ id, name: session.node_name ?? "" }), () => undefined);
    return () => {
      current = false;
    };
  }, [id, unlisted]);
  if (!several) return "";
  return listed ? (listed.node_name ?? "") : asked.id === id ? asked.name : "";
}
