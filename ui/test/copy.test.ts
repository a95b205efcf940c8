// Copying works without the clipboard API too, and never fails silently.

import { afterEach, describe, expect, it, vi } from "vitest";

const said: string[] = [];
vi.mock("../src/shell/toast", () => ({ say: (text: string) => said.push(text) }));

function page(copies: boolean): string[] {
  const copied: string[] = [];
  const area = { value: "", className: "", select: () => undefined, remove: () => undefined };
  vi.stubGlobal("navigator", {});
  vi.stubGlobal("document", { activeElement: null, body: { append: () => undefined }, createElement: () => area, execCommand: () => (copied.push(area.value), copies) });
  return copied;
}
afterEach(() => vi.unstubAllGlobals());

describe("copying", () => {
  it("uses a selection if there is no clipboard API", async () => {
    const copied = page(true);
    const { copyText } = await import("../src/parts/copy");
    expect(await copyText("all of it")).toBe(true);
    expect([copied, said]).toEqual([["all of it"], []]);
  });

  it("reports a failure", async () => {
    page(false);
    const { copyText } = await import("../src/parts/copy");
    expect(await copyText("x")).toBe(false);
    expect(said.length).toBe(1);
  });
});
