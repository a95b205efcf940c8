"""The first ten minutes of a user who uses `claude` every day, in a real terminal with the real programs.

The screens of the last run are in `.artefacts/first-minutes/claude`, in order: `less -R *.ansi` pages through them.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.first_minutes.desk import GREETING, Desk

pytestmark = [pytest.mark.full, pytest.mark.needs("tmux", "git"), pytest.mark.timeout(900)]
WORDS = 250
NUMBERS = "".join(f"{number}\n" for number in range(1, 41))


def tool(name: str, **given: Any) -> str:
    return f"tool {name} {json.dumps(given)}"


def test_the_first_ten_minutes(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk("claude", "codex")
    begin(desk)
    decide_on_edits(desk)
    fold_a_long_change_and_run_a_command(desk)
    compact(desk)
    session = switch_to_a_second_agent(desk)
    queue_and_leave(desk, session)
    come_back_and_lose_the_server(desk, session)


def begin(desk: Desk) -> None:
    """The chat starts a server, and finds claude and the directory."""
    tmux = desk.tmux
    tmux.enter("perdure chat")
    tmux.wait("New session claude")
    tmux.wait(
        f"Started a server in the background: http://127.0.0.1:{desk.server_port} (pid {desk.server_pid})",
        "Stop it with: perdure serve --stop",
        "Perdure: claude, its default model, in ~/shop",
        "New session. /help lists keys and commands.",
    )
    tmux.keep("start")
    tmux.enter("/help")
    tmux.wait("/quit")
    tmux.keep("help")
    tmux.enter("say Hello, this is claude.")
    tmux.wait("Turn 1,")
    tmux.wait("\n\nYou: say Hello, this is claude.\n\nHello, this is claude.\n\nTurn 1,")
    tmux.keep("first-answer")
    tmux.wait(
        lambda screen: bool(re.search(r"Idle claude · model \S+ · mode default · \d+% context · \$0\.\d\d", screen))
    )


def decide_on_edits(desk: Desk) -> None:
    """The user sees each change before deciding: denies one with a reason, and allows the next."""
    tmux, file = desk.tmux, str(desk.file)
    edit = tool("Edit", file_path=file, old_string="hello", new_string="good morning")
    tmux.enter_lines("Make it friendlier.", f"read {file}", edit)
    tmux.wait("y/a/n>")
    tmux.wait(
        "> Read greeting.py",
        (
            "Permission: edit greeting.py  +1 -1\n  1  def greet(name):\n  2      if name:\n"
            '  3 -        print("hello", name)\n  3 +        print("good morning", name)\n  4      return name\n\n'
            "  1 y  Allow\n  2 a  Allow all edits in this session\n  3 n  Deny (or n REASON)\n\n"
            "Waiting for you claude"
        ),
    )
    tmux.keep("change")
    tmux.enter("n good evening, please")
    tmux.wait("Turn 2,")
    tmux.wait("Denied. Reason: good evening, please\nDenied: greeting.py\nThe tool said: good evening, please")
    tmux.keep("denied")
    assert desk.file.read_text() == GREETING
    tmux.enter(tool("Edit", file_path=file, old_string="hello", new_string="good evening"))
    tmux.wait("y/a/n>")
    tmux.enter("y")
    tmux.wait("Turn 3,")
    tmux.wait(
        "Allowed.\n> Edited greeting.py +1 -1",
        '  3 -        print("hello", name)\n  3 +        print("good evening", name)\n',
    )
    tmux.keep("allowed")
    assert desk.file.read_text() == GREETING.replace("hello", "good evening")


def fold_a_long_change_and_run_a_command(desk: Desk) -> None:
    tmux = desk.tmux
    tmux.enter(tool("Write", file_path=str(desk.repository / "numbers"), content=NUMBERS))
    tmux.wait("y/a/n>")
    tmux.wait("Permission: write numbers  +40 -0", "more lines (Ctrl-O shows all)")
    tmux.keep("long-change")
    tmux.press("C-o")
    tmux.wait("  40 +40\n")
    tmux.keep("long-change-unfolded")
    tmux.enter("y")
    tmux.wait("Turn 4,")
    assert (desk.repository / "numbers").read_text() == NUMBERS
    tmux.enter("bash cat numbers && touch made")
    tmux.wait("y/a/n>")
    tmux.wait("Permission: run\n  cat numbers && touch made\n", re.compile(r"  2 a  Allow for this session: \S*Bash\("))
    tmux.keep("command")
    tmux.enter("y")
    tmux.wait("Turn 5,")
    tmux.wait("> Ran cat numbers && touch made", "  3\n  ... 34 lines (Ctrl-O shows all) ...\n  38\n")
    tmux.keep("command-ran")
    assert (desk.repository / "made").exists()


def compact(desk: Desk) -> None:
    """The agent's own command, completed."""
    tmux = desk.tmux
    tmux.type("/comp")
    tmux.wait("  /compact ")
    tmux.wait("claude: ")
    tmux.keep("completion")
    tmux.press("Tab")
    tmux.wait("> /compact")
    tmux.press("Enter")
    tmux.wait("Turn 6,")
    tmux.wait(re.compile(r"The agent compacted its context from \d+ to \d+ tokens\."))
    tmux.keep("compacted")


