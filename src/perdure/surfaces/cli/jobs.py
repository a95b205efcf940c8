"""`perdure jobs`: messages that the server sends on a schedule.

Above: people and scripts. Below: the client, and job_wording.py for the texts. Parameters have the names of the API's
fields, so error messages can name the option. In `edit`, an omitted option keeps its value, and an empty value resets
it to the default. The server validates the values.
"""

import re
import shutil
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click
import msgspec
from click.shell_completion import CompletionItem

from perdure.core.jobs import JobSpec
from perdure.surfaces.cli.default_group import DefaultGroup
from perdure.surfaces.cli.job_wording import (
    SESSIONS,
    job_table,
    place_words,
    reason_words,
    run_table,
    schedule_words,
    settings_rows,
    when,
)
from perdure.surfaces.cli.messages import given_text
from perdure.surfaces.cli.output import print_json, print_paragraph, print_table
from perdure.surfaces.cli.places import Wish, choose, home_shortened, placing
from perdure.surfaces.cli.reach import Reach, find_session, reaching
from perdure.surfaces.cli.sessions import SHORT_ID_CHARS
from perdure.surfaces.cli.terms import as_typed
from perdure.surfaces.client import Client
from perdure.surfaces.short_text import one_line

Json = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])

UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
SHOWN_RUNS = 10
BEGIN_LIMIT_S = 5.0
LOOK_EVERY_S = 0.05
EITHER = "Give either --cron or --every."
HAS_ITS_PLACE = "The session in --session already has a directory. Leave out --workdir, --project and --scratch."
DEFAULTS: Json = {
    field.name: [] if field.name == "labels" else field.default for field in msgspec.structs.fields(JobSpec)
}
"""The value of each setting after a reset."""
_DURATION = re.compile(r"(?:\d+[smhdw])+")


# Values -------------------------------------------------------------------------------------------------------------


class Duration(click.ParamType):  # type: ignore[type-arg]  # not generic in older versions
    """A time such as 90s, 30m, 2h, 1d or 1h30m, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).strip().lower().replace(" ", "")
        if text == "0":
            return 0
        if not _DURATION.fullmatch(text):
            self.fail(f"{value!r} is not a duration. Use a number with a unit, such as 90s, 30m, 2h or 1d.", param, ctx)
        return sum(int(number) * UNITS_S[unit] for number, unit in re.findall(r"(\d+)([smhdw])", text))


class OrEmpty(click.ParamType):  # type: ignore[type-arg]
    """The values of another type, or an empty string."""

    def __init__(self, inner: "click.ParamType[Any]") -> None:
        self.name = inner.name
        self._inner = inner

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "" else self._inner.convert(value, param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        return self._inner.get_metavar(param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return self._inner.shell_complete(ctx, param, incomplete)


def local_zone() -> str | None:
    """The name of this machine's time zone, for a server in another zone; None if it has no name."""
    import tzlocal

    try:
        name = tzlocal.get_localzone_name()
        now = datetime.now().astimezone()
        # If TZ is not a zone name, tzlocal falls back to another zone.
        return name if name and now.astimezone(ZoneInfo(name)).utcoffset() == now.utcoffset() else None
    except (ZoneInfoNotFoundError, LookupError, ValueError, OSError):
        return None


# Options ------------------------------------------------------------------------------------------------------------

MISSED, OVERLAP = click.Choice(("skip", "once", "all")), click.Choice(("wait", "skip", "interrupt"))


class Setting(NamedTuple):
    """One option: its names, type, metavar and help."""

    names: tuple[str, ...]
    kind: "click.ParamType[Any]"
    metavar: str | None
    help: str


