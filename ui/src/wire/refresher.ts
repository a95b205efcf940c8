// Fetching again what changes often: one request at a time, with a pause between, so that an older answer never comes after
// a newer one. Above: the feed's list of sessions. Below: the function that fetches, which says whether it has worked.

const PAUSE_MS = 400;
const LAST_PAUSE_MS = 8000;

export class Refresher {
  private wanted = false;
  private busy = false;
  private stopped = false;
  private pauseMs = PAUSE_MS;
  private wakeUp: () => void = () => {};

  constructor(private readonly fetch: () => Promise<boolean>) {}

  want(): void {
    this.stopped = false;
    this.wanted = true;
    if (!this.busy) void this.run();
  }

  /** The server is there again: what failed is tried at once. */
  hurry(): void {
    if (this.pauseMs > PAUSE_MS) this.wakeUp();
    this.pauseMs = PAUSE_MS;
    this.want();
  }

  stop(): void {
    this.stopped = true;
    this.wakeUp();
  }

  private async run(): Promise<void> {
    this.busy = true;
    while (this.wanted && !this.stopped) {
      this.wanted = false;
      const done = await this.fetch().catch(() => false);
      this.pauseMs = done ? PAUSE_MS : Math.min(LAST_PAUSE_MS, this.pauseMs * 2);
      if (!done) this.wanted = true;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, this.pauseMs);
        this.wakeUp = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    this.busy = false;
  }
}
