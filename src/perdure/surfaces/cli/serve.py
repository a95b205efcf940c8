"""`perdure serve`: options and environment, then server.py does the rest."""

from pathlib import Path

import click
from click.core import ParameterSource

from perdure.config import DEFAULT_PORT, ConfigError, data_directory
from perdure.surfaces.cli.background import start_server, stop_server
from perdure.surfaces.cli.reach import Failure, Reach


@click.command()
@click.option("--host", envvar="PERDURE_HOST", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    envvar="PERDURE_PORT",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="0 picks a free one.",
)
@click.option("--data", metavar="DIR", help="Where everything is kept.")
@click.option(
    "--database",
    envvar="PERDURE_DATABASE",
    metavar="URL",
    help="A PostgreSQL database, for several nodes, instead of the built-in one.",
)
@click.option(
    "--config", envvar="PERDURE_CONFIG", metavar="FILE", help="By default perdure.toml in the data directory."
)
@click.option(
    "--token-file",
    envvar="PERDURE_TOKEN_FILE",
    metavar="FILE",
    help="A file with the token, which only you may read, so that it is on no command line.",
)
@click.option(
    "--behind-proxy", envvar="PERDURE_BEHIND_PROXY", is_flag=True, help="A reverse proxy with TLS is in front."
)
@click.option(
    "--insecure-http",
    envvar="PERDURE_INSECURE_HTTP",
    is_flag=True,
    help="Serve plain HTTP to other machines, on a network that you trust.",
)
@click.option("--background", is_flag=True, help="Start it in the background, if none runs yet, and return.")
@click.option("--stop", is_flag=True, help="Stop the server that runs on the data directory, and start none.")
@click.option("--stop-agents", is_flag=True, help="When the server is stopped, end running turns too.")
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

    It runs until SIGTERM or Ctrl-C. Running turns outlive it, unless --stop-agents is given: the next server continues
    them. --background starts it as `perdure chat` does, with its settings from perdure.toml and the environment.
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
    """Neither changes what a server does: that is for its settings to say."""
    for parameter in ctx.command.params:
        name = str(parameter.name)
        if name not in (option[2:], "data") and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option} goes only with --data; leave out {parameter.opts[0]}.")
