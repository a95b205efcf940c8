"""`perdure import`: sessions out of a folder, as `perdure export` and TeamHQ write them.

Above: people and scripts. Below: session_reading.py, which makes turns of files, and the client. Each session is taken
whole or refused with its file, line and what to do; the others go on. What is there already stays as it is.
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
WHAT_TO_DO = "Correct or remove it, and import again: what is there already is not doubled."


class Place(NamedTuple):
    """Where sessions go, if not where their files say."""

    project: str | None
    without_project: bool
    agent: str | None
    projects: dict[str, str]
    """Those of the server, by id and by name."""
    agents: set[str]


class Unwanted(Exception):
    """A session that can't be taken: its file, the line if it is one, and what is wrong and what to do."""

    def __init__(self, path: Path, line: int | None, what: str) -> None:
        super().__init__(what)
        self.path = path
        self.line = line

    def __str__(self) -> str:
        where = f"{self.path}, line {self.line}" if self.line is not None else f"{self.path}"
        return f"{where}: {self.args[0]}"


@click.command()
@click.argument("folder")
@click.option("--project", help="Put the sessions into this project, whatever their files say.")
@click.option("--without-project", is_flag=True, help="Put them into no project; each gets a directory of its own.")
@click.option("--agent", help="The agent that goes on with them; by default as their files say, or the usual one.")
@click.option("--dry-run", is_flag=True, help="Only read the files, and say what is wrong with them.")
@reaching
def import_command(
    reach: Reach, folder: str, project: str | None, without_project: bool, agent: str | None, dry_run: bool
) -> int:
    """Take sessions in from a folder.

    FOLDER has PROJECT/SESSION.json and .ndjson, as `perdure export --folder` writes them and TeamHQ keeps them; it may
    also be the folder of one project. A session that was running elsewhere is idle here, its unfinished turn failed.
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
        raise Failure(f"{folder} is not a folder.")
    # A name with a dot in front is a file that is being written.
    found = [path for pattern in ("*.json", "*/*.json") for path in folder.glob(pattern) if path.name[0] != "."]
    if not found:
        raise Failure(f"{folder} has no sessions: PROJECT/SESSION.json with PROJECT/SESSION.ndjson beside it.")
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
    """One session: which list it belongs to."""
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
    """Which list it would belong to, as far as can be told from here."""
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
            raise Broken(None, f"id is {metadata.id!r}, but the file is called {path.stem!r}")
        reading = log
        # As bytes, which are cut at line feeds only: other characters that end a line in a text may be inside JSON.
        with log.open("rb") as lines:
            return metadata, read_turns(metadata, lines)
    except Broken as broken:
        raise Unwanted(reading, broken.line, f"{broken.what}. {WHAT_TO_DO}") from broken
    except OSError as error:
        what = f"it can't be read: {error.strerror}. Both files of a session are needed."
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
    told += [f"{len(done['refused'])} refused"] if done["refused"] else []
    click.echo(", ".join(told) + ".")
