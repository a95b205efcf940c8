"""Managing sessions (rename, label, archive, erase), projects, sign-ins, files and agents."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.harness import eventually
from tests.signing import signed_in
from tests.surfaces.conftest import COMMAND_LIMIT_S, ServerProcess
from tests.surfaces.terminal import Terminal


@pytest.fixture
def three(server: ServerProcess) -> list[str]:
    return [server.create(title=f"Number {number}") for number in (1, 2, 3)]


def listed(server: ServerProcess, *arguments: str) -> set[str]:
    return {entry["id"] for entry in json.loads(server.run("sessions", "--json", *arguments).stdout)["sessions"]}


def test_a_title_is_given_as_arguments_or_on_stdin(server: ServerProcess, three: list[str]) -> None:
    done = server.run("rename", three[0], "The", "release")
    assert (done.returncode, done.stdout) == (0, f"Renamed {three[0]} to: The release\n")
    assert (
        json.loads(server.run("rename", three[0], "-", "--json", stdin="Two\nlines\n").stdout)["title"] == "Two lines"
    )
    for title, code in ((" ", 2), ("x" * 501, 1)):
        assert server.run("rename", three[0], title).returncode == code
    server.post(f"/api/sessions/{three[0]}/stop")
    assert server.run("rename", three[0], "After its end").returncode == 0


def test_labels_are_added_removed_and_found_on_several_sessions(server: ServerProcess, three: list[str]) -> None:
    assert server.run("label", *three, "--add", "a", "--add", "b").returncode == 0
    assert server.run("label", three[0], three[1], "--remove", "a", "--add", "c").returncode == 0
    shown = json.loads(server.run("label", *three, three[0], "--json").stdout)["sessions"]
    assert [entry["labels"] for entry in shown] == [["b", "c"], ["b", "c"], ["a", "b"]]
    assert listed(server, "--label", "c") == set(three[:2])
    assert server.run("label", three[2], "--clear", "--add", "z").stdout.splitlines()[1].split()[1] == "z"
    for wrong in (["--add", ""], ["--add", "a", "--remove", "a"]):
        assert server.run("label", three[0], *wrong).returncode == 2


def test_a_misspelt_name_among_several_changes_nothing(server: ServerProcess, three: list[str]) -> None:
    for words in (["archive"], ["label", "--add", "x"], ["erase", "--yes"]):
        done = server.run(words[0], three[0], "s_nothing", three[1], *words[1:])
        assert done.returncode == 1 and "'s_nothing'" in done.stderr
    assert listed(server) == set(three) and listed(server, "--label", "x") == set()


def test_the_sessions_of_a_directory_are_listed(server: ServerProcess, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    session = server.run("send", "--workdir", str(place), "say here").stdout.strip()
    server.run("send", "--scratch", "say elsewhere")
    assert listed(server, "--workdir", str(place)) == {session}
    assert listed(server, "--workdir", ".") == set()


def test_archived_sessions_are_left_out_of_the_list_until_asked_for(server: ServerProcess, three: list[str]) -> None:
    assert server.run("archive", *three[:2]).stdout == "Archived 2 sessions.\n"
    assert listed(server) == {three[2]}
    assert listed(server, "--archived") == set(three[:2])
    assert listed(server, "--all") == set(three)
    assert server.run("unarchive", three[0]).stdout == "Unarchived 1 session.\n"
    assert listed(server) == {three[0], three[2]}


def test_scripts_erase_with_yes_and_nothing_is_left(server: ServerProcess, three: list[str]) -> None:
    refused = server.run("erase", *three[:2])
    assert refused.returncode == 2 and "--yes" in refused.stderr and listed(server) == set(three)
    done = server.run("erase", *three[:2], "--yes", "--json")
    assert json.loads(done.stdout) == {"erased": three[:2]}
    assert listed(server, "--all") == {three[2]}
    assert server.run("erase", three[0], "-y").returncode == 1


@pytest.mark.parametrize(
    ("answer", "code", "said", "left"), [("n", 1, "Nothing was erased.", 3), ("y", 0, "Erased 1", 2)]
)
def test_erase_asks_for_confirmation(
    server: ServerProcess, three: list[str], answer: str, code: int, said: str, left: int
) -> None:
    with Terminal(server.command("erase", three[0]), server.environment, server.folder) as terminal:
        assert "Number 1" in terminal.wait("Permanently delete 1 session? [y/N]:")
        terminal.enter(answer)
        assert terminal.wait_end() == code and said in terminal.text
    assert len(listed(server)) == left


def test_the_model_in_use_has_a_star_and_another_is_chosen(server: ServerProcess) -> None:
    session = server.create()
    server.turn(session, "say hello")
    assert server.run("model", session).stdout == "* rehearsal-1  Rehearsal 1\n  rehearsal-2  Rehearsal 2\n"
    assert server.run("model", "last", "rehearsal-2").stdout == "Set model to rehearsal-2.\n"
    shown = json.loads(server.run("model", session, "--json").stdout)
    assert shown["model"] == "rehearsal-2" and [one["value"] for one in shown["models"]] == [
        "rehearsal-1",
        "rehearsal-2",
    ]
    assert server.run("mode", session, "auto").returncode == 0
    assert server.run("mode", session).stdout.splitlines()[1].startswith("* auto")
    assert server.run("mode", session, "nonsense").returncode == 1


def test_a_project_is_shown_and_each_setting_changed_or_reset(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    added = server.run("projects", "add", "site", "--rule", "allow Bash:git *", "--limit", "turn_timeout_s=60")
    assert added.stdout == "site\n", added.stderr
    settings = ["--agent", "rehearsal", "--instructions", "Be brief.", "--history-scope", "agent"]
    settings += ["--rule", "deny Bash", "--limit", "turn_timeout_s=", "--limit", "on_idle=end", "--name", "The site"]
    changed = json.loads(server.run("projects", "edit", "site", *settings, "--json").stdout)
    assert (changed["name"], changed["agent"], changed["history_scope"]) == ("The site", "rehearsal", "agent")
    assert changed["limits"] == {"on_idle": "end"}
    assert [(rule["action"], rule["tool"], rule["pattern"]) for rule in changed["permissions"]] == [
        ("allow", "Bash", "git *"),
        ("deny", "Bash", "*"),
    ]
    shown = server.run("projects", "site").stdout
    assert "deny Bash" in shown and "on_idle=end" in shown and "Be brief." in shown
    cleared = json.loads(server.run("projects", "edit", "site", "--agent", "", "--clear-rules", "--json").stdout)
    assert (cleared["agent"], cleared["permissions"], cleared["instructions"]) == (None, [], "Be brief.")
    for wrong, code in ((["--limit", "bogus=1"], 1), (["--rule", "maybe Bash"], 2), (["--name", ""], 2), ([], 2)):
        assert server.run("projects", "edit", "site", *wrong).returncode == code


def test_sign_ins_are_listed_and_revoked_by_a_prefix_of_their_ids(server: ServerProcess) -> None:
    assert server.run("logout", "--all").returncode == 0
    with signed_in(server) as first, signed_in(server) as second:
        ids = {one["id"] for one in json.loads(server.run("logins", "--json").stdout)["logins"]}
        assert ids == {first.login_id(), second.login_id()}
        assert server.run("logins", "revoke", "").returncode == 2, "every id starts with an empty prefix"
        assert server.run("logins", "revoke", first.login_id()[:-1]).stdout == "Signed out 1 browser.\n"
        assert first.get("/api/sessions").status_code == 401
        assert second.get("/api/sessions").status_code == 200
        assert server.run("logins", "revoke", second.login_id(), "ffff").returncode == 1
        assert second.get("/api/sessions").status_code == 200
    server.run("logout", "--all")


def test_reload_reports_added_and_removed_agents(server: ServerProcess) -> None:
    config = server.data / "perdure.toml"
    before = config.read_text()
    config.write_text(before + '[agents.mine]\ndriver = "acp"\ncommand = ["mine"]\n')
    assert server.run("reload").stdout.startswith("Reloaded: added mine. The server has ")
    config.write_text(before)
    assert server.run("reload").stdout.startswith("Reloaded: removed mine. ")
    config.write_text(before + "[agents.mine]\nnonsense = 1\n")
    assert server.run("reload").returncode == 1
    config.write_text(before)


def test_files_of_the_working_directory_are_found(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "work" / "sub").mkdir(parents=True)
    for name in ("one.txt", "sub/two.txt", "three.py"):
        (tmp_path / "work" / name).write_text("")
    server.create(workdir=str(tmp_path / "work"))
    assert set(server.run("files", "last").stdout.splitlines()) == {"one.txt", "sub/two.txt", "three.py"}
    assert json.loads(server.run("files", "last", "two", "--json").stdout) == {"files": ["sub/two.txt"]}
    assert "No files found" in server.run("files", "last", "zzz").stderr


@pytest.mark.full
def test_changes_of_all_sessions_are_shown_even_after_a_restart(server: ServerProcess, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    command = server.command("events", "--json", "--type", "title", "--type", "session_erased")
    with seen.open("wb") as file:
        watching = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL, env=server.environment)
    with server.client() as client:
        session = client.create_session()["id"]
        eventually(lambda: client.change_session(session, title="Seen") and seen.read_bytes(), "it watches")
        client.change_session(session, title="Before")
        eventually(lambda: b"Before" in seen.read_bytes(), "the change is shown")
    server.kill()
    server.restart()
    with server.client() as client:
        client.change_session(session, title="After")
        eventually(lambda: b"After" in seen.read_bytes(), "the stream continues")
        client.erase(session)
    eventually(lambda: b"session_erased" in seen.read_bytes(), "the erased session is shown")
    watching.send_signal(signal.SIGINT)
    assert watching.wait(COMMAND_LIMIT_S) == 130
    shown = [json.loads(line) for line in seen.read_text().splitlines()]
    titles = [event["title"] for event in shown if event["type"] == "title"]
    assert titles[-2:] == ["Before", "After"] and set(titles[:-2]) == {"Seen"}


def test_a_command_name_of_another_tool_suggests_the_right_command(server: ServerProcess) -> None:
    for word, meant in (
        ("ls", "sessions"),
        ("rm", "erase"),
        ("logs", "watch"),
        ("mv", "rename"),
        ("sesions", "sessions"),
    ):
        done = server.run(word)
        assert done.returncode == 2 and f"Did you mean `perdure {meant}`?" in done.stderr
    assert "perdure --help" in server.run("xyzzy").stderr