def switch_to_a_second_agent(desk: Desk) -> str:
    """The other agent gets the whole conversation, and the status line names it. Returns the session's id."""
    tmux = desk.tmux
    tmux.type("/agent ")
    tmux.wait("  codex                  ready")
    tmux.keep("agents")
    tmux.type("codex")
    tmux.press("Enter")
    tmux.wait("The next message goes to codex.")
    tmux.wait("Idle claude, next codex")
    tmux.keep("switched")
    tmux.enter("recall")
    tmux.wait("Turn 7,")
    tmux.wait(
        "The conversation was replayed to codex: it has no native session yet.",
        '"say Hello, this is claude."',
        '"bash cat numbers && touch made"',
    )
    tmux.keep("second-agent")
    tmux.wait("Idle codex · ")
    [session] = json.loads(desk.run("sessions", "--json").stdout)["sessions"]
    assert session["workdir"] == str(desk.repository)
    return str(session["id"])


def queue_and_leave(desk: Desk, session: str) -> None:
    tmux = desk.tmux
    tmux.enter(f"stream {WORDS} 100")
    tmux.wait("w10 ")
    tmux.enter("say I waited.")
    tmux.wait("Queued: say I waited.")
    tmux.wait(re.compile(r"\nQueued: say I waited\.\nWorking codex \d+ s, Esc unqueues · 1 queued · "))
    tmux.keep("queued")
    tmux.press("C-d")
    tmux.wait_shell()
    tmux.wait(
        " w9 w10 ",
        "The agent continues. 1 queued message will be sent after this turn.\n",
        f"To come back: perdure chat {session}\n",
    )
    tmux.keep("left")


def come_back_and_lose_the_server(desk: Desk, session: str) -> None:
    """The chat restarts its server. At the end the screen shows the whole answer, without gaps or duplicates."""
    tmux = desk.tmux
    tmux.clear()
    tmux.enter("perdure chat last")
    tmux.wait("w60 ")
    tmux.wait("Working codex")
    tmux.wait("Queued: say I waited.")
    tmux.keep("back")
    desk.kill_server()
    tmux.type("say after all")
    tmux.wait("The server died and is being restarted. The agent keeps working.", "> say after all")
    tmux.keep("server-killed")
    tmux.wait("Turn 9,", "> say after all")
    tmux.press("Enter")
    tmux.wait("Turn 10,")
    tmux.keep("end")
    shown = tmux.everything
    assert f"Session {session}. /help lists" in shown
    assert "5 earlier turns: perdure show" in shown
    answer = shown.partition(f"You: stream {WORDS} 100")[2]
    assert re.findall(r"\bw\d+\b", answer) == [f"w{number}" for number in range(WORDS)]
    assert [answer.count(f"Turn {number},") for number in (8, 9, 10)] == [1, 1, 1]
    assert answer.count("You: say I waited.") == 1 and answer.count("\nI waited.") == 1
    assert answer.count("You: say after all") == 1 and answer.count("\nafter all") == 1
