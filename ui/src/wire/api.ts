// Requests to the server. Above: stores and views. Below: ask.ts. An error response becomes a Problem with the server's
// message, which says what to do. If the server is unreachable, the error is Unreachable.

import { ask } from "./ask";
import type { Json } from "./types";

export class Problem extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code: string,
    /** The invalid fields of the request, if the server reports them. */
    readonly fields: string[] = [],
    /** The whole response, for errors that list what they are about. */
    readonly about: Record<string, Json> = {},
  ) {
    super(message);
  }
}

export class Unreachable extends Error {
  constructor() {
    super("Can't reach the server.");
  }
}

type Listener = () => void;
let onUnauthorized: Listener = () => {};

/** Set the function to call when this browser is no longer signed in. */
export function whenUnauthorized(listener: Listener): void {
  onUnauthorized = listener;
}

export async function request<T>(method: string, path: string, body?: unknown, headers?: Record<string, string>, signal?: AbortSignal): Promise<T> {
  const answer = await respond(method, path, body, headers, signal);
  if (answer.status === 204) return undefined as T;
  return (await answer.json()) as T;
}

/** The response itself, for answers that are not JSON. */
export async function respond(method: string, path: string, body?: unknown, headers?: Record<string, string>, signal?: AbortSignal): Promise<Response> {
  let answer: Response;
  try {
    answer = await ask(path, {
      method,
      headers: { ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
    });
  } catch {
    throw new Unreachable();
  }
  if (!answer.ok) {
    const problem = await problemOf(answer);
    // A proxy's error page for a server that is down.
    throw away(problem) && !problem.code ? new Unreachable() : problem;
  }
  return answer;
}

/** Whether the server is temporarily unavailable, so that the same request can be retried later. */
export function away(error: unknown): boolean {
  return error instanceof Unreachable || (error instanceof Problem && error.status >= 502 && error.status <= 504);
}

async function problemOf(answer: Response): Promise<Problem> {
  let said: { error?: string; code?: string; fields?: string[]; [field: string]: Json | undefined } = {};
  try {
    said = await answer.json();
  } catch {
    // The response is not from Perdure, for example from a proxy.
  }
  if (answer.status === 401) onUnauthorized();
  return new Problem(said.error ?? `The server responded with status ${answer.status}.`, answer.status, said.code ?? "", said.fields ?? [], said as Record<string, Json>);
}

export const get = <T>(path: string) => request<T>("GET", path);
export const post = <T>(path: string, body: unknown = {}) => request<T>("POST", path, body);
export const patch = <T>(path: string, body: unknown) => request<T>("PATCH", path, body);
export const remove = <T>(path: string) => request<T>("DELETE", path);

export const at = (session: string, rest = "") => `/api/sessions/${encodeURIComponent(session)}${rest}`;

export function query(values: Record<string, Json | undefined>): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? "?" + new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString() : "";
}

/** The error as a sentence for the user. */
export function sentence(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function newId(prefix: string): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return prefix + "_" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
