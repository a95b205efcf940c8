// The one place where requests leave the page. Above: the API, streams, the feed. Below: fetch. Each request carries
// the page key, issued at sign-in. The cookie alone grants no access, because the browser also sends it to other ports
// of the host. The key is in this origin's localStorage; workers can't read that, so tabs pass them the key.

import { keep, kept } from "../state/kept";

const KEY = "page-key";
const HEADER = "perdure-page-key";

/** The key if it is not in storage: a tab passed it in, or storage is unavailable. */
let given: string | null = null;

export function pageKey(): string | null {
  return kept(KEY) ?? given;
}

/** Set the key after signing in; null after signing out. */
export function setPageKey(key: string | null): void {
  given = key;
  keep(KEY, key);
}

/** Accept the key from a tab. Returns whether it is new. */
export function learnPageKey(key: string | null): boolean {
  if (!key || key === given) return false;
  given = key;
  return true;
}

export function ask(path: string, options: RequestInit = {}): Promise<Response> {
  const key = pageKey();
  return fetch(path, key ? { ...options, headers: { ...(options.headers as Record<string, string> | undefined), [HEADER]: key } } : options);
}
