"""`perdure mcp`: the MCP server on stdin and stdout.

Above: MCP clients. Below: surfaces/mcp.
"""

import click

from perdure.surfaces.cli.reach import Failure, Reach, reaching

HOW_TO_INSTALL = "The MCP package is not installed. Install it: pip install 'perdure[mcp]'"


@click.command()
@reaching
def mcp_command(reach: Reach) -> None:
    """Run an MCP server on stdin and stdout.

    An MCP client, such as Claude Code or an editor, starts this command to use sessions and jobs as tools. The tools
    need a running Perdure server; without one, they explain how to start it.
    """
    try:
        from perdure.surfaces.mcp.server import serve
    except ModuleNotFoundError as error:
        if error.name != "mcp":
            raise
        raise Failure(HOW_TO_INSTALL) from error
    serve(reach.client)
