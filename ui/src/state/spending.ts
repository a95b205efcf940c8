// Usage totals as the server computes them, and which groups are plotted. Above: the usage view. Below: nothing.

export interface Figures {
  key: string;
  turns: number;
  input_tokens: number;
  output_tokens: number;
  cache_read_tokens: number;
  cache_write_tokens: number;
  cost_usd: number;
  contexts: { live: number; resumed: number; fresh: number };
  input_bytes: number;
  saved_bytes: number;
  duration_ms: number;
  day?: string;
  [key: string]: unknown;
}

/** The number of plot colours. */
const DRAWN = 6;

export const tokensOf = (one: Figures) => one.input_tokens + one.output_tokens + one.cache_read_tokens + one.cache_write_tokens;

/** The groups to plot, in a fixed order, so that each has the same colour in every plot. */
export const drawn = (sums: Figures[]) => sums.slice().sort((a, b) => tokensOf(b) - tokensOf(a) || b.turns - a.turns).slice(0, DRAWN);