SCHEDULE_OPTIONS = (
    Setting(
        ("--cron",),
        click.STRING,
        "EXPRESSION",
        "Run at these times: a cron expression with five fields, or a name such as @daily.",
    ),
    Setting(("--every", "every_s"), Duration(), "DURATION", "Run at this interval, such as 90s, 30m, 2h or 1d."),
    Setting(
        ("--zone", "time_zone"),
        click.STRING,
        "NAME",
        "Time zone, such as Europe/Berlin. New jobs default to this machine's zone.",
    ),
    Setting(("--starts-at",), click.STRING, "TIME", "Don't run before this time, such as 2026-12-31T18:00."),
    Setting(("--until",), click.STRING, "TIME", "Don't run after this time."),
)
OTHER_OPTIONS = (
    Setting(("--max-runs",), click.INT, "N", "Finish the job after this many scheduled runs."),
    Setting(("--jitter", "jitter_s"), Duration(), "DURATION", "Delay each run by a random time up to this."),
    Setting(
        ("--missed",), MISSED, None, "If runs were missed while no server was running: skip them, run once, or run all."
    ),
    Setting(("--missed-max",), click.INT, "N", "With --missed all: run only the newest N."),
    Setting(
        ("--overlap",),
        OVERLAP,
        None,
        "If the previous run has not ended: wait for it, skip the new run, or interrupt the previous one.",
    ),
    Setting(
        ("--session",),
        click.STRING,
        "new|same|SESSION",
        "Use a new session for each run, the same for all runs, or an existing session.",
    ),
    Setting(("--agent",), click.STRING, None, "Agent to use."),
    Setting(("--model",), click.STRING, None, "Model to use."),
    Setting(("--mode",), click.STRING, None, "Mode to use."),
    Setting(("--max-failures",), click.INT, "N", "Pause the job after this many failed runs in a row."),
    Setting(("--keep-sessions",), click.INT, "N", "Erase the sessions of all but the last N runs."),
    Setting(("--keep-days",), click.INT, "N", "Erase the sessions of runs that ended more than N days ago."),
)


def job_options(options: tuple[Setting, ...], *, may_be_empty: bool = False) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for names, kind, metavar, what in reversed(options):
            # A string may be empty anyway, and shell completion recognises its type.
            type_ = OrEmpty(kind) if may_be_empty and kind is not click.STRING else kind
            function = click.option(*names, type=type_, metavar=metavar, help=what)(function)
        return function

    return decorate


labels_option = click.option(
    "--label", "labels", multiple=True, metavar="LABEL", help="Add this label to the job's sessions. Repeatable."
)


# List and show ------------------------------------------------------------------------------------------------------


@click.group(
    name="jobs",
    cls=DefaultGroup,
    default="show",
    aliases={"ls": "list", "rm": "remove", "runs": "history"},
    invoke_without_command=True,
    subcommand_metavar="[JOB | COMMAND]",
)
@reaching
@click.pass_context
def jobs_command(ctx: click.Context, reach: Reach) -> None:
    """Schedule messages: list, add, show, edit, pause, resume, run and remove jobs.

    Without a command, lists all jobs; with JOB, shows that job. JOB is the id that `perdure jobs add` prints.
    """
    if ctx.invoked_subcommand is None:
        list_jobs(reach)


@jobs_command.command("list")
@reaching
def list_command(reach: Reach) -> None:
    """List all jobs. Same as `perdure jobs`."""
    list_jobs(reach)


def list_jobs(reach: Reach) -> None:
    with reach.client() as client:
        jobs = client.jobs()
    if reach.as_json:
        print_json({"jobs": jobs})
        return
    now = datetime.now(UTC)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    empty = 'There are no jobs. Add one with `perdure jobs add NAME --cron "0 9 * * 1-5" --message TEXT`.'
    print_table(*job_table(jobs, now, columns), empty, wrap_last=True)
    for job in jobs:
        if why := reason_words(job, now):
            again = f" Resume it with `perdure jobs resume {job['id']}`." if job["state"] == "paused" else ""
            print_paragraph(f"{job['id']}: {why}{again}")


@jobs_command.command("show")
@click.argument("job")
@reaching
def show_command(reach: Reach, job: str) -> None:
    """Show one job: its settings, its next five runs and its latest runs."""
    with reach.client() as client:
        show_job(client, client.job(job), reach.as_json)


def show_job(client: Client, job: Json, as_json: bool) -> None:
    if as_json:
        print_json(job)
        return
    now = datetime.now(UTC)
    print_table(
        [job["id"], ""], [[name, words] for name, words in settings_rows(job, now) if words], "", wrap_last=True
    )
    click.echo("")
    click.echo("\n".join(next_lines(job, now)))
    click.echo("")
    _print_runs(client.job_runs(job["id"], limit=SHOWN_RUNS)["runs"], job["time_zone"], now)


def next_lines(schedule: Json, now: datetime) -> list[str]:
    if not schedule["next_runs"]:
        return ["Next runs: none."]
    return ["Next runs:", *(f"  {when(moment, schedule['time_zone'], now)}" for moment in schedule["next_runs"])]


def _print_runs(runs: list[Json], time_zone: str, now: datetime) -> None:
    if sys.stdout.isatty():
        # Shorten ids for people, to leave room for the details. Programs get the whole id.
        runs = [{**run, "session_id": run["session_id"] and run["session_id"][:SHORT_ID_CHARS]} for run in runs]
    print_table(*run_table(runs, time_zone, now), "No runs yet.", wrap_last=True)


