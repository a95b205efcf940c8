// Refetches data that changes often: one request at a time, with a pause in between, so that an older response never
// replaces a newer one. Above: the feed's session list. Below: the fetch function, which returns whether it succeeded.

const PAUSE_MS = 400;
const LAST_PAUSE_MS = 8000;

export class Refresher {
  private wanted = false;
  private busy = false;
  private stopped = false;
  private hurried = false;
  private pauseMs = PAUSE_MS;
  private abort = new AbortController();
  private wakeUp: () => void = () => {};

  constructor(private readonly fetch: (signal: AbortSignal) => Promise<boolean>) {}

  want(): void {
    this.stopped = false;
    this.wanted = true;
    if (!this.busy) void this.run();
  }

  /** The server is reachable again: repeat a failed or pending request immediately. */
  hurry(): void {
    this.pauseMs = PAUSE_MS;
    this.hurried = this.busy;
    this.want();
    if (!this.hurried) return;
    this.abort.abort();
    this.wakeUp();
  }

  stop(): void {
    this.stopped = true;
    this.wakeUp();
  }

  private async run(): Promise<void> {
    this.busy = true;
    while (this.wanted && !this.stopped) {
      this.wanted = false;
      this.hurried = false;
      this.abort = new AbortController();
      const done = await this.fetch(this.abort.signal).catch(() => false);
      if (this.hurried) continue;
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
