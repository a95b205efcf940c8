// What the service worker does when a notification is clicked.

import { afterEach, describe, expect, it, vi } from "vitest";
import SCRIPT from "../public/telling.js?raw";

afterEach(() => vi.unstubAllGlobals());

/** What happened in each window, and which windows were opened. */
async function pressed(...urls: string[]): Promise<string[]> {
  const done: string[] = [];
  const windows = urls.map((url) => ({ url, postMessage: ({ path }: { path: string }) => void done.push(`${url} goes to ${path}`), focus: () => void done.push(`${url} is seen`) }));
  let press: (event: object) => void = () => {};
  vi.stubGlobal("clients", { matchAll: async () => windows, openWindow: (path: string) => void done.push(`opened ${path}`) });
  vi.stubGlobal("addEventListener", (_: string, listener: typeof press) => (press = listener));
  new Function(SCRIPT)();
  let over: Promise<void> = Promise.resolve();
  press({ notification: { data: "/s/a", close: () => undefined }, waitUntil: (work: Promise<void>) => (over = work) });
  await over;
  return done;
}

describe("a clicked notification", () => {
  it("opens the session in a tab of the page", async () => {
    expect(await pressed("http://h/inbox")).toEqual(["http://h/inbox goes to /s/a", "http://h/inbox is seen"]);
  });

  it("does not navigate other tabs of the server", async () => {
    expect(await pressed("http://h/api/docs", "http://h/page/icon.svg", "http://h/")).toEqual(["http://h/ goes to /s/a", "http://h/ is seen"]);
    expect(await pressed("http://h/api/docs")).toEqual(["opened /s/a"]);
    expect(await pressed()).toEqual(["opened /s/a"]);
  });
});
