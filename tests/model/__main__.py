"""A scripted model for manual use: `python -m tests.model [PORT]`, until interrupted. Prints its address."""

import signal
import sys

from tests.model.server import ModelServer


def main() -> None:
    server = ModelServer()
    server.start(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(f"model: listening on {server.url}", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    server.stop()


if __name__ == "__main__":
    # Before any thread starts, so that no thread receives the signal instead.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main()
