"""Agents over HTTP: the catalogue, reloading the configuration, and a session whose agent starts immediately."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from perdure.runtime.agents.catalogue import CATALOGUE
from perdure.surfaces.http.agents import AgentList, Catalogue
from tests.harness import LiveServer, eventually
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_access import is_problem


def test_the_catalogue_lists_the_agents_that_can_be_added(server: LocalServer) -> None:
    listed = msgspec.convert(server.get("/api/catalogue"), Catalogue).catalogue
    assert [entry.name for entry in listed] == list(CATALOGUE)
    assert next(entry for entry in listed if entry.name == "claude").offered


def test_a_server_without_a_configuration_file_refuses_to_reload_it(server: LocalServer) -> None:
    assert is_problem(server.http.post("/api/agents/reload"), 409, "conflict")


def test_a_reload_updates_the_agents_from_the_configuration_file(tmp_path: Path) -> None:
    server = LiveServer(tmp_path / "data", "[server]\nslots = 0\n").start()
    try:
        file = tmp_path / "data" / "perdure.toml"
        file.write_text('[agents.mine]\ndriver = "acp"\ncommand = ["sh"]\n')
        listed = msgspec.convert(server.post("/api/agents/reload", expect=200), AgentList)
        assert "mine" in {agent.name for agent in listed.agents}
        file.write_text("[agents.mine]\n")
        assert is_problem(server.http.post("/api/agents/reload"), 400, "invalid")
        assert server.get("/api/agents/mine")["command"] == ["sh"]
    finally:
        server.stop()
        server.http.close()


def test_a_warm_session_has_a_running_agent_before_its_first_message(make_server: Callable[..., LocalServer]) -> None:
    server = make_server()
    session = server.create(agent="rehearsal", warm=True)
    server.wait(session, lambda shown: bool(shown["native_session_id"]))
    assert server.session(session)["turn_count"] == 0
    eventually(lambda: server.get("/api/agents/rehearsal")["version"], "its version is known")
