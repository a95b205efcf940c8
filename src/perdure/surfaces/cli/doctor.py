"""`perdure doctor`: one line for each check, and what to do about problems.

Above: people and scripts. Below: checks.py for this machine; the client for the server and its agents.
"""

import sys
from collections.abc import Iterator

import click

from perdure import __version__
from perdure.surfaces.cli.checks import (
    Finding,
    Level,
    check_data,
    check_database,
    check_keeper,
    check_open_files,
    check_python,
    check_sqlite,
    check_store,
    check_token,
    read_settings,
)
from perdure.surfaces.cli.output import print_json, wrapped
from perdure.surfaces.cli.reach import Reach, reaching, sentence_of
from perdure.surfaces.cli.terms import as_typed
from perdure.surfaces.client import Problem, Unreachable
from perdure.surfaces.short_text import safe

COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command()
@click.option("--deep", is_flag=True, help="Also read every page and row of the database. The server can keep running.")
@click.option("--database", envvar="PERDURE_DATABASE", metavar="URL", help="PostgreSQL database of this node.")
@reaching
def doctor_command(reach: Reach, deep: bool, database: str | None) -> int:
    """Check this machine and the server.

    Exits 1 on problems; warnings don't count.
    """
    findings: list[Finding] = []
    for finding in _look(reach, deep, database):
        findings.append(finding)
        if not reach.as_json:
            _print(finding)
    if reach.as_json:
        print_json({"findings": [finding._asdict() for finding in findings]})
    return 1 if any(finding.level == "problem" for finding in findings) else 0


def _look(reach: Reach, deep: bool, database: str | None) -> Iterator[Finding]:
    yield from check_python()
    config, found = read_settings(reach.data)
    yield from found
    yield from check_data(reach.data, config)
    yield from check_database(database, config)
    yield from check_sqlite()
    stored = list(check_store(reach.data, deep))
    yield from stored
    yield from check_token(reach.data)
    yield from check_keeper(reach.data)
    yield from check_open_files(reach.known_pid())
    yield from _check_server(reach, {finding.about for finding in stored})


def _check_server(reach: Reach, known: set[str]) -> Iterator[Finding]:
    """`known`: damaged entries that were already found in the data directory."""
    with reach.client() as client:
        try:
            version = client.health()["version"]
            agents = client.agents()
            damaged = client.server().get("damaged", [])
        except Unreachable as error:
            yield Finding("warning", "server", f"{error} Start one with `perdure serve`, then check again.")
            return
        except Problem as problem:
            yield Finding("problem", "server", sentence_of(problem))
            return
        pid = f", pid {reach.known_pid()}" if client.url == reach.known_url() else ""
        if version == __version__:
            yield Finding("ok", "server", f"{client.url}, version {version}{pid}")
        else:
            what = f"{client.url} is version {version}, but this command is {__version__}. Restart the server."
            yield Finding("warning", "server", what)
    for damage in damaged:
        about = f"{damage['kind']} {damage['id']}"
        if about not in known:
            what = f"{damage['what']}. The server does not use it. `perdure doctor --deep` reads every row of it."
            yield Finding("problem", about, what)
    for agent in agents:
        state = agent["state"].replace("_", " ") + (f", version {agent['version']}" if agent.get("version") else "")
        level: Level = "ok" if agent["state"] == "ready" else "warning"
        yield Finding(level, f"agent {agent['name']}", ". ".join(filter(None, [state, agent.get("reason")])))


def _print(finding: Finding) -> None:
    level = finding.level.ljust(8)
    shown = click.style(level, fg=COLOURS[finding.level]) if sys.stdout.isatty() else level
    text = wrapped(f"{finding.about}: {as_typed(safe(finding.what))}", sys.stdout, len(level) + 2)
    click.echo(f"{shown}  {text}")
