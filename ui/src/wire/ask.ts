// Asking the server: the one place where requests leave the page. Above: the API, streams, the feed. Below: fetch. Each
// request carries the page's key, which came when this browser signed in: the cookie alone, which the browser also sends to
// other ports of the host, opens nothing. The key is kept for this origin; a worker can't read there, and is given it by tabs.

import { keep, kept } from "../state/kept";

const KEY = "page-key";
const HEADER = "perdure-page-key";

/** What tabs have said, or what this browser does not want to keep. */
let given: string | null = null;

export function pageKey(): string | null {
  return kept(KEY) ?? given;
}

/** What signing in has answered; null after signing out. */
export function setPageKey(key: string | null): void {
  given = key;
  keep(KEY, key);
}

/** Take the key from a tab. Whether it is another one than before. */
export function learnPageKey(key: string | null): boolean {
  if (!key || key === given) return false;
  given = key;
  return true;
}

export function ask(path: string, options: RequestInit = {}): Promise<Response> {
  const key = pageKey();
  return fetch(path, key ? { ...options, headers: { ...(options.headers as Record<string, string> | undefined), [HEADER]: key } } : options);
}
