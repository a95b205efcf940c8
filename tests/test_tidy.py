"""The project follows its own rules, and each rule detects a tree that breaks it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tidy
from tests.tidy import Breach

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module", autouse=True)
def clear_cache() -> Iterator[None]:
    """Free the parsed files afterwards. They are large and would slow down every later test in this process."""
    yield
    tidy.parsed.cache_clear()


def tree(folder: Path, **files: str) -> Path:
    """A small project: `core__bad` becomes src/perdure/core/bad.py, `tests__bad` becomes tests/bad.py."""
    for name, text in files.items():
        parts = name.split("__")
        base = folder if parts[0] in ("tests", "benchmarks", "docs") else folder / "src" / "perdure"
        path = base.joinpath(*parts).with_suffix(".md" if parts[0] == "docs" else ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.full  # `./run check` does this too, in parallel with the fast run
@pytest.mark.parametrize("rule", tidy.RULES, ids=lambda rule: rule.__name__)
def test_the_project_follows(rule: object) -> None:
    assert callable(rule)
    assert [str(breach) for breach in rule(ROOT)] == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("core__a", "from perdure.drivers import base"),
        ("core__a", "import perdure.stores.base"),
        ("core__a", "from ..runtime import log"),
        ("core__a", "def f():\n    from perdure.runtime.log.log import Log"),
        ("drivers__a", "from perdure.stores import base"),
        ("stores__a", "from perdure.drivers.base import Driver"),
        ("rehearsal__a", "from perdure.core.events import Event"),
        ("runtime__a", "from perdure.surfaces.http import app"),
        ("surfaces__http__a", "from perdure.runtime.keeping.keeper import main"),
        ("surfaces__http__a", "from perdure.runtime.log.journal import Journal"),
        ("surfaces__a", "from perdure.runtime.log import feed"),
        ("surfaces__mcp__a", "from perdure.runtime.verbs.sessions import Sessions"),
        ("surfaces__cli__a", "from perdure.runtime.verbs.sessions import Sessions"),
        ("surfaces__http__a", "from perdure.stores.sqlite import SqliteStore"),
        ("surfaces__http__a", "import perdure.server"),
        ("runtime__a", "import perdure.server"),
        ("config", "from perdure.runtime import log"),
    ],
)
def test_an_import_from_a_layer_above_is_found(tmp_path: Path, module: str, line: str) -> None:
    assert len(list(tidy.layers(tree(tmp_path, **{module: line})))) == 1


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("core__a", "from perdure.core import events\nfrom . import errors\nfrom perdure import __version__"),
        ("drivers__a", "from perdure.core.events import Event\nfrom perdure.drivers.base import Driver"),
        ("rehearsal__a", "from perdure.core.transcript_text import user_entries"),
        ("runtime__a", "from perdure.stores import sqlite\nfrom perdure.config import Config"),
        ("surfaces__http__a", "from perdure.runtime.verbs.sessions import Sessions\nfrom perdure.core import errors"),
        ("surfaces__cli", "def serve():\n    from perdure.server import serve"),
        ("surfaces__mcp__a", "from perdure.surfaces.client import Client\nfrom perdure.config import Config"),
        ("server", "import perdure.surfaces.http\nimport perdure.stores.sqlite\nimport perdure.drivers"),
    ],
)
def test_an_import_from_a_layer_below_is_allowed(tmp_path: Path, module: str, line: str) -> None:
    assert list(tidy.layers(tree(tmp_path, **{module: line}))) == []


def test_a_package_that_no_layer_names_is_found(tmp_path: Path) -> None:
    assert list(tidy.layers(tree(tmp_path, odds__a=""))) == [
        Breach("src/perdure/odds/a.py", 1, "odds.a is in no layer; add it to LAYERS")
    ]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("surfaces__mcp__a", "from perdure.surfaces.http import app"),
        ("surfaces__mcp__a", "from perdure.surfaces import cli"),
        ("surfaces__mcp__a", "from ..cli.output import print_json"),
        ("surfaces__http__a", "import perdure.surfaces.cli.output"),
        ("surfaces__http__a", "def f():\n    from perdure.surfaces.mcp import tools"),
        ("surfaces__cli__a", "from perdure.surfaces.http.shapes import Turn"),
        ("surfaces__cli__a", "from perdure.surfaces.mcp.server import serve"),
        ("surfaces__shared", "from perdure.surfaces.http import shapes"),
    ],
)
def test_a_surface_that_imports_another_is_found(tmp_path: Path, module: str, line: str) -> None:
    assert len(list(tidy.surfaces_apart(tree(tmp_path, **{module: line})))) == 1


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("surfaces__mcp__a", "from perdure.surfaces.mcp import tools\nfrom perdure.surfaces.client import Client"),
        ("surfaces__http__a", "from perdure.surfaces import shared\nfrom . import shapes\nimport perdure.surfaces"),
        ("surfaces__cli__mcp", "def f():\n    from perdure.surfaces.mcp.server import serve"),
    ],
)
def test_a_surface_may_import_itself_and_what_surfaces_share(tmp_path: Path, module: str, line: str) -> None:
    assert list(tidy.surfaces_apart(tree(tmp_path, **{module: line}))) == []


VERBS = '''
class Sessions:
    def __init__(self, log, agents, attachments):
        self.log = log
        self.attachments = attachments
        self.agents = agents
        """The configured agents."""
        self.names: list[str] = []
        """What they are called."""

    async def journal(self, session_id): ...

    @property
    def slots(self): ...

    def _wait(self): ...


class FollowedSession(Protocol):
    last_seq: int

    def follow(self, follower): ...
'''


@pytest.mark.parametrize(
    "line",
    [
        "self._log.store.append(step)",
        "request.app.state.store",
        "x = self._hub.log",
        "self.feed.newest()",
        "self._journal.followers.add(self)",
        "server.runners",
        "sessions.facts.settings",
        "verbs(request).attachments.keep(name)",
        "self._sessions._wait()",
        "request.app.state.sessions._wait()",
        "(await sessions.journal(name)).record(step)",
        "self._journals[0].token",
    ],
)
def test_a_surface_that_uses_internals_of_the_runtime_is_found(tmp_path: Path, line: str) -> None:
    assert len(list(tidy.verbs_only(tree(tmp_path, runtime__verbs__sessions=VERBS, surfaces__http__a=line)))) == 1
    assert list(tidy.verbs_only(tree(tmp_path / "other", runtime__verbs__sessions=VERBS, runtime__a=line))) == []


@pytest.mark.parametrize(
    "line",
    [
        "sessions.agents.public(sessions.names[0])",
        "verbs(request).slots",
        "(await self._sessions.journal(name)).follow(self)",
        "journal.last_seq",
        "client.log(session_id)",
        "parser.feed(data)",
        "from perdure.surfaces.http import sessions\nsessions.ENDPOINTS",
    ],
)
def test_a_surface_may_use_methods_and_documented_attributes_of_verbs(tmp_path: Path, line: str) -> None:
    assert list(tidy.verbs_only(tree(tmp_path, runtime__verbs__sessions=VERBS, surfaces__http__a=line))) == []


def test_in_a_client_the_names_of_verbs_have_no_special_meaning(tmp_path: Path) -> None:
    lines = {"surfaces__cli__a": "sessions.sort()", "surfaces__a": "jobs.append(1)"}
    assert list(tidy.verbs_only(tree(tmp_path, runtime__verbs__sessions=VERBS, **lines))) == []
    uses_verbs = "from perdure.runtime.verbs.sessions import Sessions\nsessions.sort()"
    assert len(list(tidy.verbs_only(tree(tmp_path, runtime__verbs__sessions=VERBS, surfaces__a=uses_verbs)))) == 1


@pytest.mark.parametrize("line", ["import msgspec", "from perdure.core import errors", "def f():\n    import click"])
def test_a_keeper_that_needs_more_than_the_standard_library_is_found(tmp_path: Path, line: str) -> None:
    source = "import os, selectors\nfrom collections.abc import Iterator\n"
    assert list(tidy.standard_library_only(tree(tmp_path, runtime__keeping__keeper=source))) == []
    assert len(list(tidy.standard_library_only(tree(tmp_path, runtime__keeping__keeper=source + line)))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "import os.path",
        "from time import monotonic",
        "import random",
        "import asyncio",
        "import logging",
        "from datetime import datetime, UTC\nx = datetime.now(UTC)",
        "import datetime\nx = datetime.date.today()",
    ],
)
def test_a_core_that_is_not_pure_is_found(tmp_path: Path, line: str) -> None:
    assert len(list(tidy.purity(tree(tmp_path, core__a=line)))) == 1
    assert list(tidy.purity(tree(tmp_path / "other", runtime__a=line))) == []


def test_files_and_functions_that_are_too_long_are_found(tmp_path: Path) -> None:
    long_function = "def long():\n" + "    x = 1\n" * tidy.MAX_FUNCTION_LINES
    fitting = "def fits():\n" + "    x = 1\n" * (tidy.MAX_FUNCTION_LINES - 1)
    project = tree(
        tmp_path,
        core__long=long_function,
        core__fits=fitting + "x = 1\n" * (tidy.MAX_SOURCE_LINES - tidy.MAX_FUNCTION_LINES),
        core__file="x = 1\n" * (tidy.MAX_SOURCE_LINES + 1),
        tests__test_fits="x = 1\n" * tidy.MAX_TEST_LINES,
        tests__test_file="x = 1\n" * (tidy.MAX_TEST_LINES + 1),
    )
    assert [breach.path for breach in tidy.sizes(project)] == [
        "src/perdure/core/file.py",
        "tests/test_file.py",
        "src/perdure/core/long.py",
    ]


@pytest.mark.parametrize("module", ["core__utils", "runtime__helpers", "tests__test_common", "core__common__a"])
def test_a_name_that_says_nothing_is_found(tmp_path: Path, module: str) -> None:
    assert len(list(tidy.names(tree(tmp_path, **{module: "", "core__common_ground": ""})))) == 1


def test_a_module_without_a_docstring_is_found(tmp_path: Path) -> None:
    project = tree(tmp_path, core__mute="x = 1\n", core__spoken='"""Says."""\n', core__empty="", tests__mute="x = 1\n")
    assert [breach.path for breach in tidy.docstrings(project)] == ["src/perdure/core/mute.py", "tests/mute.py"]


def test_printing_outside_of_the_terminal_programs_is_found(tmp_path: Path) -> None:
    line = "print('hello')\n"
    project = tree(tmp_path, runtime__a=line, surfaces__cli=line, surfaces__cli__chat=line, rehearsal__a=line)
    assert [breach.path for breach in tidy.printing(project)] == ["src/perdure/runtime/a.py"]


@pytest.mark.parametrize("kind", ["except Exception:", "except:", "except (ValueError, BaseException) as error:"])
@pytest.mark.parametrize("body", ["pass", "...", "continue"])
def test_an_error_that_is_swallowed_is_found(tmp_path: Path, kind: str, body: str) -> None:
    source = "while True:\n    try:\n        f()\n    {}\n        {}\n"
    assert len(list(tidy.swallowing(tree(tmp_path, runtime__a=source.format(kind, body))))) == 1
    assert list(tidy.swallowing(tree(tmp_path, runtime__a=source.format("except OSError:", body)))) == []
    assert list(tidy.swallowing(tree(tmp_path, runtime__a=source.format(kind, "report()")))) == []


@pytest.mark.parametrize("line", ["import time\ntime.sleep(1)", "from time import sleep"])
def test_a_test_that_sleeps_is_found(tmp_path: Path, line: str) -> None:
    assert len(list(tidy.sleeping(tree(tmp_path, tests__test_a=line)))) == 1


def test_a_path_of_the_machine_it_was_written_on_is_found(tmp_path: Path) -> None:
    project = tree(
        tmp_path,
        core__a="x = '/wor" + "k/main'\n",
        tests__a="# /roo" + "t/.cache\n",
        docs__a="see ../share" + "d/API.md\n",
        docs__fine="see docs/wor" + "k/a.md and https://example.org/roo" + "t/a\n",
    )
    assert [breach.path for breach in tidy.foreign_paths(project)] == [
        "docs/a.md",
        "src/perdure/core/a.py",
        "tests/a.py",
    ]
