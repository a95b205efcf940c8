"""The docs are correct: generated pages are up to date, and everything that users see is documented."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from docs import commands, generate
from perdure import config
from perdure.core.errors import STATUS_OF_CODE
from perdure.core.events import AnyEvent
from perdure.core.observe import OBSERVED
from perdure.core.session import ALLOWED
from perdure.surfaces.http.openapi import shown_path
from perdure.surfaces.http.routes import ENDPOINTS
from tests.harness import SharedServers
from tests.surfaces.conftest import ServerProcess

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *ROOT.glob("*.md")])
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")


def first_cells(page: str) -> set[str]:
    """Return the first cells of the tables on a page."""
    return set(re.findall(r"^\| `([^`]+)`", (DOCS / page).read_text("utf-8"), re.MULTILINE))


def anchors(text: str) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("name", sorted(generate.PAGES))
def test_a_page_that_is_made_from_the_code_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text("utf-8") == generate.PAGES[name](), "run: python docs/generate.py"


@pytest.fixture(scope="module")
def commands_page(servers: SharedServers) -> str:
    with servers.borrowed(ServerProcess, generate.SERVER) as server:
        return generate.commands_page(server.address())


@pytest.mark.full
def test_the_commands_page_matches_the_output_of_the_commands(commands_page: str) -> None:
    assert (DOCS / "commands.md").read_text("utf-8") == commands_page, "run: python docs/generate.py"


def test_every_commands_help_is_up_to_date() -> None:
    """Check the help texts without a server, which is fast feedback after a change."""
    shown = (DOCS / "commands.md").read_text("utf-8")
    for name, command in commands.leaves():
        if name not in commands.NO_HELP:
            assert commands.help_of(name, command) in shown, f"{name}: run: python docs/generate.py"


@pytest.mark.full
def test_errors_have_the_exit_code_of_their_kind(commands_page: str) -> None:
    rows = re.findall(r"^\| `perdure ?(.*?)` \| (.*?) \| (\d+) \| (.*) \|$", commands_page, re.MULTILINE)
    expected = {"missing argument": "2", "unknown session": "1", "no server": "3"}
    for call, what, code, said in rows:
        assert code == expected.get(what, code) and code in ("1", "2", "3"), f"{call}: {code} {said}"
        assert said.startswith(("Error: ", "perdure: ")) and "Traceback" not in said, call
    assert {what for _, what, _, _ in rows} >= {*expected, "ended session", "bad value"}


def test_every_command_that_needs_a_server_is_tried_without_one_and_writes_json() -> None:
    tried = {name for name, case in commands.cases() if case.what == "no server"}
    leaves = dict(commands.leaves())
    alone = {"serve", "rehearse", "completion", "mcp", "migrate", "doctor", "agents add"}
    assert set(leaves) == tried | alone
    for name in tried | {"doctor", "agents add"}:
        assert "--json" in {option for param in leaves[name].params for option in param.opts}, name


def test_every_event_command_and_fact_has_its_row() -> None:
    rows = first_cells("sessions.md")
    assert {kind.__struct_config__.tag for kind in AnyEvent.__args__} <= rows
    assert {*ALLOWED, *OBSERVED} <= rows


def test_every_event_says_what_it_means() -> None:
    for kind in AnyEvent.__args__:
        assert generate.sentence(kind).endswith("."), kind


def test_every_setting_has_its_row_and_a_sentence() -> None:
    rows = first_cells("settings.md")
    for _, kind in generate.setting_sections():
        for name, _, _, words in generate.setting_rows(kind):
            assert name.strip("`") in rows
            assert words.endswith("."), name


def test_every_endpoint_and_every_error_code_has_its_row() -> None:
    rows = first_cells("api.md")
    assert {f"{endpoint.method} {shown_path(endpoint)}" for endpoint in ENDPOINTS} <= rows
    assert set(STATUS_OF_CODE) <= rows
    assert set(generate.CODES) == set(STATUS_OF_CODE)


def test_every_command_of_the_command_line_has_its_row() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "perdure", "--help"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    names = re.findall(r"^  ([a-z]+)  ", shown, re.MULTILINE)
    assert {"serve", "chat", "completion"} <= set(names)
    assert {f"perdure {name}" for name in names} <= first_cells("api.md")


def test_phases_are_those_of_the_machine() -> None:
    assert set(generate.PHASES) == {phase for row in ALLOWED.values() for phase in row}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    for path, anchor in LINK.findall(text):
        target = (page.parent / path) if path else page
        assert target.exists(), path
        if anchor:
            assert anchor in anchors(target.read_text("utf-8")), f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_in_examples_are_accepted(page: Path) -> None:
    for example in re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        msgspec.convert(tomllib.loads(example), config.Config)


def test_commands_and_options_in_examples_exist() -> None:
    """The program knows each `perdure COMMAND --option` on the pages."""
    from perdure.surfaces.cli import COMMANDS, perdure

    # Skip commands.md, which shows invalid calls on purpose.
    for page in [page for page in PAGES if page.name != "commands.md"]:
        for line in re.findall(r"(?:^|`|\./run )perdure ([a-z]+[^`\n]*)", page.read_text("utf-8"), re.MULTILINE):
            name = line.split()[0]
            if name not in COMMANDS:
                continue
            command = perdure.get_command(None, name)  # type: ignore[arg-type]
            assert command is not None
            if name == "rehearse":
                continue
            commands = [command, *getattr(command, "commands", {}).values()]
            known = {option for each in commands for parameter in each.params for option in parameter.opts}
            known |= {"--help", "-h"}
            before_comment = line.partition("   ")[0]
            for option in re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", re.sub(r'"[^"]*"', "", before_comment)):
                assert option in known, f"{page.name}: perdure {line}"


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_first_steps_name_the_agent_that_needs_no_model(page: str) -> None:
    """A message without an agent may go to a paid one, so no example on the first pages starts a session like that."""
    blocks = "\n".join(re.findall(r"```\w*\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL))
    lines = re.findall(r"^(?:\./run )?perdure (?:chat|send|run)\b.*$", blocks, re.MULTILINE)
    beginning = [line for line in lines if not re.search(r"perdure (chat|send) (last|s_)", line)]
    assert beginning and all("--agent rehearsal" in line for line in beginning), beginning
    assert all('"agent": "rehearsal"' in body for body in re.findall(r"-d '(.*?)'", blocks))
