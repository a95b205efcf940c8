"""`perdure export`: write one session to stdout or a file, or many sessions to a folder.

Above: people and scripts. Below: the client, so it works with a remote server; session_files.py, which defines the
layout. Each file is written under a temporary name and renamed, and a session's `.json` is written last. So every
session in the folder is complete.
"""

import base64
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.surfaces.cli.output import print_json, safe_bytes
from perdure.surfaces.cli.reach import Failure, Reach, find_session, reaching, sentence_of
from perdure.surfaces.client import Client, Problem
from perdure.surfaces.session_files import folder_name, lines_of, metadata_of

Json = dict[str, Any]


@click.command()
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@click.option("--folder", metavar="DIR", help="Export to this folder: the given sessions, or all.")
@click.option("--project", help="With --folder: export only sessions of this project.")
@click.option(
    "--format", "how", type=click.Choice(["ndjson", "json", "markdown"]), default="ndjson", show_default=True,
    help="ndjson: the log, one event per line. json, markdown: the transcript.",
)  # fmt: skip
@click.option("-o", "--output", "target", metavar="FILE", help="Write to this file instead of stdout.")
@reaching
def export_command(
    reach: Reach, sessions: tuple[str, ...], folder: str | None, project: str | None, how: str, target: str | None
) -> int | None:
    """Export a session's log or transcript, or sessions to a folder.

    SESSION is an id, a unique prefix of one, or `last`. With --folder, writes PROJECT/SESSION.json and
    PROJECT/SESSION.ndjson for each session; `perdure import` and TeamHQ clients can read them. With --folder and
    --format markdown, writes PROJECT/SESSION.md instead.
    """
    if folder is not None:
        if target is not None or how == "json":
            raise click.UsageError("--folder can't be combined with --output or --format json.")
        return _export_many(reach, sessions, Path(folder), project, how)
    if len(sessions) != 1 or project is not None:
        raise click.UsageError("Give exactly one SESSION, or use --folder to export several.")
    with reach.client() as client:
        _export_one(client, find_session(client, sessions[0]), how, target)
    if target and not reach.as_json:
        click.echo(f"Wrote {target}.", err=True)
    return None


def _export_one(client: Client, session_id: str, how: str, target: str | None) -> None:
    try:
        with click.open_file(target or "-", "wb") as file:
            # A file or a pipe gets every byte; a terminal gets no control characters.
            made = safe_bytes if file.isatty() else bytes
            if how == "ndjson":
                for line in client.log(session_id):
                    file.write(made(line) + b"\n")
            elif how == "markdown":
                file.write(made(client.transcript_markdown(session_id).encode()))
            else:
                file.write(made(msgspec.json.format(msgspec.json.encode(client.transcript(session_id)))) + b"\n")
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise Failure(f"Can't write {target}: {error.strerror}.") from error


# To a folder ----------------------------------------------------------------------------------------------------------


def _export_many(reach: Reach, given: tuple[str, ...], folder: Path, project: str | None, how: str) -> int:
    written: list[Json] = []
    failed = 0
    with reach.client() as client:
        # List all sessions before writing the first: activity meanwhile changes the order of the pages.
        chosen = [find_session(client, each) for each in given]
        chosen = chosen or [entry["id"] for entry in client.all_sessions(project=project)]
        for session_id in dict.fromkeys(chosen):
            try:
                paths = _write(client, session_id, folder, how)
                written.append({"session_id": session_id, "files": [str(path) for path in paths]})
            except Problem as problem:
                # It may have been erased since it was listed. Continue with the others.
                failed += 1
                click.echo(f"perdure: {session_id}: {sentence_of(problem)}", err=True)
            except OSError as error:
                where = error.filename or folder
                raise Failure(
                    f"Can't write {where}: {error.strerror}. Exported {len(written)} of {len(chosen)} sessions."
                ) from error
            _show_progress(reach, len(written), len(chosen))
    if reach.as_json:
        print_json({"sessions": written})
    else:
        click.echo(f"Exported {len(written)} session{'' if len(written) == 1 else 's'} to {folder}.")
    return 1 if failed else 0


def _show_progress(reach: Reach, count: int, total: int) -> None:
    if not reach.as_json and sys.stderr.isatty():
        click.echo(f"\r{count} of {total}" + ("\r" if count == total else ""), err=True, nl=False)


def _write(client: Client, session_id: str, folder: Path, how: str) -> list[Path]:
    session = client.whole_session(session_id)
    base = folder / folder_name(session["project"])
    base.mkdir(parents=True, exist_ok=True)
    if how == "markdown":
        return [_replace(base / f"{session_id}.md", iter([client.transcript_markdown(session_id).encode()]))]
    log = _replace(base / f"{session_id}.ndjson", _lines(client, session))
    metadata = msgspec.json.format(msgspec.json.encode(metadata_of(session)), indent=2) + b"\n"
    return [log, _replace(base / f"{session_id}.json", iter([metadata]))]


def _lines(client: Client, session: Json) -> Iterator[bytes]:
    """The log up to the event count in `session`, so that both files match."""

    def events() -> Iterator[Json]:
        for raw in client.log(session["id"]):
            event: Json = msgspec.json.decode(raw)
            if event["seq"] > session["event_count"]:
                return
            if event["type"] == "user_message":
                event["attachments"] = [_with_data(client, session["id"], each) for each in event["attachments"]]
            yield event

    for line in lines_of(events()):
        yield msgspec.json.encode(line) + b"\n"


def _with_data(client: Client, session_id: str, attachment: Json) -> Json:
    """Include the content of an uploaded file. A file that is only referenced stays a reference."""
    if "file" not in attachment:
        return attachment
    try:
        data = client.attachment(session_id, attachment["file"])
    except Problem as problem:
        if problem.code != "not_found":
            raise
        return attachment
    return {**attachment, "data": base64.b64encode(data).decode()}


def _replace(path: Path, pieces: Iterator[bytes]) -> Path:
    """Write a file atomically. On failure, an existing file stays unchanged."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.writelines(pieces)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path
