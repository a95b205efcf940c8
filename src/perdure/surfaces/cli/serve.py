"""`perdure serve`: options and environment variables; server.py runs the server.

Above: people and service managers. Below: server.py, and background.py for --background and --stop.
"""

from pathlib import Path

import click
from click.core import ParameterSource

from perdure.config import DEFAULT_PORT, ConfigError, data_directory
from perdure.surfaces.cli.background import start_server, stop_server
from perdure.surfaces.cli.reach import Failure, Reach


@click.command()
@click.option("--host", envvar="PERDURE_HOST", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    envvar="PERDURE_PORT",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port to listen on; 0 picks a free port.",
)
@click.option("--data", metavar="DIR", help="Data directory.")
@click.option(
    "--database",
    envvar="PERDURE_DATABASE",
    metavar="URL",
    help="PostgreSQL database to use instead of SQLite; needed for several nodes.",
)
@click.option(
    "--config",
    envvar="PERDURE_CONFIG",
    metavar="FILE",
    help="Configuration file. Defaults to perdure.toml in the data directory.",
)
@click.option(
    "--token-file",
    envvar="PERDURE_TOKEN_FILE",
    metavar="FILE",
    help="File that contains the token. Only its owner may have access to it.",
)
@click.option(
    "--behind-proxy",
    envvar="PERDURE_BEHIND_PROXY",
    is_flag=True,
    help="The server runs behind a reverse proxy with TLS.",
)
@click.option(
    "--insecure-http",
    envvar="PERDURE_INSECURE_HTTP",
    is_flag=True,
    help="Serve plain HTTP to other machines. Only for networks that you trust.",
)
@click.option(
    "--background", is_flag=True, help="Start the server in the background, unless one is running, and return."
)
@click.option("--stop", is_flag=True, help="Stop the server of this data directory.")
@click.option("--stop-agents", is_flag=True, help="End running turns when this server stops.")
@click.pass_context
def serve_command(
    ctx: click.Context,
    host: str,
    port: int,
    data: str | None,
    database: str | None,
    config: str | None,
    token_file: str | None,
    behind_proxy: bool,
    insecure_http: bool,
    background: bool,
    stop: bool,
    stop_agents: bool,
) -> int:
    """Start the server.

    Runs until SIGTERM or Ctrl-C. Running turns survive, unless you give --stop-agents; the next server continues them.
    --background takes its settings only from perdure.toml and environment variables.
    """
    outer = ctx.find_root().obj or {}
    if stop or background:
        _check_alone(ctx, "--stop" if stop else "--background")
        reach = Reach(data or outer.get("data"), None, outer.get("token"), False)
        (stop_server if stop else start_server)(reach)
        return 0
    from perdure.server import StartError, serve

    config_path = Path(config).expanduser().absolute() if config else None
    if config_path is not None and not config_path.is_file():
        raise Failure(f"There is no file {config_path}. Correct --config, or leave it out.", 2)
    try:
        serve(
            host=host,
            port=port,
            data=data_directory(data or outer.get("data")),
            config_path=config_path,
            token=outer.get("token"),
            token_file=Path(token_file).expanduser().absolute() if token_file else None,
            database=database,
            stop_agents=stop_agents,
            behind_proxy=behind_proxy,
            insecure_http=insecure_http,
        )
    except (StartError, ConfigError) as error:
        raise Failure(str(error)) from error
    return 0


def _check_alone(ctx: click.Context, option: str) -> None:
    """--stop and --background accept no server options: a background server takes its settings from perdure.toml."""
    for parameter in ctx.command.params:
        name = str(parameter.name)
        if name not in (option[2:], "data") and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option} can only be combined with --data; leave out {parameter.opts[0]}.")
