"""Commands that change a conversation or explain the next turn, against a real server."""

import json
import re
import sys

import pytest

from tests.surfaces.conftest import ROOT, ServerProcess
from tests.surfaces.terminal import Terminal

REPLAYED = "- The conversation was replayed to rehearsal: a context restart was requested.\n"


def session_with(server: ServerProcess, *texts: str) -> str:
    """A session with these messages, each answered."""
    begun = server.run("send", "--wait", "--json", "--new", texts[0])
    assert begun.returncode == 0, begun.stderr
    session = str(json.loads(begun.stdout.splitlines()[0])["session_id"])
    for text in texts[1:]:
        assert server.run("send", "--wait", session, text).returncode == 0
    return session


def messages(server: ServerProcess, session: str) -> list[str]:
    with server.client() as client:
        return [turn["message"]["text"] for turn in client.transcript(session)["turns"]]


def test_show_lists_the_newest_turns_and_says_if_there_are_more(server: ServerProcess) -> None:
    session = session_with(server, "say one", "say two", "say three")
    some = server.run("show", session, "--limit", "2")
    assert re.findall(r"^(\d) +rehearsal", some.stdout, re.MULTILINE) == ["2", "3"]
    assert some.stderr == "There are more than 2 turns; use --limit to see more.\n"
    every = server.run("show", session, "--limit", "3")
    assert re.findall(r"^(\d) +rehearsal", every.stdout, re.MULTILINE) == ["1", "2", "3"]
    assert every.stderr == ""


def test_edit_accepts_a_turn_number_or_message_id_and_defaults_to_the_last_turn(server: ServerProcess) -> None:
    session = session_with(server, "say one", "say two")
    edited = server.run("edit", session[:9], "1", "say", "uno")
    assert edited.returncode == 0
    assert f"Changed the message of turn 1. The answer stays. `perdure retry {session} 1`" in edited.stdout
    assert server.run("edit", "last", "-", stdin="say 2\nsay 3").returncode == 0
    assert messages(server, session) == ["say uno", "say 2\nsay 3"]
    message_id = json.loads(server.run("show", "--json", session).stdout)["turns"][0]["message_id"]
    edited = server.run("edit", "--json", session, message_id, "say eins")
    assert json.loads(edited.stdout)["revision"] == 3
    assert messages(server, session)[0] == "say eins"
    assert server.run("send", "--wait", session, "recall").stdout.splitlines()[1] == '- "say eins"'


def test_edit_without_a_text_opens_the_editor(server: ServerProcess) -> None:
    session = session_with(server, "say one")
    script = server.folder / "editor.py"
    script.write_text(
        "import pathlib, sys\np = pathlib.Path(sys.argv[1])\np.write_text(p.read_text().strip() + ' more\\n')\n"
    )
    environment = {**server.environment, "VISUAL": f"{sys.executable} {script}"}
    with Terminal(server.command("edit", session), environment, server.folder) as terminal:
        assert terminal.wait_end() == 0, terminal.text
    assert messages(server, session) == ["say one more"]
    with Terminal(server.command("edit", session), {**environment, "VISUAL": "true"}, server.folder) as terminal:
        assert terminal.wait_end() == 1
        assert "Nothing changed." in terminal.text


def test_edit_reports_what_is_missing(server: ServerProcess) -> None:
    session = session_with(server, "say one")
    nothing = server.run("edit", session, "1")
    assert nothing.returncode == 2 and "Give a TEXT" in nothing.stderr
    nowhere = server.run("edit", session, "7", "say seven")
    assert nowhere.returncode == 1 and f"There is no turn 7. `perdure show {session}` lists" in nowhere.stderr
    with server.client() as client:
        empty = client.create_session()["id"]
    assert "Send a message first." in server.run("edit", empty, "text").stderr
    assert "Send a message first." in server.run("retry", empty).stderr


def test_rewind_lists_the_removed_turns_and_show_still_has_them(server: ServerProcess) -> None:
    session = session_with(server, "say one", "say two", "say three")
    rewound = server.run("rewind", "last", "2")
    assert rewound.stdout == (
        "Turns 2 and 3 are no longer part of the conversation. "
        f"They stay in the log: `perdure show {session} --rewound`.\n"
    )
    shown = server.run("show", session, "--rewound").stdout
    assert re.findall("^(Turn .|You: .*|two|three|one)", shown, re.MULTILINE) == [
        "Turn 2", "You: say two", "two", "Turn 3", "You: say three", "three",
    ]  # fmt: skip
    every = json.loads(server.run("show", session, "--rewound", "--json").stdout)["turns"]
    assert [turn["rewound"] for turn in every] == [False, True, True]
    refused = server.run("rewind", session, "3")
    assert refused.returncode == 1 and "(not_found)" in refused.stderr
    assert server.run("rewind", session, "0").returncode == 2
    assert json.loads(server.run("rewind", session, "1", "--json").stdout)["turns"] == []


