// The error boundary: replaces a view that failed to render or load, so the rest of the page keeps working. Above: the
// app and main.tsx. Below: React's error boundaries.

import { Component, lazy, Suspense, type ComponentType, type ReactNode } from "react";
import { Button } from "../parts/button";
import { sentence } from "../wire/api";
import { compare, NotLoaded, ofThisBuild, Outdated } from "./version";

const LOOK_MS = 1000;
/** Incremented on every retry, so that views that failed to load are loaded again. */
let tries = 0;

interface Props {
  children: ReactNode;
  /** A change triggers a retry: another view was opened, or the server is back. */
  again?: string;
}

export class Boundary extends Component<Props, { error: unknown; failed: boolean }> {
  override state = { error: null as unknown, failed: false };

  static getDerivedStateFromError(error: unknown) {
    return { error, failed: true };
  }

  override componentDidUpdate(before: Props): void {
    if (this.state.failed && before.again !== this.props.again) this.retry();
  }

  override componentDidCatch(error: unknown): void {
    if (error instanceof NotLoaded && error.away) this.waiting = setTimeout(() => void this.look(error), LOOK_MS);
  }

  override componentWillUnmount(): void {
    clearTimeout(this.waiting);
  }

  private waiting: ReturnType<typeof setTimeout> | undefined;

  /** Poll until the server is reachable again. */
  private async look(error: unknown): Promise<void> {
    const known = await compare();
    if (this.state.error !== error) return;
    if (known === "away") this.waiting = setTimeout(() => void this.look(error), LOOK_MS);
    else this.retry();
  }

  retry = () => {
    clearTimeout(this.waiting);
    tries += 1;
    this.setState({ error: null, failed: false });
  };

  override render(): ReactNode {
    if (!this.state.failed) return this.props.children;
    const outdated = this.state.error instanceof Outdated;
    return (
      <div role="alert" className="flex flex-1 flex-col items-center justify-center gap-3 p-8 text-center">
        <h1 className="text-lg font-semibold">{outdated ? "The page was updated" : "This view can't be shown"}</h1>
        <p className="max-w-[60ch] break-words text-quiet">{outdated ? "Reload to continue. Your drafts are saved." : `${sentence(this.state.error)} Your sessions keep running and your drafts are saved.`}</p>
        <div className="flex gap-2">
          <Button tone="primary" onClick={() => location.reload()}>Reload</Button>
          {!outdated && <Button onClick={this.retry}>Try again</Button>}
        </div>
      </div>
    );
  }
}

/** A view loaded on first use. If loading fails, the next retry loads it again. */
export function whenNeeded<P extends object>(load: () => Promise<{ default: ComponentType<P> }>): ComponentType<P> {
  let failed = false;
  let at = tries;
  const make = () =>
    lazy(() =>
      ofThisBuild(load).catch((error) => {
        failed = true;
        throw error;
      }),
    ) as unknown as ComponentType<P>;
  let View = make();
  return function Needed(props: P) {
    if (failed && at !== tries) {
      View = make();
      failed = false;
    }
    if (!failed) at = tries;
    return (
      <Suspense fallback={<div className="flex-1" aria-busy="true" />}>
        <View {...props} />
      </Suspense>
    );
  };
}
