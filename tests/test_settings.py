"""Errors in the configuration are found at startup, and reported in a sentence that says where they are."""

import os
from pathlib import Path

import pytest

from perdure.config import ConfigError, load
from tests import warm
from tests.harness import WAIT_S, LiveServer

MISSPELT_RULE = '{tool = "Bash", patern = "git status*", action = "allow"}'


def refused(data: Path, text: str, *options: str) -> str:
    """What a server says that does not start with this perdure.toml."""
    (data / "perdure.toml").write_text(text)
    command = ["serve", "--port", "0", "--data", str(data), *options]
    ended = warm.run(command, stdin="", env=dict(os.environ), cwd=data, timeout_s=WAIT_S)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    return ended.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[projects.site]\npath = "site"\n', "projects.site.path must be absolute"),
        ('[server]\nagent = "nobody"\n', "server.agent is not valid. There is no agent 'nobody'"),
        ("[server]\nslot = 3\n", "slot"),
        ('[agents.mine]\ncommand = ["x"]\n', "agents.mine.driver is missing. You can leave it out only for known"),
        ('[agents.one]\ndriver = "acp"\ncommand = ["x"]\n[agents.mine]\ncommnd = ["x"]\n', "field agents.mine.commnd"),
        (
            '[agents.mine.options.mcp_servers.files]\ncommand = "x"\n',
            "agents.mine.options.mcp_servers.files.command must",
        ),
        ('[agents."my agent"]\nenv = { A = 1 }\n', "agents.my agent.env.A must be text, not a whole number"),
        ('[projects.site]\npath = "/srv"\nlimits = { turn_timeout = 1 }\n', "field projects.site.limits.turn_timeout"),
        (f'[projects.site]\npath = "/srv"\npermissions = [{MISSPELT_RULE}]\n', "patern"),
        ("[server\n", "is not valid TOML"),
        ('[server]\nallowed_hosts = ["*.example.com"]\n', "'*.example.com' is not a host name"),
        ('[server]\nallowed_origins = ["*"]\n', "allowed_origins: '*' would allow every site; list each origin"),
        ('[server]\nallowed_origins = ["https://a.example/"]\n', "'https://a.example/' is not an origin"),
        ('[server]\nallowed_origins = ["null"]\n', "'null' is not an origin"),
    ],
)
def test_an_invalid_setting_is_reported_with_its_location(tmp_path: Path, text: str, told: str) -> None:
    assert told in refused(tmp_path, text)


@pytest.mark.parametrize("database", ["sqlite:other.db", "mysql://host/perdure"])
def test_a_database_that_is_not_supported_is_refused_and_not_ignored(tmp_path: Path, database: str) -> None:
    assert "--database must be a PostgreSQL address" in refused(tmp_path, "", "--database", database)
    assert not (tmp_path / "perdure.db").exists()


def test_shared_directories_need_a_place_for_scratch_folders_that_all_nodes_see(tmp_path: Path) -> None:
    settings = '[server]\nworkdirs = "shared"\n'
    assert "requires the setting workspaces" in refused(
        tmp_path, settings, "--database", "postgresql://127.0.0.1:1/perdure"
    )


def test_an_unreadable_configuration_is_reported_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").mkdir()
    with pytest.raises(ConfigError, match="Can't read"):
        load(tmp_path / "perdure.toml")


def test_a_start_that_fails_leaves_no_process(tmp_path: Path) -> None:
    server = LiveServer(tmp_path / "data", "[server\n")
    with pytest.raises(AssertionError, match=r"did not start \(exit code 1\)"):
        server.start()
    assert server.process is None
