"""`perdure jobs`: messages on a schedule, added, shown, changed, paused, run and removed from the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.surfaces.cli.jobs import Duration
from tests.harness import SOURCE, eventually
from tests.surfaces.conftest import COMMAND_LIMIT_S, ServerProcess
from tests.surfaces.terminal import Terminal

HOURLY = ("--every", "1h", "--message")


def add(server: ServerProcess, name: str, *arguments: str) -> Any:
    done = server.run("jobs", "add", name, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def show(server: ServerProcess, job: str) -> Any:
    return json.loads(server.run("jobs", "show", job, "--json").stdout)


def history(server: ServerProcess, job: str, *arguments: str) -> Any:
    return json.loads(server.run("jobs", "history", job, "--json", *arguments).stdout)["runs"]


def run_to_its_end(server: ServerProcess, job: str) -> Any:
    run = json.loads(server.run("jobs", "run", job, "--json").stdout)

    def ended() -> Any:
        return next(each for each in history(server, job) if each["id"] == run["id"])["outcome"]

    eventually(ended, f"the run of {job} has ended")
    return next(each for each in history(server, job) if each["id"] == run["id"])


# Adding -------------------------------------------------------------------------------------------------------------


def test_a_new_job_prints_its_id_schedule_directory_and_next_five_runs(server: ServerProcess) -> None:
    words = ["--cron", "0 9 * * 1-5", "--zone", "Europe/Berlin", "--message", "say hello"]
    done = server.run("jobs", "add", "Morning report", *words)
    assert (done.returncode, done.stdout) == (0, "morning-report\n")
    schedule, place, heading, *runs = done.stderr.splitlines()
    assert schedule == "At 09:00 on Monday through Friday, Europe/Berlin (0 9 * * 1-5)."
    assert place == f"Works in {server.folder}."
    assert heading == "Next runs:" and len(runs) == 5
    assert all(", 09:00 CE" in run and "(in " in run for run in runs)


def test_every_setting_has_an_option(server: ServerProcess) -> None:
    job = add(
        server, "All", "--every", "1h30m", "--message", "say hello", "--zone", "Asia/Tokyo",
        "--starts-at", "2030-01-01T09:00", "--until", "2031-01-01", "--max-runs", "7", "--jitter", "5m",
        "--missed", "all", "--missed-max", "3", "--overlap", "interrupt", "--session", "same", "--agent", "rehearsal",
        "--model", "rehearsal-2", "--mode", "auto", "--label", "a", "--label", "b", "--max-failures", "2",
        "--keep-sessions", "0", "--keep-days", "30", "--scratch",
    )  # fmt: skip
    expected = {
        "cron": None, "every_s": 5400, "time_zone": "Asia/Tokyo", "starts_at": "2030-01-01T00:00:00.000Z",
        "until": "2030-12-31T15:00:00.000Z", "max_runs": 7, "jitter_s": 300, "missed": "all", "missed_max": 3,
        "overlap": "interrupt", "session": "same", "agent": "rehearsal", "model": "rehearsal-2", "mode": "auto",
        "project": None, "workdir": None, "labels": ["a", "b"], "max_failures": 2, "keep_sessions": 0, "keep_days": 30,
    }  # fmt: skip
    assert job | expected == job


def test_the_message_may_come_from_stdin(server: ServerProcess) -> None:
    done = server.run("jobs", "add", "Piped", *HOURLY, "-", "--json", stdin="say one\nsay two\n")
    assert json.loads(done.stdout)["message"] == "say one\nsay two\n"
    assert server.run("jobs", "add", "Empty", *HOURLY, "-", stdin=" \n").returncode == 2


def test_the_callers_time_zone_is_used_and_not_the_servers(server: ServerProcess) -> None:
    environment = {**server.environment, "TZ": "Pacific/Auckland"}
    for words in (["add", "Here", "--message", "say hello"], ["preview"]):
        command = server.command("jobs", *words, "--cron", "@daily", "--json")
        # In a new process: a warm command has already read its time zone.
        done = subprocess.run(
            command, env=environment, cwd=server.folder, capture_output=True, text=True, timeout=COMMAND_LIMIT_S
        )
        assert json.loads(done.stdout)["time_zone"] == "Pacific/Auckland", done.stderr


def test_a_time_zone_that_has_no_name_is_not_guessed() -> None:
    program = "from perdure.surfaces.cli.jobs import local_zone; print(local_zone())"
    for zone, expected in (("Europe/Berlin", "Europe/Berlin"), ("ABC-7:30", "None")):
        # In a new process: the name of the zone is looked up once.
        environment = {**os.environ, "PYTHONPATH": SOURCE, "TZ": zone}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=COMMAND_LIMIT_S)
        assert done.stdout.strip() == expected, done.stderr


def test_a_job_uses_the_same_directory_as_a_new_session(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    server.run("projects", "add", str(tmp_path / "site"))
    for options, cwd, expected in (
        ((), tmp_path, (None, str(tmp_path))),
        ((), tmp_path / "site", ("site", str(tmp_path / "site"))),
        (("--workdir", "site"), tmp_path, (None, str(tmp_path / "site"))),
        (("--project", "site"), tmp_path, ("site", None)),
        (("--scratch",), tmp_path, (None, None)),
    ):
        done = server.run("jobs", "add", "Placed", *HOURLY, "say hi", *options, "--json", cwd=cwd)
        job = json.loads(done.stdout)
        assert (job["project"], job["workdir"]) == expected
    refused = server.run("jobs", "add", "Placed", *HOURLY, "say hi", cwd=Path("/"))
    assert refused.returncode == 2 and "--scratch" in refused.stderr


def test_a_job_may_use_an_existing_session(server: ServerProcess) -> None:
    session = server.create()
    done = server.run("jobs", "add", "Continue", *HOURLY, "say hi", "--session", session[:8])
    assert f"Sends to session {session}." in done.stderr
    assert show(server, "continue")["session"] == session
    assert run_to_its_end(server, "continue")["session_id"] == session
    wrong = server.run("jobs", "add", "Continue", *HOURLY, "say hi", "--session", session, "--workdir", ".")
    assert wrong.returncode == 2 and "already has a directory" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "Give either --cron or --every."),
        (("--cron", "@daily", "--every", "1h"), 2, "Give either --cron or --every."),
        (("--every", "30"), 2, "'30' is not a duration. Use a number with a unit, such as 90s, 30m, 2h or 1d."),
        (("--every", "0s"), 1, "--every must be a whole number >= 1"),
        (("--cron", "0 9"), 1, "--cron must have five fields"),
        (("--cron", "99 9 * * *"), 1, "--cron '99 9 * * *': the minute is wrong."),
        (("--cron", "0 0 30 2 *"), 1, "--cron '0 0 30 2 *' never fires"),
        (("--every", "1h", "--zone", "Mars/Olympus"), 1, "There is no time zone 'Mars/Olympus'."),
        (("--every", "1h", "--until", "2020-01-01"), 1, "The job would never run: --until is before its first run."),
        (("--every", "1h", "--starts-at", "soon"), 1, "--starts-at 'soon' is not a time."),
        (("--every", "1h", "--jitter", "2d"), 1, "--jitter must be"),
        (("--every", "1h", "--max-runs", "0"), 1, "--max-runs must be"),
        (("--every", "1h", "--missed", "maybe"), 2, "--missed"),
        (("--every", "1h", "--agent", "nobody"), 1, "There is no agent 'nobody'."),
        (("--every", "1h", "--session", "s_none"), 1, "There is no session 's_none'."),
    ],
)
def test_an_invalid_schedule_is_refused_in_terms_of_the_options(
    server: ServerProcess, arguments: tuple[str, ...], code: int, words: str
) -> None:
    refused = server.run("jobs", "add", "Wrong", "--message", "say hi", *arguments)
    assert (refused.returncode, refused.stdout) == (code, "")
    assert words in refused.stderr and "_s" not in refused.stderr.replace("s_none", "")
    assert json.loads(server.run("jobs", "--json").stdout) == {"jobs": []}


@pytest.mark.parametrize(
    ("given", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86400), ("1w", 604800), ("1h 30M", 5400)]
)
def test_a_duration_is_a_number_with_a_unit(given: str, seconds: int) -> None:
    assert Duration().convert(given, None, None) == seconds


# Showing ------------------------------------------------------------------------------------------------------------


def test_a_schedule_is_previewed_without_a_job(server: ServerProcess) -> None:
    done = server.run("jobs", "preview", "--cron", "30 4 1 * *", "--zone", "America/Sao_Paulo")
    schedule, heading, *runs = done.stdout.splitlines()
    assert schedule == "At 04:30 on the first day of every month, America/Sao_Paulo (30 4 1 * *)."
    assert heading == "Next runs:" and len(runs) == 5 and all(", 04:30 UTC-03 (in " in run for run in runs)
    never = server.run("jobs", "preview", "--every", "2h", "--until", "2020-01-01")
    assert never.returncode == 1 and "--until is before its first run" in never.stderr
    assert server.run("jobs", "preview").returncode == 2
    assert json.loads(server.run("jobs", "--json").stdout) == {"jobs": []}


def test_jobs_are_listed_with_their_state_next_and_last_run(server: ServerProcess) -> None:
    empty = server.run("jobs")
    assert empty.stdout == "" and "There are no jobs. Add one with `perdure jobs add" in empty.stderr
    add(server, "Hourly", *HOURLY, "say hello")
    run_to_its_end(server, "hourly")
    for words in (["jobs"], ["jobs", "list"], ["jobs", "ls"]):
        heading, row = server.run(*words).stdout.splitlines()
        assert heading.split() == ["JOB", "STATE", "NEXT", "RUN", "LAST", "RUN", "SCHEDULE"]
        assert row.startswith("hourly  active  in ") and "completed" in row and row.endswith("Every hour")
    assert [job["id"] for job in json.loads(server.run("jobs", "list", "--json").stdout)["jobs"]] == ["hourly"]


def test_a_job_that_paused_itself_or_backs_off_says_why_in_the_list(server: ServerProcess) -> None:
    add(server, "Fragile", *HOURLY, "crash", "--max-failures", "1")
    add(server, "Slower", *HOURLY, "crash")
    for job in ("fragile", "slower"):
        assert run_to_its_end(server, job)["outcome"] == "failed"
    shown = server.run("jobs").stdout.splitlines()
    assert shown[1].startswith("fragile  paused") and shown[2].startswith("slower   backing off")
    assert shown[3].startswith("fragile: Paused after a failed run. ")
    assert shown[3].endswith("Resume it with `perdure jobs resume fragile`.")
    assert shown[4].startswith("slower: Skips runs until ") and shown[4].endswith(", after a failed run.")
    details = server.run("jobs", "show", "fragile").stdout
    assert "Paused after a failed run." in details and "Next runs: none." in details
    assert server.run("jobs", "resume", "fragile").stdout.startswith("Resumed fragile. Next run: ")
    assert show(server, "fragile")["state"] == "active"


def test_a_job_is_shown_with_its_settings_next_runs_and_newest_runs(server: ServerProcess) -> None:
    add(server, "Report", "--cron", "0 9 * * *", "--zone", "UTC", "--message", "say run {run}", "--label", "daily")
    run = run_to_its_end(server, "report")
    shown = server.run("jobs", "report").stdout
    assert shown == server.run("jobs", "show", "report").stdout
    for words in ("At 09:00 every day, UTC (0 9 * * *)", "say run {run}", f"working directory  {server.folder}"):
        assert words in shown
    assert shown.count(", 09:00 UTC (in ") == 5
    (row,) = [line for line in shown.splitlines() if run["session_id"] in line]
    assert "completed" in row and "manual" in row and " s  " in row
    assert server.text(run["session_id"], 1) == "run 1"
    assert server.session(run["session_id"])["labels"] == ["daily", "job:report"]


def test_the_history_is_limited_and_says_that_there_is_more(server: ServerProcess) -> None:
    add(server, "Report", *HOURLY, "say hi", "--overlap", "interrupt")
    assert "No runs yet." in server.run("jobs", "history", "report").stderr
    ids = [run_to_its_end(server, "report")["id"] for _ in range(3)]
    assert [run["id"] for run in history(server, "report")] == ids[::-1]
    done = server.run("jobs", "history", "report", "--limit", "2")
    assert len(done.stdout.splitlines()) == 3 and "There are more than 2 runs" in done.stderr
    assert len(history(server, "report", "--limit", "1")) == 1


def test_on_a_terminal_a_table_shows_shortened_session_ids(server: ServerProcess) -> None:
    add(server, "Report", *HOURLY, "say hi")
    session = run_to_its_end(server, "report")["session_id"]
    with Terminal(server.command("jobs", "history", "report"), server.environment, server.folder) as terminal:
        assert terminal.wait_end() == 0
        assert session[:10] in terminal.text and session not in terminal.text


# Changing -----------------------------------------------------------------------------------------------------------


def test_each_setting_can_be_changed_and_reset_with_an_empty_value(server: ServerProcess) -> None:
    before = add(server, "Report", *HOURLY, "say hi", "--scratch")
    changed = server.run(
        "jobs", "edit", "report", "--name", "Other", "--message", "say bye", "--cron", "@daily", "--zone", "Asia/Tokyo",
        "--until", "2040-01-01", "--jitter", "1m", "--missed", "skip", "--overlap", "skip", "--session", "same",
        "--agent", "rehearsal", "--label", "a", "--keep-days", "3", "--max-runs", "9", "--json",
    )  # fmt: skip
    job = json.loads(changed.stdout)
    assert (job["id"], job["name"], job["cron"], job["every_s"]) == ("report", "Other", "@daily", None)
    assert (job["time_zone"], job["jitter_s"], job["missed"], job["session"]) == ("Asia/Tokyo", 60, "skip", "same")
    assert (job["labels"], job["keep_days"], job["max_runs"]) == (["a"], 3, 9)
    taken = [
        "--until",
        "--jitter",
        "--missed",
        "--overlap",
        "--session",
        "--agent",
        "--label",
        "--keep-days",
        "--max-runs",
    ]
    away = [word for option in taken for word in (option, "")]
    back = json.loads(server.run("jobs", "edit", "report", "--every", "1h", *away, "--json").stdout)
    same = ("every_s", "cron", "until", "jitter_s", "missed", "overlap", "session", "agent", "labels", "keep_days")
    assert {field: back[field] for field in same} == {field: before[field] for field in same}
    assert back["message"] == "say bye"


def test_edit_shows_the_changed_job(server: ServerProcess) -> None:
    add(server, "Report", *HOURLY, "say hi")
    shown = server.run("jobs", "edit", "report", "--every", "2d").stdout
    assert "Every 2 days" in shown and "Next runs:" in shown


def test_workdir_project_and_scratch_replace_each_other(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    server.run("projects", "add", str(tmp_path / "site"))
    add(server, "Report", *HOURLY, "say hi")
    session = server.create()
    for options, expected in (
        (("--project", "site"), ("site", None)),
        (("--project", ""), (None, None)),
        (("--workdir", "site"), (None, str(tmp_path / "site"))),
        (("--session", session), (None, None)),
        (("--session", "new", "--workdir", "."), (None, str(tmp_path))),
        (("--workdir", ""), (None, None)),
        (("--project", "site"), ("site", None)),
        (("--scratch",), (None, None)),
    ):
        done = server.run("jobs", "edit", "report", *options, "--json")
        job = json.loads(done.stdout)
        assert (job["project"], job["workdir"]) == expected, options


def test_an_invalid_change_changes_nothing(server: ServerProcess) -> None:
    before = add(server, "Report", *HOURLY, "say hi")
    for arguments, code, words in (
        ((), 2, "Give at least one change"),
        (("--name", " "), 2, "--name must not be empty."),
        (("--message", ""), 2, "--message must not be empty."),
        (("--every", ""), 2, "A job needs a schedule."),
        (("--cron", "@daily", "--every", "1h"), 2, "Give either --cron or --every."),
        (("--session", "last", "--scratch"), 2, "already has a directory"),
        (("--cron", "@sometimes"), 1, "--cron '@sometimes' is unknown."),
        (("--zone", "Mars/Olympus"), 1, "There is no time zone 'Mars/Olympus'."),
    ):
        refused = server.run("jobs", "edit", "report", *arguments)
        assert refused.returncode == code and words in refused.stderr, (arguments, refused.stderr)
    assert show(server, "report") == before


# Pausing, running and removing --------------------------------------------------------------------------------------


def test_a_job_is_paused_resumed_and_removed(server: ServerProcess) -> None:
    add(server, "Report", *HOURLY, "say hi")
    assert server.run("jobs", "pause", "report").stdout.startswith("Paused report. Resume it with")
    assert show(server, "report")["state"] == "paused"
    assert json.loads(server.run("jobs", "resume", "report", "--json").stdout)["state"] == "active"
    assert json.loads(server.run("jobs", "pause", "report", "--json").stdout)["paused_by"] == "person"
    session = run_to_its_end(server, "report")["session_id"]
    assert server.run("jobs", "remove", "report").stdout == "Removed report and its history. Its sessions stay.\n"
    assert server.session(session)["turn_count"] == 1
    add(server, "Report", *HOURLY, "say hi")
    assert json.loads(server.run("jobs", "rm", "report", "--json").stdout) == {}


def test_a_manual_run_prints_its_session_and_starts_once_for_each_run_id(server: ServerProcess) -> None:
    add(server, "Report", *HOURLY, "permit Deploy")
    done = server.run("jobs", "run", "report", "--run-id", "mine")
    session = done.stdout.strip()
    assert done.returncode == 0 and f"perdure watch {session}" in done.stderr
    assert server.prompt(session)["title"]
    assert server.run("jobs", "run", "report", "--run-id", "mine").stdout == done.stdout
    waiting = server.run("jobs", "run", "report")
    assert (waiting.returncode, waiting.stdout) == (0, "")
    assert waiting.stderr == "Waiting for the previous run to end.\n"
    refused = server.run("jobs", "run", "report")
    assert refused.returncode == 1 and "another run is already waiting" in refused.stderr
    assert [run["state"] for run in history(server, "report")] == ["waiting", "running"]


def test_a_run_that_cannot_start_is_reported_immediately(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    add(server, "Report", *HOURLY, "say hi", "--workdir", "gone")
    (tmp_path / "gone").rmdir()
    done = server.run("jobs", "run", "report")
    assert done.returncode == 1 and "Run failed. " in done.stderr and "gone" in done.stderr


@pytest.mark.parametrize("command", ["show", "edit --every 1h", "pause", "resume", "run", "remove", "history"])
def test_a_missing_job_is_reported(server: ServerProcess, command: str) -> None:
    word, *options = command.split()
    refused = server.run("jobs", word, "nothing", *options)
    assert refused.returncode == 1
    assert refused.stderr == "perdure: There is no job 'nothing'. `perdure jobs` lists them. (not_found)\n"


def test_command_names_of_other_tools_lead_to_jobs(server: ServerProcess) -> None:
    for word in ("cron", "schedule", "timer"):
        assert "Did you mean `perdure jobs`?" in server.run(word).stderr
