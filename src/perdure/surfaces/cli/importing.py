"""`perdure import`: import sessions from a folder, as written by `perdure export` and TeamHQ.

Above: people and scripts. Below: session_reading.py, which reads turns from files, and the client. Each session is
imported completely, or rejected with its file, line and what to do; the others continue. Existing sessions stay
unchanged.
"""

from pathlib import Path
from typing import Any, NamedTuple

import click

from perdure.core.errors import Refused
from perdure.core.imported import check_id, finished_turns
from perdure.surfaces.cli.output import print_json
from perdure.surfaces.cli.reach import Failure, Reach, reaching
from perdure.surfaces.cli.terms import as_typed
from perdure.surfaces.client import Client, Problem
from perdure.surfaces.session_files import CHOSEN
from perdure.surfaces.session_reading import Broken, Metadata, import_body, read_metadata, read_turns

Json = dict[str, Any]
WHAT_TO_DO = "Correct or remove the file, and import again: sessions that exist already are skipped."


class Place(NamedTuple):
    """Overrides for where sessions go, and what the server has."""

    project: str | None
    without_project: bool
    agent: str | None
    projects: dict[str, str]
    """The server's projects, by id and by name."""
    agents: set[str]


class Unwanted(Exception):
    """A session that can't be imported: the file, the line if known, the error and what to do."""

    def __init__(self, path: Path, line: int | None, what: str) -> None:
        super().__init__(what)
        self.path = path
        self.line = line

    def __str__(self) -> str:
        where = f"{self.path}, line {self.line}" if self.line is not None else f"{self.path}"
        return f"{where}: {self.args[0]}"


@click.command()
@click.argument("folder")
@click.option("--project", help="Import the sessions into this project, whatever their files say.")
@click.option(
    "--without-project", is_flag=True, help="Import the sessions without a project; each gets its own directory."
)
@click.option("--agent", help="Agent for the sessions. Defaults to the one in the file, or the server's default.")
@click.option("--dry-run", is_flag=True, help="Check the files and report errors, without importing.")
@reaching
def import_command(
    reach: Reach, folder: str, project: str | None, without_project: bool, agent: str | None, dry_run: bool
) -> int:
    """Import sessions from a folder.

    FOLDER contains PROJECT/SESSION.json and PROJECT/SESSION.ndjson, as written by `perdure export --folder` or TeamHQ,
    or is the folder of one project. An imported session is idle; a turn that had not finished is marked as failed.
    """
    if project is not None and without_project:
        raise click.UsageError("Give --project or --without-project, not both.")
    found = _files(Path(folder))
    done: dict[str, list[Any]] = {"imported": [], "already_there": [], "refused": []}
    with reach.client() as client:
        place = _place(client, project, without_project, agent)
        for path in found:
            try:
                done[_take(client, path, place, dry_run)].append(path.stem)
            except Unwanted as error:
                done["refused"].append({"file": str(error.path), "line": error.line, "error": error.args[0]})
                click.echo(as_typed(f"perdure: {error}"), err=True)
    if reach.as_json:
        print_json(done)
    else:
        _tell(done, dry_run)
    return 1 if done["refused"] else 0


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise Failure(f"There is no folder {folder}.")
    # Skip names that start with a dot: they are still being written.
    found = [path for pattern in ("*.json", "*/*.json") for path in folder.glob(pattern) if path.name[0] != "."]
    if not found:
        raise Failure(f"{folder} contains no sessions (PROJECT/SESSION.json and PROJECT/SESSION.ndjson).")
    return sorted(found)


def _place(client: Client, project: str | None, without_project: bool, agent: str | None) -> Place:
    projects: dict[str, str] = {}
    for entry in client.projects():
        projects[entry["name"]] = projects[entry["id"]] = entry["id"]
    agents = {entry["name"] for entry in client.agents()}
    if project is not None and project not in projects:
        raise Failure(f"There is no project {project!r}. `perdure projects` lists them.")
    if agent is not None and agent not in agents:
        raise Failure(f"There is no agent {agent!r}. `perdure agents` lists them.")
    return Place(project, without_project, agent, projects, agents)


def _take(client: Client, path: Path, place: Place, dry_run: bool) -> str:
    """Import one session. Returns the list that it belongs to."""
    metadata, events = _read(path)
    body = import_body(metadata, events)
    body["project"] = _project(path, metadata, place)
    own_agent = metadata.own.agent if metadata.own is not None else None
    body["agent"] = place.agent or (own_agent if own_agent in place.agents else None)
    if body["agent"] != own_agent:
        body = {name: value for name, value in body.items() if name not in CHOSEN}
    try:
        if dry_run:
            return _would_take(client, body)
        client.import_session(body)
    except Problem as problem:
        if problem.code == "conflict":
            return "already_there"
        raise Unwanted(path, None, f"{problem.detail} {WHAT_TO_DO} ({problem.code})") from problem
    return "imported"


def _would_take(client: Client, body: Json) -> str:
    """For --dry-run: the list that a session would belong to, as far as the client can tell."""
    try:
        check_id(body["id"])
        finished_turns(body["events"], "")
    except Refused as refusal:
        raise Problem(refusal.status, refusal.code, refusal.detail, {}) from refusal
    try:
        client.session(body["id"])
    except Problem as problem:
        if problem.code == "not_found":
            return "imported"
        raise
    return "already_there"


def _read(path: Path) -> tuple[Metadata, list[Json]]:
    log = path.with_suffix(".ndjson")
    reading = path
    try:
        metadata = read_metadata(path.read_bytes())
        if metadata.id != path.stem:
            raise Broken(None, f"the id is {metadata.id!r}, but the file is named {path.stem!r}")
        reading = log
        # Read as bytes, which split at line feeds only: JSON may contain other line separators.
        with log.open("rb") as lines:
            return metadata, read_turns(metadata, lines)
    except Broken as broken:
        raise Unwanted(reading, broken.line, f"{broken.what}. {WHAT_TO_DO}") from broken
    except OSError as error:
        what = f"can't read the file: {error.strerror}. A session needs both files."
        raise Unwanted(reading, None, what) from error


def _project(path: Path, metadata: Metadata, place: Place) -> str | None:
    if place.project is not None or place.without_project or not metadata.project_id:
        return place.projects[place.project] if place.project is not None else None
    if metadata.project_id not in place.projects:
        name = metadata.project_id
        what = f"there is no project {name!r} here. Add it (perdure projects add DIR --name {name}), or give "
        raise Unwanted(path, None, what + "--project NAME or --without-project, and import again.")
    return place.projects[metadata.project_id]


def _tell(done: dict[str, list[Any]], dry_run: bool) -> None:
    count = len(done["imported"])
    verb = "can be imported" if dry_run else "imported"
    told = [f"{count} session{'' if count == 1 else 's'} {verb}"]
    told += [f"{len(done['already_there'])} already there"] if done["already_there"] else []
    told += [f"{len(done['refused'])} rejected"] if done["refused"] else []
    click.echo(", ".join(told) + ".")
