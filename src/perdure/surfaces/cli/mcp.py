"""`perdure mcp`: the tools for MCP clients, on stdin and stdout."""

import click

from perdure.surfaces.cli.reach import Failure, Reach, reaching

HOW_TO_INSTALL = "The MCP package is not installed. Install it: pip install 'perdure[mcp]'"


@click.command()
@reaching
def mcp_command(reach: Reach) -> None:
    """Offer sessions as tools to an MCP client, on stdin and stdout.

    It is started by the client (Claude Code, an editor, ...), and needs a running server: without one every tool says
    how to start it.
    """
    try:
        from perdure.surfaces.mcp.server import serve
    except ModuleNotFoundError as error:
        if error.name != "mcp":
            raise
        raise Failure(HOW_TO_INSTALL) from error
    serve(reach.client)
