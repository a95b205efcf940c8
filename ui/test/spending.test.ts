// Which groups the plots of the usage view draw.

import { describe, expect, it } from "vitest";
import { drawn, type Figures } from "../src/state/spending";

const figures = (key: string, turns: number, tokens: number): Figures => ({
  key,
  turns,
  input_tokens: tokens,
  output_tokens: 0,
  cache_read_tokens: 0,
  cache_write_tokens: 0,
  cost_usd: 0,
  contexts: { live: 0, resumed: 0, fresh: turns },
  input_bytes: 0,
  saved_bytes: 0,
  duration_ms: 0,
});

describe("the groups of the usage view", () => {
  it("are ordered by tokens, and by turns if no tokens were reported", () => {
    const sums = [figures("silent", 3, 0), figures("busy", 9, 0), figures("costly", 1, 500)];
    expect(drawn(sums).map((one) => one.key)).toEqual(["costly", "busy", "silent"]);
    expect(sums[0]!.key).toBe("silent");
  });

  it("are at most as many as there are colours", () => {
    expect(drawn(Array.from({ length: 9 }, (_, index) => figures(`agent-${index}`, 1, index)))).toHaveLength(6);
  });
});
