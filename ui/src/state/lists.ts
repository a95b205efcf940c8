// Agents, projects and the catalogue: fetched when first looked at, and again when something changed them. Above: views.
// Below: the API.

import { useEffect, useSyncExternalStore } from "react";
import { get, sentence } from "../wire/api";
import type { Agent, KnownAgent, Project } from "../wire/types";

export interface Fetched<T> {
  value: T;
  loaded: boolean;
  error: string;
  refresh: () => Promise<void>;
}

function fetched<T>(path: string, empty: T) {
  let asked = false;
  const listeners = new Set<() => void>();
  const refresh = async () => {
    asked = true;
    try {
      state = { ...state, value: await get<T>(path), loaded: true, error: "" };
    } catch (error) {
      state = { ...state, error: sentence(error) };
      asked = false;
    }
    for (const listener of listeners) listener();
  };
  let state: Fetched<T> = { value: empty, loaded: false, error: "", refresh };
  const subscribe = (listener: () => void) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  };
  return () => {
    useEffect(() => {
      if (!asked) void refresh();
    }, []);
    return useSyncExternalStore(subscribe, () => state);
  };
}

export const useAgents = fetched<{ agents: Agent[]; default: string }>("/api/agents", { agents: [], default: "" });
export const useProjects = fetched<{ projects: Project[] }>("/api/projects", { projects: [] });
export const useCatalogue = fetched<{ catalogue: KnownAgent[] }>("/api/catalogue", { catalogue: [] });
