"""The official MCP client, over real pipes to `perdure mcp`. Every wait is bounded.

The client insists on starting a program. It starts one that forwards to `perdure mcp`, which runs as a warm command,
because its imports would take most of a test's time.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import warm
from tests.harness import WAIT_S

if TYPE_CHECKING:
    # Imported here: it takes a second, which every worker would pay.
    from mcp import Client
    from mcp.types import CallToolResult

# A background process has no stdin.
RELAY = 'exec 3<&0; cat <&3 >"$1" & exec 3<&-; exec cat "$2"'


def command(data: Path) -> list[str]:
    return [sys.executable, "-m", "perdure", "--data", str(data), "mcp"]


class Caller:
    """Calls tools and records reported progress."""

    def __init__(self, client: "Client") -> None:
        self.client = client
        self.told: list[str] = []
        self._more = asyncio.Event()

    async def call(self, name: str, **arguments: Any) -> "CallToolResult":
        tool = name if name.startswith("job_") else f"agent_session_{name}"
        async with asyncio.timeout(2 * WAIT_S):
            return await self.client.call_tool(tool, arguments, progress_callback=self._progress)

    async def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.told.append(message or "")
        self._more.set()

    async def until_told(self, words: str) -> None:
        """Wait until the progress contains this."""
        async with asyncio.timeout(WAIT_S):
            while not any(words in message for message in self.told):
                self._more.clear()
                await self._more.wait()

    async def done(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The result of a successful call."""
        result = await self.call(name, **arguments)
        assert not result.is_error, said(result)
        return structured(result)

    async def refused(self, name: str, **arguments: Any) -> str:
        """The message of a tool error."""
        result = await self.call(name, **arguments)
        assert result.is_error, structured(result)
        return said(result)

    async def start(self, **arguments: Any) -> str:
        return str((await self.done("start", **{"agent": "rehearsal", **arguments}))["session_id"])


def said(result: "CallToolResult") -> str:
    from mcp.types import TextContent

    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


def structured(result: "CallToolResult") -> dict[str, Any]:
    found: dict[str, Any] = result.structured_content
    return found


def text(run: dict[str, Any]) -> str:
    return "".join(part["content"] for output in run["output"] for part in output["parts"])


@asynccontextmanager
async def talking(data: Path, mode: str = "auto", cwd: Path | None = None, **env: str) -> AsyncIterator[Caller]:
    """A client with its own MCP server. Output on the server's stderr fails the test."""
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    with tempfile.TemporaryDirectory() as folder:
        given, said, errors = (os.path.join(folder, name) for name in ("stdin", "stdout", "stderr"))
        os.mkfifo(given)
        os.mkfifo(said)
        environment = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ} | env
        process = warm.start(["--data", str(data), "mcp"], [given, said, errors], environment, cwd or Path.cwd())
        try:
            relay = StdioServerParameters(command="sh", args=["-c", RELAY, "relay", given, said])
            async with Client(stdio_client(relay), mode=mode) as client:
                yield Caller(client)
        finally:
            await asyncio.to_thread(process.join, WAIT_S)
            process.kill()
            process.join(WAIT_S)
        assert (process.exitcode, Path(errors).read_text()) == (0, "")
