// What is shown in place of something that failed, so that the rest of the page goes on. Above: the app and main.tsx. Below:
// React's way to catch what is thrown while something is drawn or loaded.

import { Component, lazy, Suspense, type ComponentType, type ReactNode } from "react";
import { Button } from "../parts/button";
import { sentence } from "../wire/api";
import { ofThisBuild, Outdated } from "./version";

interface Props {
  children: ReactNode;
  /** When this changes, it is tried again: another view, or a server that is back. */
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

  retry = () => this.setState({ error: null, failed: false });

  override render(): ReactNode {
    if (!this.state.failed) return this.props.children;
    const outdated = this.state.error instanceof Outdated;
    return (
      <div role="alert" className="flex flex-1 flex-col items-center justify-center gap-3 p-8 text-center">
        <h1 className="text-lg font-semibold">{outdated ? "The page was updated" : "This can't be shown"}</h1>
        <p className="max-w-[60ch] break-words text-quiet">{outdated ? "Reload it to go on. Drafts are kept." : `${sentence(this.state.error)} Sessions go on, and drafts are kept.`}</p>
        <div className="flex gap-2">
          <Button tone="primary" onClick={() => location.reload()}>Reload</Button>
          {!outdated && <Button onClick={this.retry}>Try again</Button>}
        </div>
      </div>
    );
  }
}

/** A view that is loaded when it is first shown. One that could not be loaded is asked for again the next time. */
export function whenNeeded<P extends object>(load: () => Promise<{ default: ComponentType<P> }>): ComponentType<P> {
  let View: ComponentType<P> | null = null;
  const make = () =>
    lazy(() =>
      ofThisBuild(load).catch((error) => {
        View = null;
        throw error;
      }),
    ) as unknown as ComponentType<P>;
  return function Needed(props: P) {
    View ??= make();
    return (
      <Suspense fallback={<div className="flex-1" aria-busy="true" />}>
        <View {...props} />
      </Suspense>
    );
  };
}
