// Numbers, times and keys in readable form.

import { describe, expect, it } from "vitest";
import { shownKeys } from "../src/shell/commands";
import { exact, money, placeOf, until, withTimes } from "../src/text/words";

describe("words", () => {
  it("show ISO timestamps as readable times", () => {
    const at = "2026-11-15T18:58:11Z";
    expect(withTimes(`The limit is reached until ${at} (1794769091).`)).toBe(`The limit is reached until ${exact(at)}.`);
    expect(withTimes("It ended by itself (exit code 2).")).toBe("It ended by itself (exit code 2).");
  });

  it("show a very small cost as small, not as zero", () => {
    expect([0, 0.000012, 0.0002, 0.14].map(money)).toEqual(["$0", "< $0.0001", "$0.0002", "$0.14"]);
  });

  it("name a workspace by the session it belongs to", () => {
    const [id, other] = ["s_1a1e127bc9f8c236ba429", "s_1a1e11a3368044c1d9307"];
    const place = (folder: string) => placeOf({ id, project: null, workdir: "/data/" + folder });
    expect([id, other, "site"].map(place)).toEqual(["own workspace", "another session's workspace", "site"]);
  });

  it("omit the date if it is today", () => {
    const now = new Date(2026, 10, 15, 12).getTime();
    expect(until(new Date(2026, 10, 15, 18, 5).toISOString(), now)).not.toContain("2026");
    expect(until(new Date(2026, 10, 16, 18, 5).toISOString(), now)).toContain("2026");
  });

  it("show keys as on the keyboard", () => {
    expect(shownKeys("g i")).toEqual(["G", "I"]);
    expect(shownKeys("Shift+g")).toEqual(["Shift+G"]);
    expect(shownKeys("Ctrl+k")).toEqual(["Ctrl+K"]);
    expect(shownKeys("Escape Escape")).toEqual(["Esc", "Esc"]);
    expect(shownKeys("/")).toEqual(["/"]);
  });
});