@jobs_command.command("history")
@click.argument("job")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number of runs.")
@reaching
def history_command(reach: Reach, job: str, limit: int) -> None:
    """List a job's runs and their outcomes, newest first."""
    with reach.client() as client:
        page = client.job_runs(job, limit=limit)
        if reach.as_json:
            print_json(page)
            return
        time_zone = client.job(job)["time_zone"]
    _print_runs(page["runs"], time_zone, datetime.now(UTC))
    if page["next_cursor"]:
        click.echo(f"There are more than {limit} runs; use --limit to see more.", err=True)


@jobs_command.command("preview")
@job_options(SCHEDULE_OPTIONS)
@reaching
def preview_command(reach: Reach, **given: Any) -> None:
    """Explain a schedule and show its next runs, without adding a job."""
    fields = _schedule(given)
    with reach.client() as client:
        preview = client.preview_schedule(**fields)
    if reach.as_json:
        print_json(preview)
        return
    click.echo(f"{schedule_words({**fields, **preview})}.")
    click.echo("\n".join(next_lines(preview, datetime.now(UTC))))


# Add and edit -------------------------------------------------------------------------------------------------------


@jobs_command.command("add")
@click.argument("name")
@click.option("--message", required=True, metavar="TEXT", help="Message to send; `-` reads stdin.")
@job_options(SCHEDULE_OPTIONS)
@job_options(OTHER_OPTIONS)
@placing
@labels_option
@reaching
def add_command(reach: Reach, name: str, message: str, wish: Wish, labels: tuple[str, ...], **given: Any) -> None:
    """Schedule a message. Prints the job's id and its next runs.

    The job's id is derived from NAME. Give --cron or --every. The message is a template with the placeholders {job},
    {due}, {date}, {run}, {last_outcome} and {last_result}. New sessions work in the current directory if the server is
    on this machine.
    """
    fields = _schedule(given)
    fields |= {"labels": list(labels)} if labels else {}
    text = given_text(message)
    if not text.strip():
        raise click.UsageError("--message must not be empty.")
    if fields.get("session", "new") not in SESSIONS and wish.is_given:
        raise click.UsageError(HAS_ITS_PLACE)
    with reach.client() as client:
        if fields.get("session", "new") in SESSIONS:
            place = choose(reach, client, wish)
            place.warn()
            fields |= place.fields
        else:
            fields["session"] = find_session(client, fields["session"], to_continue=True)
        job = client.add_job(name, text, **fields)
    if reach.as_json:
        print_json(job)
        return
    click.echo(job["id"])
    for line in (f"{schedule_words(job)}.", _where(job), *next_lines(job, datetime.now(UTC))):
        click.echo(line, err=True)


def _schedule(given: Json) -> Json:
    """The schedule fields for a new job. Uses this machine's time zone, not the server's."""
    fields = {field: value for field, value in given.items() if value not in (None, "")}
    if ("cron" in fields) == ("every_s" in fields):
        raise click.UsageError(EITHER)
    zone = fields.get("time_zone") or local_zone()
    return fields | ({"time_zone": zone} if zone else {})


def _where(job: Json) -> str:
    if job["session"] not in SESSIONS:
        return f"Sends to session {job['session']}."
    return f"Works in {home_shortened(place_words(job))}."


@jobs_command.command("edit")
@click.argument("job")
@click.option("--name", help="New name; the id stays.")
@click.option("--message", metavar="TEXT", help="Message to send; `-` reads stdin.")
@job_options(SCHEDULE_OPTIONS, may_be_empty=True)
@job_options(OTHER_OPTIONS, may_be_empty=True)
@placing
@labels_option
@reaching
def edit_command(reach: Reach, job: str, wish: Wish, labels: tuple[str, ...], **given: Any) -> None:
    """Change a job, and show the result.

    Settings that you omit keep their value. An empty value (`--until ""`) resets a setting to its default. --cron
    replaces --every and vice versa; --label replaces all labels. A change also ends a backoff. A paused job stays
    paused.
    """
    changes: Json = {
        field: DEFAULTS[field] if value == "" else value for field, value in given.items() if value is not None
    }
    _check_changes(given, changes)
    if given["time_zone"] == "":
        changes["time_zone"] = local_zone() or DEFAULTS["time_zone"]
    if labels:
        changes["labels"] = [label for label in labels if label]
    is_elsewhere = changes.get("session", "new") not in SESSIONS
    if is_elsewhere and wish.is_given:
        raise click.UsageError(HAS_ITS_PLACE)
    if not changes and not wish.is_given:
        raise click.UsageError(
            "Give at least one change, such as --every 2h. `perdure jobs edit --help` lists all options."
        )
    with reach.client() as client:
        if is_elsewhere:
            changes["session"] = find_session(client, changes["session"], to_continue=True)
            # An existing session keeps its own directory, so the settings for new sessions no longer apply.
            changes |= {"project": None, "workdir": None}
        changes |= _moved(reach, client, wish)
        show_job(client, client.change_job(job, **changes), reach.as_json)


