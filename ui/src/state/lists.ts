// Agents, projects and the catalogue: fetched on first use, and again after a change. Above: views. Below: the API.

import { useEffect, useSyncExternalStore } from "react";
import { get, sentence } from "../wire/api";
import type { Agent, KnownAgent, Project } from "../wire/types";

export interface Fetched<T> {
  value: T;
  loaded: boolean;
  error: string;
  refresh: () => Promise<void>;
}

export function fetched<T>(path: string, empty: T) {
  let asked = false;
  let newest = 0;
  const listeners = new Set<() => void>();
  const refresh = async () => {
    asked = true;
    const mine = ++newest;
    const found = await get<T>(path).then((value) => ({ value, loaded: true, error: "" }), (error) => ({ error: sentence(error) }));
    // A later request is under way; its answer is newer.
    if (mine !== newest) return;
    state = { ...state, ...found };
    asked = !state.error;
    for (const listener of listeners) listener();
  };
  let state: Fetched<T> = { value: empty, loaded: false, error: "", refresh };
  const subscribe = (listener: () => void) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  };
  const use = () => {
    useEffect(() => {
      if (!asked) void refresh();
    }, []);
    return useSyncExternalStore(subscribe, () => state);
  };
  return Object.assign(use, { refresh, now: () => state });
}

export const useAgents = fetched<{ agents: Agent[]; default: string }>("/api/agents", { agents: [], default: "" });
export const useProjects = fetched<{ projects: Project[] }>("/api/projects", { projects: [] });
export const useCatalogue = fetched<{ catalogue: KnownAgent[] }>("/api/catalogue", { catalogue: [] });
