"""The agents of a machine: which are found, which can be started, and their environment. Programs are real scripts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.config import AgentSettings, ConfigError
from perdure.core.errors import Refused
from perdure.core.observations import SessionOpened, StartFailed, TurnFinished
from perdure.runtime.agents.abilities import Abilities
from perdure.runtime.agents.catalogue import CATALOGUE
from perdure.runtime.agents.registry import Agents, Program
from perdure.stores.sqlite import SqliteStore
from tests.runtime.programs import claude, program, times_asked, touched

Make = Callable[..., Agents]


@pytest.fixture
def bin_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory on PATH besides the system's own; HOME is empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    home = tmp_path / "home"
    home.mkdir()
    for name in ("sh", "cat"):
        (folder / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HOME", str(home))
    return folder


@pytest.fixture
def make(tmp_path: Path, bin_path: Path) -> Make:
    def made(default: str | None = None, **configured: dict[str, Any]) -> Agents:
        settings = {name: msgspec.convert(given, AgentSettings) for name, given in configured.items()}
        return Agents(settings, tmp_path / "data", default)

    return made


def state_of(agents: Agents, name: str = "claude") -> str:
    return str(agents.public(name)["state"])


# Claude Code ------------------------------------------------------------------------------------------------------


def test_a_missing_claude_is_listed_with_how_to_install_it(make: Make) -> None:
    agents = make()
    shown = agents.public("claude")
    assert shown["state"] == "missing"
    assert "npm install -g @anthropic-ai/claude-code" in shown["reason"] and "/login" in shown["reason"]
    with pytest.raises(Refused, match="npm install"):
        agents.require("claude")


def test_a_missing_claude_is_never_the_default_agent(make: Make, bin_path: Path) -> None:
    assert make().default() == "rehearsal"
    claude(bin_path / "claude")
    assert make().default() == "claude"


@pytest.mark.parametrize("place", [".local/bin/claude", ".claude/local/claude"])
async def test_claude_is_found_where_its_installers_put_it(make: Make, tmp_path: Path, place: str) -> None:
    installed = claude(tmp_path / "home" / place)
    agents = make()
    assert await agents.ready("claude") == Program(str(installed), [])
    assert (state_of(agents), agents.public("claude")["version"]) == ("ready", "2.1.197")


# Sections that leave things out -----------------------------------------------------------------------------------


async def test_a_section_with_only_an_environment_keeps_the_search_for_claude(make: Make, tmp_path: Path) -> None:
    installed = claude(tmp_path / "home/.claude/local/claude")
    agents = make(claude={"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}})
    assert await agents.ready("claude") == Program(str(installed), [])
    assert (agents.settings("claude").driver, agents.default()) == ("claude", "claude")
    assert agents.environment("claude")["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:9"


async def test_a_section_with_only_a_command_keeps_the_driver_and_looks_nowhere_else(
    make: Make, tmp_path: Path
) -> None:
    claude(tmp_path / "home/.local/bin/claude")
    agents = make(claude={"command": ["~/bin/claude"]})
    assert state_of(agents) == "missing"
    installed = claude(tmp_path / "home/bin/claude")
    assert await agents.ready("claude") == Program(str(installed), [])
    assert agents.settings("claude").driver == "claude"


@pytest.mark.parametrize("place", [".local/bin/claude", ".claude/local/claude", ".npm-global/bin/claude"])
@pytest.mark.parametrize("name", ["claude", "mine"])
async def test_a_bare_name_is_searched_for_like_the_built_in_agent(
    make: Make, tmp_path: Path, place: str, name: str
) -> None:
    installed = claude(tmp_path / "home" / place)
    agents = make(**{name: {"driver": "claude-stream", "command": ["claude", "--verbose"]}})
    assert await agents.ready(name) == Program(str(installed), ["--verbose"])


def test_missing_settings_of_a_section_come_from_the_known_agent(make: Make, bin_path: Path) -> None:
    agents = make(
        rehearsal={"env": {"MORE": "1"}},
        codex={"env": {"OPENAI_API_KEY": "k"}},
        copilot={"shared": True, "env": {"A": "b"}},
    )
    rehearsal, codex, copilot = (agents.settings(name) for name in ("rehearsal", "codex", "copilot"))
    assert (rehearsal.driver, rehearsal.command[-1], rehearsal.env["MORE"]) == ("acp", "--acp", "1")
    assert "PERDURE_REHEARSAL_DIR" in rehearsal.env
    assert (codex.driver, codex.mode, codex.command[:2]) == ("acp", "read-only", ["npx", "-y"])
    assert copilot.shared and copilot.env == {"COPILOT_AUTO_UPDATE": "false", "A": "b"}
    program(bin_path / "codex-acp", "exit 1")
    assert make(codex={"mode": "auto"}).settings("codex").command == ["codex-acp"]


def test_a_section_with_driver_and_command_gets_no_defaults(make: Make) -> None:
    codex = make(codex={"driver": "acp", "command": ["codex-acp"]}).settings("codex")
    assert (codex.mode, codex.env, codex.fallbacks) == (None, {}, [])


@pytest.mark.parametrize(
    ("section", "missing"),
    [({"env": {"A": "b"}}, "driver"), ({"driver": "acp"}, "command"), ({"command": ["x"]}, "driver")],
)
def test_an_incomplete_section_of_an_unknown_agent_is_reported(
    make: Make, section: dict[str, Any], missing: str
) -> None:
    with pytest.raises(ConfigError, match=rf"perdure\.toml: agents\.mine\.{missing} is missing\."):
        make(mine=section)
    with pytest.raises(ConfigError, match=r"agents\.claude: shared is only for agents with driver acp"):
        make(claude={"shared": True})


async def test_a_tilde_means_the_configured_home(make: Make, tmp_path: Path) -> None:
    installed = claude(tmp_path / "other/bin/claude")
    agents = make(mine={"driver": "claude", "command": ["~/bin/claude", "~"], "env": {"HOME": str(tmp_path / "other")}})
    assert agents.program("mine") == Program(str(installed), [str(tmp_path / "other")])


async def test_a_missing_agent_says_to_install_it_or_correct_its_command(make: Make) -> None:
    agents = make(claude={"driver": "claude", "command": ["no-such-claude"]})
    assert agents.public("claude")["reason"] == (
        "'no-such-claude' was not found. Install it, or correct its command in perdure.toml."
    )


# Probing ------------------------------------------------------------------------------------------------------------


async def test_a_good_program_is_probed_once_and_again_after_an_update(make: Make, bin_path: Path) -> None:
    path = claude(bin_path / "claude")
    agents = make()
    for _ in range(3):
        await agents.ready("claude")
        await agents.probe()
    assert times_asked(path) == 1
    claude(path, "2.1.325")
    touched(path)
    await agents.ready("claude")
    assert (times_asked(path), agents.public("claude")["version"]) == (2, "2.1.325")


async def test_a_program_that_failed_once_is_probed_again_before_it_is_refused(make: Make, bin_path: Path) -> None:
    path = claude(bin_path / "claude", more=f'test -e "{bin_path}/well" || exit 1')
    agents = make()
    await agents.probe()
    assert state_of(agents) == "broken"
    with pytest.raises(Refused, match="can't be started"):
        await agents.ready("claude")
    (bin_path / "well").touch()
    assert await agents.ready("claude") == Program(str(path), [])
    assert state_of(agents) == "ready"


async def test_the_same_runner_with_other_arguments_is_another_program(make: Make, bin_path: Path) -> None:
    program(bin_path / "npx", 'test "$1" = new && echo 2.1.197 || echo 1.0.0')
    agents = make(
        new={"driver": "claude-stream", "command": ["npx", "new"]},
        old={"driver": "claude-stream", "command": ["npx", "old"]},
    )
    await agents.probe()
    assert (state_of(agents, "new"), state_of(agents, "old")) == ("ready", "too_old")


@pytest.mark.parametrize("first", ["echo 1.0.0", "exit 1"], ids=["too old", "broken"])
async def test_a_fallback_is_used_if_the_first_program_is_unusable(make: Make, bin_path: Path, first: str) -> None:
    program(bin_path / "claude", first)
    good = claude(bin_path / "good")
    agents = make(claude={"driver": "claude", "command": ["claude"], "fallbacks": [["nowhere"], ["good", "-x"]]})
    assert await agents.ready("claude") == Program(str(good), ["-x"])
    assert (state_of(agents), agents.public("claude")["version"]) == ("ready", "2.1.197")


async def test_if_all_programs_are_unusable_the_first_gives_the_reason(make: Make, bin_path: Path) -> None:
    program(bin_path / "claude", "echo 1.0.0")
    program(bin_path / "other", "exit 1")
    agents = make(claude={"driver": "claude", "command": ["claude"], "fallbacks": [["other"]]})
    with pytest.raises(Refused, match=r"1\.0\.0 is too old"):
        await agents.ready("claude")


async def test_probe_results_are_stored_for_the_next_server_but_temporary_failures_are_not(
    make: Make, bin_path: Path, tmp_path: Path
) -> None:
    path = claude(bin_path / "claude", more=f'test -e "{bin_path}/well" || exit 1')
    old = claude(bin_path / "old", "1.0.0")

    async def served() -> dict[str, str]:
        """One server run, as far as agents are concerned. Returns what is known about them at its end."""
        store = SqliteStore(tmp_path / "perdure.db")
        await store.open()
        await store.claim()
        agents = make(old={"driver": "claude", "command": ["old"]})
        await agents.recall(store, "node")
        await agents.survey(store)
        await store.close()
        return {name: state_of(agents, name) for name in ("claude", "old")}

    assert await served() == {"claude": "broken", "old": "too_old"}
    assert (times_asked(path), times_asked(old)) == (1, 1)
    (bin_path / "well").touch()
    assert await served() == {"claude": "ready", "old": "too_old"}
    assert await served() == {"claude": "ready", "old": "too_old"}
    assert (times_asked(path), times_asked(old)) == (2, 1)


# What resume depends on ---------------------------------------------------------------------------------------------


async def test_an_update_by_the_native_installer_keeps_native_sessions(make: Make, tmp_path: Path) -> None:
    """The native installer links `claude` to a file that is named after the version."""
    versions, link = tmp_path / "versions", tmp_path / "home/.local/bin/claude"
    link.parent.mkdir(parents=True)
    link.symlink_to(claude(versions / "2.1.197"))
    agents = make()
    await agents.ready("claude")
    before = agents.facts("claude", str(tmp_path))
    link.unlink()
    link.symlink_to(claude(versions / "2.1.325", "2.1.325"))
    await agents.ready("claude")
    assert agents.facts("claude", str(tmp_path)) == before
    assert agents.public("claude")["version"] == "2.1.325"


async def test_another_program_or_other_arguments_end_native_sessions(make: Make, bin_path: Path) -> None:
    for name in ("one", "two"):
        claude(bin_path / name)
    agents = make(
        a={"driver": "claude", "command": ["one"]},
        b={"driver": "claude", "command": ["two"]},
        c={"driver": "claude", "command": ["one", "-x"]},
    )
    assert len({agents.facts(name, "/").fingerprint for name in "abc"}) == 3


# Login state ------------------------------------------------------------------------------------------------------


def opened(**capabilities: Any) -> SessionOpened:
    return SessionOpened("native", resumed=False, capabilities=capabilities)


def test_an_agent_that_reports_a_missing_login_at_startup_needs_a_login(make: Make, bin_path: Path) -> None:
    claude(bin_path / "claude")
    agents = make()
    agents.abilities["claude"] = Abilities().after(opened(logged_in=False))
    shown = agents.public("claude")
    assert shown["state"] == "needs_login" and "/login" in shown["reason"]
    # It can still be started, because only that shows whether a login exists now.
    assert agents.require("claude")


def test_a_missing_login_that_an_earlier_version_stored_is_shown_with_the_same_advice(
    make: Make, bin_path: Path
) -> None:
    claude(bin_path / "claude")
    agents = make()
    agents.abilities["claude"] = Abilities().after(opened(logged_in=False))
    shown = agents.public("claude")
    stored = (
        b'{"login_problem":"Nobody is logged in: start `claude` in a terminal and enter /login, or give it a key in its'
        b' env.","refused_at_start":true}'
    )
    agents.abilities["claude"] = msgspec.json.decode(stored, type=Abilities)
    assert agents.public("claude")["reason"] == shown["reason"]


def problem_after(*facts: SessionOpened | StartFailed | TurnFinished) -> str | None:
    known = Abilities()
    for fact in facts:
        known = known.after(fact)
    return known.login_problem


def test_a_login_problem_ends_when_the_agent_works_again() -> None:
    refused, expired = StartFailed("needs_login", "Sign in."), TurnFinished(1, "failed", "needs_login", "expired")
    assert problem_after(opened(logged_in=False), opened(logged_in=True)) is None
    assert problem_after(refused, opened()) is None
    assert problem_after(expired, opened(logged_in=True)) == "expired"
    assert problem_after(expired, opened(), TurnFinished(2, "end_turn")) is None


def test_other_failures_say_nothing_about_the_login() -> None:
    refused, expired = StartFailed("needs_login", "Sign in."), TurnFinished(1, "failed", "needs_login", "expired")
    assert problem_after(refused, StartFailed("protocol", "odd")) == "Sign in."
    assert problem_after(expired, TurnFinished(2, "failed", "api_unavailable", "busy")) == "expired"
    assert problem_after(expired, TurnFinished(2, "cancelled")) == "expired"


def test_later_reports_of_an_agent_do_not_remove_its_models() -> None:
    first = Abilities().after(SessionOpened("native", False, models={"a": 1}, modes={"b": 2}))
    later = first.after(opened(version="2.1.325", features=["x"]))
    assert (later.models, later.modes, later.version) == ({"a": 1}, {"b": 2}, "2.1.325")


# Other agents -------------------------------------------------------------------------------------------------------


def test_agents_that_are_installed_are_offered_and_others_are_not(make: Make, bin_path: Path) -> None:
    program(bin_path / "qwen", "echo 0.24.4")
    agents = make()
    assert agents.names() == ["claude", "qwen", "rehearsal", "rehearsal-resume", "rehearsal-stream"]
    settings = agents.settings("qwen")
    assert (settings.driver, settings.command, settings.mode) == ("acp", ["qwen", "--acp"], "default")
    with pytest.raises(Refused, match="perdure agents add gemini"):
        agents.settings("gemini")


async def test_the_version_of_a_known_acp_agent_is_read_without_a_session(make: Make, bin_path: Path) -> None:
    program(bin_path / "gemini", 'test "$*" = --version && echo 0.61.0')
    agents = make()
    await agents.probe()
    shown = agents.public("gemini")
    assert (shown["state"], shown["version"]) == ("ready", "0.61.0")


async def test_an_acp_agent_without_a_version_can_be_used(make: Make, bin_path: Path) -> None:
    path = claude(bin_path / "gemini", more="exit 1")
    agents = make()
    await agents.probe()
    for _ in range(3):
        assert await agents.ready("gemini") == Program(str(path), ["--acp"])
    assert agents.public("gemini")["state"] == "ready"
    assert times_asked(path) == 1


async def test_an_unknown_program_is_never_run_to_get_its_version(make: Make, bin_path: Path) -> None:
    path = program(bin_path / "mine", f'touch "{bin_path}/started"')
    agents = make(mine={"driver": "acp", "command": ["mine", "serve"]})
    await agents.probe()
    assert await agents.ready("mine") == Program(str(path), ["serve"])
    assert not (bin_path / "started").exists()


def test_the_catalogue_says_how_to_get_each_agent_and_which_are_offered(make: Make) -> None:
    listed = {entry["name"]: entry for entry in make().catalogue()}
    assert set(listed) == set(CATALOGUE)
    for entry in listed.values():
        assert entry["command"] and entry["install"] and entry["login"] and entry["homepage"].startswith("https://")
    assert [name for name, entry in listed.items() if entry["offered"]] == ["claude"]


def test_packages_for_npx_and_uvx_are_pinned_to_a_version() -> None:
    for entry in CATALOGUE.values():
        if entry.command[0] == "npx":
            assert entry.command[1] == "-y" and entry.command[2].rpartition("@")[2][0].isdigit(), entry.name
        if entry.command[0] == "uvx":
            assert entry.command[1] == "--from" and entry.command[2].rpartition("==")[2][0].isdigit(), entry.name


# Environment ------------------------------------------------------------------------------------------------------


def test_an_agent_gets_the_proxy_settings_but_no_key(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    proxies = {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}
    for name in (*proxies, "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, f"value of {name}")
    given = make().environment("rehearsal")
    assert {name: given[name] for name in proxies} == {name: f"value of {name}" for name in proxies}
    assert "ANTHROPIC_API_KEY" not in given


# Reading perdure.toml again -----------------------------------------------------------------------------------------


def test_agents_added_to_the_file_are_loaded_while_the_server_runs(tmp_path: Path, bin_path: Path) -> None:
    file = tmp_path / "perdure.toml"
    agents = Agents({}, tmp_path, None, config_path=file)
    file.write_text('[agents.mine]\ndriver = "acp"\ncommand = ["sh"]\n')
    agents.reload()
    assert "mine" in agents.names()
    file.write_text("[agents.mine]\ndriver = 1\n")
    with pytest.raises(Refused, match="Nothing was changed"):
        agents.reload()
    assert agents.settings("mine").command == ["sh"]
    file.unlink()
    agents.reload()
    assert "mine" not in agents.names()


def test_a_server_without_a_file_has_nothing_to_reload(make: Make) -> None:
    with pytest.raises(Refused, match=r"perdure\.toml"):
        make().reload()
