// Whether the server has another page than this one by now. Above: the app, before it loads a part of the page and whenever
// the connection is back. Below: the note that a build leaves of what it was made from.

declare const __BUILD__: string;

export class Outdated extends Error {
  constructor() {
    super("The page was updated.");
  }
}

export class NotLoaded extends Error {
  constructor(
    /** Whether the server was away, so that it is worth trying again. */
    readonly away: boolean,
  ) {
    super(away ? "This part of the page could not be loaded: the server can't be reached." : "This part of the page could not be loaded. Reload the page.");
  }
}

export type Known = "same" | "other" | "away";

/** Whether the server's page is this one. */
export async function compare(build: string = __BUILD__): Promise<Known> {
  try {
    const answer = await fetch("/page/digest.txt", { cache: "no-cache" });
    const digest = answer.ok ? (await answer.text()).trim() : "";
    return /^[0-9a-f]{64}$/.test(digest) && !digest.startsWith(build) ? "other" : "same";
  } catch {
    return "away";
  }
}

/** Parts of one page don't fit another, so what is loaded later must be of the same build. A browser remembers a part that it
 * could not load, so that is not even tried while the server is away. */
export async function ofThisBuild<T>(load: () => Promise<T>, build?: string): Promise<T> {
  const known = await compare(build);
  if (known === "other") throw new Outdated();
  if (known === "away") throw new NotLoaded(true);
  return load().catch(() => {
    throw new NotLoaded(false);
  });
}
