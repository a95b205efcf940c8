// Checks whether the server has a different build of the page. Above: the app, before it loads a part of the page and
// on every reconnect. Below: digest.txt, the hash of the sources that each build writes.

declare const __BUILD__: string;

export class Outdated extends Error {
  constructor() {
    super("The page was updated.");
  }
}

export class NotLoaded extends Error {
  constructor(
    /** Whether the server was unreachable, so that a retry makes sense. */
    readonly away: boolean,
  ) {
    super(away ? "Can't load this part of the page: the server is unreachable." : "Can't load this part of the page. Reload the page.");
  }
}

export type Known = "same" | "other" | "away";

/** Whether the server has the same build of the page. */
export async function compare(build: string = __BUILD__): Promise<Known> {
  try {
    const answer = await fetch("/page/digest.txt", { cache: "no-cache" });
    const digest = answer.ok ? (await answer.text()).trim() : "";
    return /^[0-9a-f]{64}$/.test(digest) && !digest.startsWith(build) ? "other" : "same";
  } catch {
    return "away";
  }
}

/** Parts of different builds don't fit together, so check the build before loading one. Browsers remember a module that
 * failed to load, so don't try while the server is unreachable. */
export async function ofThisBuild<T>(load: () => Promise<T>, build?: string): Promise<T> {
  const known = await compare(build);
  if (known === "other") throw new Outdated();
  if (known === "away") throw new NotLoaded(true);
  return load().catch(() => {
    throw new NotLoaded(false);
  });
}