def test_show_reports_that_nothing_was_rewound(server: ServerProcess) -> None:
    session = session_with(server, "say one")
    shown = server.run("show", session, "--rewound")
    assert (shown.stdout, shown.stderr) == ("", "No turns were rewound.\n")
    assert server.run("show", session, "--rewound", "--markdown").returncode == 2


@pytest.mark.full
def test_retry_prints_the_new_answer_of_the_last_or_the_given_turn(server: ServerProcess) -> None:
    session = session_with(server, "say one", "say two")
    again = server.run("retry", "last")
    assert (again.returncode, again.stdout) == (0, "two\n")
    assert again.stderr == f"perdure: Retrying turn 2.\n{REPLAYED}"
    other = server.run("retry", session, "1", "--text", "-", "--agent", "rehearsal-stream", stdin="recall")
    assert other.stdout.splitlines() == ["recall 1", '- "recall"']
    assert other.stderr == "perdure: Retrying turn 1. Turn 3 is no longer part of the conversation.\n"
    events = [json.loads(line)["type"] for line in server.run("retry", session, "--json").stdout.splitlines()]
    assert (events[0], events[-1]) == ("user_message", "turn_end")
    assert server.run("retry", session, "--text", " ").returncode == 2
    failed = server.run("retry", session, "--text", "crash")
    assert failed.returncode == 1 and "The turn failed." in failed.stderr


def test_fork_prints_the_new_session(server: ServerProcess) -> None:
    session = session_with(server, "say one", "say two")
    fork = server.run("fork", session, "1").stdout.strip()
    assert fork != session
    assert messages(server, fork) == ["say one"]
    assert f"  forked from: {session}, after turn 1\n" in server.run("show", fork).stdout
    other = json.loads(server.run("fork", session, "--agent", "rehearsal-stream", "--json").stdout)
    assert (other["agent"], other["turn_count"]) == ("rehearsal-stream", 2)
    assert "(not_found)" in server.run("fork", session, "5").stderr


@pytest.mark.full
def test_plan_describes_what_the_next_turn_would_do(server: ServerProcess) -> None:
    session = session_with(server, "say one", "say two")
    plan = server.run("plan", session).stdout
    assert plan.startswith("rehearsal continues in its running process, which holds the conversation. It gets only")
    assert re.search(r"^confirmed +yes +the agent confirmed the end of its last turn$", plan, re.MULTILINE)
    fresh = server.run("plan", session, "--fresh-session").stdout
    assert re.match(
        r"The conversation is replayed to rehearsal, because a context restart was requested. "
        r"The replay has 2 turns \(about \d+ tokens, \d+ B\)\.\n\nGUARD ",
        fresh,
    )
    assert json.loads(server.run("plan", session, "--agent", "rehearsal-stream", "--json").stdout)["context"] == "fresh"
    server.run("send", "--wait", session, "--agent", "rehearsal-stream", "say three")
    back = server.run("plan", session, "--agent", "rehearsal").stdout
    assert re.match(r"rehearsal resumes its native session \S+. It also gets turn 3, which it missed", back)
    server.run("edit", session, "1", "say uno")
    assert "because the history has changed." in server.run("plan", session).stdout
    server.run("rewind", session, "1")
    assert server.run("plan", session).stdout.startswith("rehearsal-stream gets only the message")


@pytest.mark.full
def test_usage_is_an_aligned_table_with_a_total(server: ServerProcess) -> None:
    session = session_with(server, "usage 1234567 20\nsay one")
    session_with(server, "usage 3 4\nsay one")
    shown = server.run("usage", "--by", "session").stdout.splitlines()
    assert shown[0].split() == ["SESSION", "TURNS", "FRESH", "TOKENS", "IN", "TOKENS", "OUT", "SENT", "TIME"]
    assert len(shown) == 4 and len({len(line) for line in shown}) == 1
    total = next(line for line in shown if line.startswith("total"))
    assert re.match(r"total +2 +2 +1,234,570 +24 +\d+ B +\d\.\d s$", total)
    mine = server.run("usage", "--by", "project,agent", "--session", session[:9]).stdout.splitlines()
    assert mine[1].startswith("(no project)  rehearsal ") and "1,234,567" in mine[1]
    assert json.loads(server.run("usage", "--json", "--since", "2020-01-01").stdout)["group_by"] == ["day"]
    none = server.run("usage", "--project", "nowhere")
    assert (none.returncode, none.stdout, none.stderr) == (0, "", "No turns found.\n")
    wrong = server.run("usage", "--by", "moon")
    assert wrong.returncode == 1 and "(invalid)" in wrong.stderr


@pytest.mark.full
def test_every_command_accepts_both_spellings_of_fresh(server: ServerProcess) -> None:
    session = session_with(server, "say one")
    for spelling in ("--fresh", "--fresh-session"):
        assert server.run("send", "--wait", spelling, session, "say two").returncode == 0
        assert server.run("chat", spelling, session, stdin="say three\n").returncode == 0
        assert '"fresh_requested"' in server.run("plan", spelling, "--json", session).stdout
        assert server.run("run", spelling, "say alone").stdout == "alone\n"
    turns = json.loads(server.run("show", "--json", session).stdout)["turns"]
    assert [turn["context_reason"] for turn in turns[1:]] == ["fresh_requested"] * 4
    assert server.run("retry", session, "--fresh-session").stdout == "three\n"