def _check_changes(given: Json, changes: Json) -> None:
    """Reject empty required settings and conflicting ones."""
    if "message" in changes:
        changes["message"] = given_text(given["message"])
    for field in ("name", "message"):
        if given[field] is not None and not str(changes[field]).strip():
            raise click.UsageError(f"--{field} must not be empty.")
    if given["cron"] and given["every_s"]:
        raise click.UsageError(EITHER)
    if "" in (given["cron"], given["every_s"]) and not (given["cron"] or given["every_s"]):
        raise click.UsageError(f"A job needs a schedule. {EITHER}")


def _moved(reach: Reach, client: Client, wish: Wish) -> Json:
    """The fields for where new sessions work. --workdir, --project and --scratch replace each other."""
    if wish.workdir == "":
        return {"workdir": None}
    if wish.project == "":
        return {"project": None}
    if not wish.is_given:
        return {}
    return {"project": None, "workdir": None, **choose(reach, client, wish).fields}


# Pause, resume, run and remove --------------------------------------------------------------------------------------


@jobs_command.command("pause")
@click.argument("job")
@reaching
def pause_command(reach: Reach, job: str) -> None:
    """Pause a job. A run in progress continues."""
    with reach.client() as client:
        paused = client.pause_job(job)
    if reach.as_json:
        print_json(paused)
    else:
        click.echo(as_typed(f"Paused {paused['id']}. Resume it with `perdure jobs resume {paused['id']}`."))


@jobs_command.command("resume")
@click.argument("job")
@reaching
def resume_command(reach: Reach, job: str) -> None:
    """Resume a paused job. Runs that were due while it was paused are skipped."""
    with reach.client() as client:
        resumed = client.resume_job(job)
    if reach.as_json:
        print_json(resumed)
        return
    moment = resumed["next_run_at"]
    following = when(moment, resumed["time_zone"], datetime.now(UTC)) if moment else "none"
    click.echo(f"Resumed {resumed['id']}. Next run: {following}.")


@jobs_command.command("run")
@click.argument("job")
@click.option("--run-id", help="Idempotency key: the same id never starts two runs.")
@reaching
def run_command(reach: Reach, job: str, run_id: str | None) -> int:
    """Run a job now, regardless of its schedule. Prints the id of the run's session.

    The job's --overlap rule applies. Exits 1 if the run fails to start.
    """
    with reach.client() as client:
        run = _begun(client, client.run_job(job, run_id))
    if reach.as_json:
        print_json(run)
    else:
        _say_begun(run)
    return 1 if run["outcome"] == "failed" else 0


def _begun(client: Client, run: Json) -> Json:
    """Wait until the run's message was sent or failed to send. The session exists only then."""
    deadline = time.monotonic() + BEGIN_LIMIT_S
    while run["state"] == "starting" and time.monotonic() < deadline and not client.pause(LOOK_EVERY_S):
        runs = client.job_runs(run["job_id"], limit=SHOWN_RUNS)["runs"]
        run = next((other for other in runs if other["id"] == run["id"]), run)
    return run


def _say_begun(run: Json) -> None:
    if run["session_id"]:
        click.echo(run["session_id"])
    if run["state"] == "waiting":
        said = "Waiting for the previous run to end."
    elif run["outcome"] is None:
        said = f"Follow it with `perdure watch {run['session_id']}`."
    else:
        said = f"Run {run['outcome']}. {one_line(run['detail'], 500)}".strip()
    click.echo(as_typed(said), err=True)


@jobs_command.command("remove")
@click.argument("job")
@reaching
def remove_command(reach: Reach, job: str) -> None:
    """Remove a job and its history. Its sessions stay; a run in progress continues."""
    with reach.client() as client:
        client.remove_job(job)
    if reach.as_json:
        print_json({})
    else:
        click.echo(f"Removed {job} and its history. Its sessions stay.")
