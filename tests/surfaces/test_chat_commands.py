"""Parsing lines of the chat, and completion, without a terminal."""

from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from perdure.surfaces.cli.chat_commands import KEYS, OWN, Message, Mistake, Own, help_text, offered, read
from perdure.surfaces.cli.completion import ChatCompleter, local_files

AGENTS = ("compact", "status", "memory show")
COMMANDS = [{"name": name, "description": f"Does {name}"} for name in AGENTS]


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("hello", Message("hello")),
        ("/model opus", Own("model", "opus")),
        ("/edit 2 one\ntwo", Own("edit", "2 one\ntwo")),
        ("/clear", Own("new", "")),
        ("/status", Own("status", "")),
        ("//status", Message("/status", True)),
        ("/compact be brief", Message("/compact be brief", True)),
        ("//compact", Message("/compact", True)),
        ("/memory show", Message("/memory show", True)),
        ("/etc is full", Message("/etc is full")),
        ("/etc/hosts", Message("/etc/hosts")),
        ("// a comment", Message("// a comment")),
        ("//TODO later", Message("//TODO later")),
        (" /model", Message(" /model")),
    ],
)
def test_a_line_is_a_chat_command_an_agent_command_or_text(line: str, meant: object) -> None:
    assert read(line, AGENTS, "claude") == meant


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/nonsense", "Neither the chat nor claude has a command /nonsense."),
        ("/modle opus", "Did you mean /mode or /model?"),
        ("/compac now", "Did you mean /compact?"),
        ("//quit", "claude has no command /quit."),
    ],
)
def test_a_probable_typo_is_not_sent(line: str, words: str) -> None:
    meant = read(line, AGENTS, "claude")
    assert isinstance(meant, Mistake) and words in meant.sentence


def test_an_agent_with_unknown_commands_gets_everything_except_chat_commands() -> None:
    assert read("/compact", None, "claude") == Message("/compact")
    assert read("/quit", None, "claude") == Own("quit", "")


def test_help_names_every_key_and_command_and_the_rule_for_names_that_clash() -> None:
    text = help_text(COMMANDS, "claude")
    for keys, _ in KEYS:
        assert keys in text
    for command in OWN:
        assert f"/{command.name}" in text
    columns = {text.index(what) - text.rindex("\n", 0, text.index(what)) for keys, what in KEYS[1:]}
    assert len(columns) == 1
    assert "Commands of claude: /compact, //status, /memory show." in text
    assert all(len(line) < 80 for line in text.split("\n")[:-1])
    assert "are not known yet" in help_text(None, "claude")
    assert "claude has no slash commands." in help_text([], "claude")


@pytest.mark.parametrize("columns", [30, 40, 60, 80, 120])
def test_help_continues_a_long_line_below_its_text(columns: int) -> None:
    lines = help_text(None, "claude", columns).split("\n")[:-1]
    assert all(len(line) < columns for line in lines)
    keys = [line for line in lines if line and not line.startswith(" ")]
    assert len(keys) == len(KEYS) + len(OWN) + 1, "continuation lines are indented"


def completed(text: str, files: tuple[str, ...] = ()) -> list[str]:
    def found(written: str) -> list[str]:
        return [path for path in files if written in path]

    completer = ChatCompleter(lambda: offered(COMMANDS, "claude"), lambda name: [("opus", name)], found)
    document = Document(text)
    return [
        text[: len(text) + one.start_position] + one.text
        for one in completer.get_completions(document, CompleteEvent())
    ]


def test_commands_are_completed_by_prefix_first_then_by_any_part() -> None:
    assert completed("/mo") == ["/model ", "/mode ", "/memory show "]
    assert completed("/comp") == ["/compact "]
    assert completed("/stat") == ["/status ", "//status "]
    assert completed("/pac") == ["/compact "]
    assert completed("/compact") == []
    assert completed("say /mo") == []


def test_names_after_a_command_and_files_after_an_at_sign_are_completed() -> None:
    assert completed("/model o") == ["/model opus "]
    assert completed("see @ma", ("src/main.py", "other.py")) == ["see @src/main.py "]
    assert completed("see @a", ("a b.txt",)) == ['see @"a b.txt" ']
    assert completed('see @"a ', ("a b.txt",)) == ['see @"a b.txt" ']
    assert completed("me@ma", ("src/main.py",)) == []


def test_files_of_a_folder_are_found_before_a_session_exists(tmp_path: Path) -> None:
    root = tmp_path
    (root / "src").mkdir()
    for name in ("src/main.py", "setup.py", ".hidden"):
        (root / name).write_text("")
    assert local_files(str(root), "s") == ["setup.py", "src/"]
    assert local_files(str(root), "src/") == ["src/main.py"]
    assert local_files(str(root), ".") == [".hidden"]
    assert local_files(str(root), "none/") == []