@pytest.mark.full
def test_last_is_the_most_recently_active_session_even_after_a_restart(server: ServerProcess) -> None:
    first = session_with(server, "say one")
    second = session_with(server, "say other")
    assert server.run("send", "--wait", first, "say two").returncode == 0

    def listed() -> list[str]:
        with server.client() as client:
            return [entry["id"] for entry in client.sessions()["sessions"]]

    assert listed() == [first, second]
    # Both processes are idle, and are suspended in the order in which they started.
    server.stop()
    server.restart()
    assert listed() == [first, second]
    assert server.run("rewind", "last", "2").returncode == 0
    assert (messages(server, first), messages(server, second)) == (["say one"], ["say other"])


def test_plan_says_that_the_native_session_can_no_longer_be_used(server: ServerProcess) -> None:
    session = session_with(server, "poison")
    assert server.run("send", "--wait", session, "say two").returncode == 1
    told = server.run("plan", session).stdout
    assert "because its native session is no longer usable." in told
    assert re.search(r"^not_poisoned +no +the native session is usable$", told, re.MULTILINE)


def test_explain_says_which_timers_run_and_what_they_will_do(server: ServerProcess) -> None:
    limits = {"idle_timeout_s": 1200, "on_idle": "end", "lifetime_s": 3000, "on_lifetime": "end"}
    with server.client() as client:
        session = client.create_session(limits=limits)["id"]
    told = server.run("explain", session).stdout.splitlines()
    assert told[0].startswith("It waits for a message")
    # On a fast machine the remaining time rounds up to the full limit.
    idle, lifetime = r"  in (19 min \d+|20 min 0) s", r"  in (49 min \d+|50 min 0) s"
    assert re.fullmatch(idle + r" the session ends because it is idle \(idle_timeout, .*Z\)", told[1])
    assert re.fullmatch(lifetime + r" the session reaches its lifetime and ends \(lifetime, .*Z\)", told[2])
    assert re.search(idle, server.run("show", session).stdout)
    assert json.loads(server.run("explain", "--json", "last").stdout)["timers"][0]["then"] == "end"


def test_send_and_show_report_turns_that_the_agent_missed(server: ServerProcess) -> None:
    session = session_with(server, "say one")
    server.run("send", "--wait", session, "--agent", "rehearsal-stream", "say two")
    back = server.run("send", "--wait", session, "--agent", "rehearsal", "say three")
    assert (back.stdout, back.stderr) == ("three\n", "- rehearsal gets the turn that it missed.\n")
    shown = server.run("show", session).stdout
    assert re.search(r"^TURN .* CONTEXT +EARLIER TURNS +REASON", shown, re.MULTILINE)
    assert re.search(r"^3 +rehearsal .* resumed +1 sent ", shown, re.MULTILINE)


@pytest.mark.full
def test_send_plan_and_show_report_a_conversation_that_is_too_long_for_the_agent(server: ServerProcess) -> None:
    command = json.dumps([sys.executable, "-m", "perdure.rehearsal", "--acp"])
    env = f'{{ PYTHONPATH = "{ROOT / "src"}", PERDURE_REHEARSAL_CONTEXT = "1000" }}'
    agent = f'[agents.small]\ndriver = "acp"\ncommand = {command}\nenv = {env}\ntranscript_tokens = 2000\n'
    (server.data / "perdure.toml").write_text(agent)
    lines = "".join(f"say {'word ' * 80}{number}\n" for number in range(8))
    with server.client() as client:
        client.reload_agents()
    assert server.run("chat", stdin=lines).returncode == 0
    assert re.search(
        r"The replay has 8 turns \(about 1,\d+ tokens, .* kB\)\.", server.run("plan", "last", "--agent", "small").stdout
    )
    sent = server.run("send", "--wait", "last", "--agent", "small", "say on")
    assert sent.stdout == "on\n"
    assert "- The conversation was too long for the agent (" in sent.stderr
    assert "- The conversation is too long for small: turns 1 to " in sent.stderr
    assert re.search(r"^9 +small .* \d shortened.* too_long", server.run("show", "last").stdout, re.MULTILINE)
    assert re.search(r"\); turns? 1.* told in short form\.\n", server.run("plan", "last", "--fresh").stdout)


@pytest.mark.full
def test_watch_reports_changes_and_starts_with_the_last_remaining_turn(server: ServerProcess) -> None:
    session = session_with(server, "say one", "say two", "say three")
    server.run("edit", session, "2", "say deux")
    server.run("rewind", session, "3")
    server.run("stop", session)
    told = server.run("watch", session, "--from", "0").stdout
    changed = '- The message of turn 2 is now "say deux". The next message replays the conversation to rehearsal.'
    assert f"three\n{changed}\n- Turn 3 is no longer part of the conversation." in told
    assert "You: say deux\ntwo\n" in server.run("watch", session).stdout
