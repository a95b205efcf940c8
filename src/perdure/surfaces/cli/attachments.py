"""`perdure attachments`: list and download files that were sent with messages.

Above: people and scripts. Below: the client. `perdure send --attach` sends files. A download keeps the file's name,
sanitized, and overwrites an existing file only with --force.
"""

import os
import sys
from pathlib import Path
from typing import Any

import click

from perdure.surfaces.cli.default_group import DefaultGroup
from perdure.surfaces.cli.output import print_json, print_table, size
from perdure.surfaces.cli.reach import Failure, Reach, find_session, reaching
from perdure.surfaces.short_text import safe

Json = dict[str, Any]

NOTHING_ATTACHED = "The session has no attachments. `perdure send --attach FILE` sends one."


@click.group(
    name="attachments",
    cls=DefaultGroup,
    default="list",
    aliases={"ls": "list", "get": "download"},
    invoke_without_command=True,
    subcommand_metavar="[SESSION | COMMAND]",
)
@reaching
@click.pass_context
def attachments_command(ctx: click.Context, reach: Reach) -> None:
    """List and download files attached to messages.

    `perdure attachments SESSION` lists them. SESSION is an id, a unique prefix of one, or `last`.
    """
    if ctx.invoked_subcommand is None:
        raise click.UsageError("Give a SESSION to list its attachments: `perdure attachments last`.")


@attachments_command.command("list")
@click.argument("session")
@reaching
def list_command(reach: Reach, session: str) -> None:
    """List the files attached to a session's messages."""
    with reach.client() as client:
        found = client.attachments(find_session(client, session))
    if reach.as_json:
        print_json({"attachments": found})
        return
    rows = [
        [
            str(number),
            name_of(one),
            one.get("mime_type") or "",
            size(one["size"]) if one.get("size") is not None else "",
            "queued" if one["turn"] is None else str(one["turn"]),
            "" if one.get("file") else "not uploaded: " + str(one.get("path") or one.get("uri") or ""),
        ]
        for number, one in enumerate(found, 1)
    ]
    print_table(["", "name", "type", "size", "turn", ""], rows, NOTHING_ATTACHED)


@attachments_command.command("download")
@click.argument("session")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("-d", "--dir", "folder", metavar="DIR", default=".", show_default=True, help="Write into this directory.")
@click.option("-o", "--output", metavar="FILE", help="Write one attachment to this file; `-` is stdout.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@reaching
def download_command(
    reach: Reach, session: str, names: tuple[str, ...], folder: str, output: str | None, force: bool
) -> None:
    """Download the given attachments, or all.

    NAME is a file name, or its number in the list. Files keep their names.
    """
    with reach.client() as client:
        session_id = find_session(client, session)
        known = client.attachments(session_id)
        wanted = [_find(known, name) for name in names] or [one for one in known if one.get("file")]
        if not wanted:
            raise Failure(f"{NOTHING_ATTACHED} (not_found)")
        if output is not None and len(wanted) != 1:
            raise click.UsageError(f"--output takes one attachment, not {len(wanted)}. Name one, or use --dir.")
        targets = [Path(output)] if output is not None else _targets(Path(folder).expanduser(), wanted)
        if output != "-" and not force:
            _refuse_existing(targets)
        for one, target in zip(wanted, targets, strict=True):
            content = client.attachment(session_id, one["file"])
            _write(target, content)
    if output == "-":
        return
    written = [{"name": name_of(one), "path": str(path)} for one, path in zip(wanted, targets, strict=True)]
    if reach.as_json:
        print_json({"downloaded": written})
        return
    for each in written:
        click.echo(f"Wrote {safe(each['path'])}.")


def name_of(attachment: Json) -> str:
    return str(attachment.get("name") or attachment.get("file") or attachment.get("path") or attachment.get("uri"))


def _find(known: list[Json], given: str) -> Json:
    found = [one for one in known if given in (one.get("file"), name_of(one))]
    if not found and given.isascii() and given.isdigit() and 1 <= int(given) <= len(known):
        found = [known[int(given) - 1]]
    if not found:
        raise Failure(f"There is no attachment {given!r}. `perdure attachments SESSION` lists them. (not_found)")
    if len(found) > 1:
        raise Failure(f"{len(found)} attachments are named {given!r}. Give the number in the list instead.", 2)
    if not found[0].get("file"):
        where = found[0].get("path") or found[0].get("uri")
        raise Failure(f"{given!r} was not uploaded with the message. It is at {where}.")
    return found[0]


def _targets(folder: Path, wanted: list[Json]) -> list[Path]:
    """A path in the folder for each attachment, whatever its name contains. Duplicate names get a number."""
    found: list[Path] = []
    for one in wanted:
        name = os.path.basename(safe(name_of(one)).replace("\x00", "")).strip() or "attachment"
        stem, ending = os.path.splitext(name if name not in (".", "..") else "attachment")
        target, number = folder / (stem + ending), 2
        while target in found:
            target, number = folder / f"{stem}-{number}{ending}", number + 1
        found.append(target)
    return found


def _refuse_existing(targets: list[Path]) -> None:
    there = [target for target in targets if target.exists()]
    if there:
        raise Failure(f"{there[0]} exists already. Use --force to overwrite it, or another --dir or --output.")


def _write(target: Path, content: bytes) -> None:
    if str(target) == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    except OSError as error:
        raise Failure(f"Can't write {target}: {error.strerror}.") from error
