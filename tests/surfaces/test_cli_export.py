"""`perdure export` and `perdure import`: moving sessions between servers as files, complete and only once."""

import base64
import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.surfaces.client import Client
from tests.harness import SharedServers
from tests.surfaces.conftest import CONFIG, ServerProcess

Json = dict[str, Any]
TIME = "2026-02-07T12:00:{:02d}.000Z"
OLD: Json = {
    "id": "3f2c9a",
    "projectId": "site",
    "status": "completed",
    "startedAt": TIME.format(0),
    "endedAt": TIME.format(9),
    "durationMs": 9000,
    "eventCount": 3,
    "exitCode": 0,
    "error": None,
    "pid": None,
}


@pytest.fixture
def other(servers: SharedServers, tmp_path: Path) -> Iterator[ServerProcess]:
    """A second, empty server."""
    with servers.borrowed(ServerProcess, CONFIG) as process:
        process.folder = tmp_path
        yield process


def said(client: Client, text: str, session: str | None = None, **how: Any) -> str:
    """Send a message and wait for its turn. Returns the session."""
    sent = client.send(text, session, **how)
    stream = client.events(sent["session_id"], sent["seq"] - 1)
    for event in stream:
        if event.type == "turn_end" and event.turn == sent["turn"]:
            stream.close()
    return str(sent["session_id"])


def shown(client: Client, session: str) -> list[Any]:
    """What a user reads of a session, turn by turn."""
    found = []
    for turn in client.transcript(session)["turns"]:
        fixed = {key: turn[key] for key in ("turn", "agent", "started_at", "ended_at", "duration_ms", "stop_reason")}
        # An import has the current text of an edited message, but not the time of the edit.
        message = {key: value for key, value in turn["message"].items() if key != "edited_at"}
        found.append((fixed, message, turn["parts"]))
    return found


def teamhq_files(folder: Path, *events: tuple[str, Json], **fields: Any) -> Path:
    """A session in TeamHQ's format."""
    metadata = {**OLD, **fields}
    place = folder / str(metadata["projectId"])
    place.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"id": number, "timestamp": TIME.format(number), "type": kind, "data": data}) + "\n"
        for number, (kind, data) in enumerate(events)
    ]
    (place / f"{metadata['id']}.json").write_text(json.dumps(metadata, indent=2))
    (place / f"{metadata['id']}.ndjson").write_text("".join(lines))
    return place / f"{metadata['id']}.ndjson"


# Export and import ----------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_sessions_move_to_another_server_and_continue_there(
    server: ServerProcess, other: ServerProcess, tmp_path: Path
) -> None:
    files, site = tmp_path / "files", tmp_path / "site"
    site.mkdir()
    with server.client() as client, other.client() as there:
        for each in (client, there):
            each.add_project(str(site), name="site")
        first = said(client, "think hm\ntool Bash ls\nedit notes.txt\nsay one \U0001f600", project="site")
        said(client, "say two", first, agent="rehearsal-stream")
        with client.connect() as http:
            path = f"/api/sessions/{first}/messages/{client.transcript(first)['turns'][0]['message']['message_id']}"
            assert http.patch(path, json={"text": "say one, edited"}).status_code == 200
            said(client, "say taken back", first)
            assert http.post(f"/api/sessions/{first}/rewind", json={"turn": 3}).status_code == 200
        second = said(client, "crash 3", parent=first)
        client.stop(second)
        done = server.run("export", "--folder", str(files))
        assert (done.returncode, done.stdout) == (0, f"Exported 2 sessions to {files}.\n")
        assert sorted(str(path.relative_to(files)) for path in files.rglob("*.*")) == sorted(
            [f"site/{first}.json", f"site/{first}.ndjson", f"no-project/{second}.json", f"no-project/{second}.ndjson"]
        )
        taken = other.run("import", str(files))
        assert (taken.returncode, taken.stdout) == (0, "2 sessions imported.\n"), taken.stderr
        for session in (first, second):
            assert shown(there, session) == shown(client, session)
            for name in ("parent", "title", "agent", "project", "status", "state", "created_at", "turn_count", "error"):
                assert there.session(session)[name] == client.session(session)[name], name
        said(there, "recall", first)
        answer = there.transcript(first)["turns"][-1]["parts"][-1]["text"]
        assert answer == 'recall 3\n- "say one, edited"\n- "say two"\n- "recall"'
        again = other.run("import", str(files), "--json")
        assert again.returncode == 0
        assert json.loads(again.stdout) == {
            "imported": [],
            "already_there": sorted([first, second], key=lambda name: name == first),
            "refused": [],
        }
        assert len(there.transcript(first)["turns"]) == 3


def test_an_export_can_be_limited_to_named_sessions_or_a_project(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        site = tmp_path / "site"
        site.mkdir()
        client.add_project(str(site), name="site")
        inside, outside = said(client, "say one", project="site"), said(client, "say two")
    named = server.run("export", inside[:-2], "--folder", str(tmp_path / "named"), "--json")
    assert [entry["session_id"] for entry in json.loads(named.stdout)["sessions"]] == [inside]
    server.run("export", "--project", "site", "--folder", str(tmp_path / "of"))
    assert [path.stem for path in (tmp_path / "of").rglob("*.json")] == [inside]
    server.run("export", "--format", "markdown", "--folder", str(tmp_path / "read"))
    assert (tmp_path / "read" / "no-project" / f"{outside}.md").read_text().startswith("# say two")
    assert not list((tmp_path / "read").rglob("*.json"))


def test_a_session_is_exported_remotely_and_replaces_an_earlier_export(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        session = said(client, "say one")
        afar = ("--url", server.url, "--token", server.token, "--data", str(tmp_path / "none"))
        files = tmp_path / "files"
        assert server.run("export", *afar, "--folder", str(files)).returncode == 0
        said(client, "say two", session)
        assert server.run("export", *afar, "--folder", str(files)).returncode == 0
    metadata = json.loads((files / "no-project" / f"{session}.json").read_text())
    assert (metadata["turnCount"], [turn["turnNumber"] for turn in metadata["turns"]]) == (2, [1, 2])
    assert [path.name for path in (files / "no-project").iterdir() if path.name.startswith(".")] == []


def test_a_session_keeps_its_options_where_its_agent_is_the_same(
    server: ServerProcess, other: ServerProcess, tmp_path: Path
) -> None:
    with server.client() as client, other.client() as there:
        session = said(client, "say one")
        for config_id, value in (("model", "rehearsal-2"), ("mode", "auto"), ("effort", "high")):
            client.set_config(session, config_id, value)
        assert server.run("export", session, "--folder", str(tmp_path / "files")).returncode == 0
        assert other.run("import", str(tmp_path / "files")).returncode == 0
        taken = there.session(session)
        assert (taken["model"], taken["mode"], taken["config"]) == ("rehearsal-2", "auto", {"effort": "high"})
        there.erase(session)
        assert other.run("import", str(tmp_path / "files"), "--agent", "rehearsal-stream").returncode == 0
        taken = there.session(session)
        assert (taken["agent"], taken["model"], taken["mode"], taken["config"]) == ("rehearsal-stream", None, None, {})


def test_a_turn_that_was_running_during_the_export_is_imported_as_failed(
    server: ServerProcess, other: ServerProcess, tmp_path: Path
) -> None:
    with server.client() as client, other.client() as there:
        session = said(client, "say one")
        client.send("say partly\nhang", session)
        for event in client.events(session):
            if "partly" in json.dumps(event.data):
                break
        assert server.run("export", session, "--folder", str(tmp_path / "files")).returncode == 0
        assert other.run("import", str(tmp_path / "files")).returncode == 0
        turn = there.transcript(session)["turns"][1]
        assert turn["stop_reason"] == "failed" and turn["error"] == "Server restarted while session was running"
        assert "partly" in json.dumps(turn["parts"])
        assert there.session(session)["state"] == "idle"
        said(there, "recall", session)


def test_answered_questions_are_exported_and_an_open_one_is_not_asked_again(
    server: ServerProcess, other: ServerProcess, tmp_path: Path
) -> None:
    with server.client() as client, other.client() as there:
        session = asking(client, "ask Which colour? | Red | Blue")
        [prompt] = client.prompts(session)
        client.answer(session, prompt["prompt_id"], {"answers": {prompt["questions"][0]["question_id"]: "Blue"}})
        # From the beginning, because it may end before the command looks.
        stream = client.events(session, 0)
        next(event for event in stream if event.type == "turn_end")
        stream.close()
        before = shown(client, session)
        asking(client, "ask Which size? | S | L", session)
        assert server.run("export", session, "--folder", str(tmp_path / "files")).returncode == 0
        taken = other.run("import", str(tmp_path / "files"))
        assert taken.returncode == 0, taken.stderr
        assert shown(there, session)[:1] == before
        assert there.prompts(session) == [] and there.session(session)["state"] == "idle"
        assert "Which colour? *already answered: Blue*" in there.transcript_markdown(session)
        said(there, "recite", session)
        assert "Which colour? (already answered: Blue)" in json.dumps(there.transcript(session)["turns"][2]["parts"])


def asking(client: Client, text: str, session: str | None = None) -> str:
    """Send a message and wait for a prompt. Returns the session."""
    sent = client.send(text, session)
    stream = client.events(sent["session_id"], sent["seq"] - 1)
    next(event for event in stream if event.type == "pending_prompt")
    stream.close()
    return str(sent["session_id"])


def test_attachments_are_exported_with_their_message(
    server: ServerProcess, other: ServerProcess, tmp_path: Path
) -> None:
    given = [{"name": "a.txt", "data": base64.b64encode(b"hello").decode()}, {"path": "/srv/notes.txt"}]
    with server.client() as client, other.client() as there, client.connect() as http:
        session = said(client, "say one")
        sent = http.post(f"/api/sessions/{session}/messages", json={"text": "say two", "attachments": given}).json()
        for event in client.events(session, sent["seq"] - 1):
            if event.type == "turn_end":
                break
        assert server.run("export", "--folder", str(tmp_path / "files")).returncode == 0
        taken = other.run("import", str(tmp_path / "files"))
        assert taken.returncode == 0, taken.stderr
        kept, named = there.transcript(session)["turns"][1]["message"]["attachments"]
        assert (kept["name"], kept["size"], there.attachment(session, kept["file"])) == ("a.txt", 5, b"hello")
        assert str(other.data) in kept["path"] and named == {"path": "/srv/notes.txt"}


@pytest.mark.parametrize(
    "arguments",
    [(), ("a", "b"), ("a", "--project", "x"), ("--folder", "x", "-o", "y"), ("--folder", "x", "--format", "json")],
)
def test_conflicting_export_options_are_a_usage_error(server: ServerProcess, arguments: tuple[str, ...]) -> None:
    assert server.run("export", *arguments).returncode == 2


def test_a_folder_that_cannot_be_written_is_reported(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        said(client, "say one")
    (tmp_path / "file").write_text("in the way")
    done = server.run("export", "--folder", str(tmp_path / "file"))
    assert done.returncode == 1 and "Can't write" in done.stderr


# TeamHQ's files -------------------------------------------------------------------------------------------------------


def test_old_and_new_teamhq_sessions_are_imported(server: ServerProcess, tmp_path: Path) -> None:
    files, site = tmp_path / "files", tmp_path / "site"
    site.mkdir()
    teamhq_files(files, ("system", {"message": "Session started"}), ("assistant_text", {"text": "Hello."}))
    idle: Json = {"id": "idle-1", "status": "running", "state": "idle", "endedAt": None, "durationMs": None}
    teamhq_files(
        files,
        ("turn_start", {"turnNumber": 1, "message": "say one"}),
        ("assistant_text", {"text": "one", "delta": True}),
        ("turn_end", {"turnNumber": 1, "exitCode": 0}),
        **idle,
        turnCount=1,
        cliSessionId="abc",
    )
    with server.client() as client:
        client.add_project(str(site), name="site", agent="rehearsal")
        done = server.run("import", str(files))
        assert (done.returncode, done.stdout) == (0, "2 sessions imported.\n"), done.stderr
        ended = client.session("3f2c9a")
        assert (ended["status"], ended["state"], ended["project"]) == ("completed", "ended", "site")
        assert (ended["started_at"], ended["ended_at"]) == (TIME.format(1), TIME.format(9))
        assert client.transcript("3f2c9a")["turns"][0]["parts"][0]["text"] == "Hello."
        assert (client.session("idle-1")["state"], client.session("idle-1")["workdir"]) == ("idle", str(site))
        said(client, "recall", "idle-1")
        assert client.transcript("idle-1")["turns"][1]["parts"][0]["text"] == 'recall 2\n- "say one"\n- "recall"'
        with client.connect() as http:
            listed = http.get("/api/projects/site/sessions").json()["sessions"]
        assert {entry["id"]: entry["status"] for entry in listed} == {"3f2c9a": "completed", "idle-1": "running"}


def test_the_folder_of_a_single_project_can_be_imported(server: ServerProcess, tmp_path: Path) -> None:
    teamhq_files(tmp_path / "files")
    done = server.run("import", str(tmp_path / "files" / "site"), "--without-project", "--agent", "rehearsal-stream")
    assert done.returncode == 0, done.stderr
    with server.client() as client:
        found = client.session("3f2c9a")
    assert (found["project"], found["agent"], found["turn_count"]) == (None, "rehearsal-stream", 0)


# Broken files ---------------------------------------------------------------------------------------------------------


def test_a_broken_file_is_named_with_its_line_and_the_others_are_imported(
    server: ServerProcess, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    good = ("assistant_text", {"text": "fine"})
    teamhq_files(files, good, id="good")
    torn = teamhq_files(files, good, id="torn")
    torn.write_text(torn.read_text() + '{"id": 1, "timest')
    empty = teamhq_files(files, good, id="empty").with_suffix(".json")
    empty.write_text("")
    teamhq_files(files, good, id="alone").unlink()
    renamed = teamhq_files(files, good, id="before").with_suffix(".json")
    renamed.rename(renamed.with_name("after.json"))
    done = server.run("import", str(files), "--without-project")
    assert (done.returncode, done.stdout) == (1, "1 session imported, 4 rejected.\n")
    problems = done.stderr.splitlines()
    assert len(problems) == 4
    assert any(f"{torn}, line 2: not valid JSON" in line for line in problems)
    assert any(f"{empty}: not valid JSON" in line for line in problems)
    assert any("alone.ndjson: can't read the file" in line for line in problems)
    assert any("the id is 'before', but the file is named 'after'" in line for line in problems)
    assert sum("import again" in line for line in problems) == 3
    torn.write_text("".join(torn.read_text().splitlines(keepends=True)[:1]))
    again = server.run("import", str(files), "--without-project", "--json")
    found = json.loads(again.stdout)
    assert (found["imported"], found["already_there"], len(found["refused"])) == (["torn"], ["good"], 3)
    assert {Path(entry["file"]).name: entry["line"] for entry in found["refused"]} == {
        "after.json": None,
        "alone.ndjson": None,
        "empty.json": None,
    }


def test_a_missing_project_is_reported_and_can_be_replaced(server: ServerProcess, tmp_path: Path) -> None:
    files = tmp_path / "files"
    teamhq_files(files)
    done = server.run("import", str(files))
    assert done.returncode == 1 and "there is no project 'site' here" in done.stderr
    assert "perdure projects add" in done.stderr
    with server.client() as client:
        assert client.sessions()["sessions"] == []
        project = client.add_project(str(tmp_path), name="another")["id"]
        assert server.run("import", str(files), "--project", "another").returncode == 0
        assert client.session("3f2c9a")["project"] == project


def test_a_dry_run_reads_everything_and_changes_nothing(server: ServerProcess, tmp_path: Path) -> None:
    files = tmp_path / "files"
    teamhq_files(files)
    teamhq_files(files, id="not a name")
    done = server.run("import", str(files), "--without-project", "--dry-run")
    assert (done.returncode, done.stdout) == (1, "1 session can be imported, 1 rejected.\n")
    with server.client() as client:
        assert client.sessions()["sessions"] == []
    server.run("import", str(files), "--without-project")
    done = server.run("import", str(files), "--without-project", "--dry-run")
    assert done.stdout == "0 sessions can be imported, 1 already there, 1 rejected.\n"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nothing-here",), 1, "There is no folder"),
        (("{empty}",), 1, "contains no sessions"),
        (("{empty}", "--project", "x", "--without-project"), 2, "not both"),
        (("{files}", "--project", "x"), 1, "There is no project 'x'"),
        (("{files}", "--agent", "x"), 1, "There is no agent 'x'"),
    ],
)
def test_an_import_that_cannot_start_says_why(
    server: ServerProcess, tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    empty, files = tmp_path / "empty", tmp_path / "files"
    empty.mkdir()
    teamhq_files(files)
    done = server.run("import", *(each.format(empty=empty, files=files) for each in arguments))
    assert done.returncode == code and words in done.stderr


CONTROLS = "\x1b[2J\x1b]0;title\x07\x9b31m\x9d0;x\x9c\x7f\x08\u202e"
"""Clear the screen, set the title, C1 colours, and bidi text."""


@pytest.mark.parametrize("how", ["ndjson", "json", "markdown"])
def test_an_export_to_a_terminal_has_no_control_characters(server: ServerProcess, how: str) -> None:
    with server.client() as client:
        session = said(client, f"say before {CONTROLS}after")
    shown = on_a_terminal(server, "export", session, "--format", how)
    assert "before" in shown and "after" in shown
    assert not set(shown) & set(CONTROLS) - set("[2J]0;title31mx"), ascii(shown)
    exact = server.run("export", session, "--format", how, "-o", "kept")
    assert exact.returncode == 0, exact.stderr
    kept = (server.folder / "kept").read_text(encoding="utf-8")
    piped = server.run("export", session, "--format", how).stdout
    assert piped == kept
    assert CONTROLS in (
        kept if how == "markdown" else json.loads('"' + kept.partition("before ")[2].partition("after")[0] + '"')
    )


def test_json_on_a_terminal_has_no_control_characters(server: ServerProcess) -> None:
    with server.client() as client:
        session = said(client, f"say before {CONTROLS}after")
    shown = on_a_terminal(server, "show", session, "--json")
    assert "before" in shown
    assert not set(shown) & set(CONTROLS) - set("[2J]0;title31mx"), ascii(shown)


def on_a_terminal(server: ServerProcess, *arguments: str) -> str:
    """The output of a command whose stdout is a terminal."""
    ours, terminal = pty.openpty()
    with subprocess.Popen(
        server.command(*arguments), stdin=terminal, stdout=terminal, env=server.environment, cwd=server.folder
    ) as process:
        os.close(terminal)
        written = b""
        try:
            while data := os.read(ours, 65536):
                written += data
        except OSError:
            pass  # reading from a closed terminal fails
        assert process.wait(60) == 0
    os.close(ours)
    return written.decode()
