"""A session's link to a process whose files were damaged."""

from pathlib import Path

from perdure.drivers import DRIVERS
from perdure.runtime.keeping.launch import Launch
from perdure.runtime.running.agent_link import AgentLink


def test_a_launch_whose_output_was_removed_has_nothing_unread(tmp_path: Path) -> None:
    """A clock may check before the runner has noticed the damage, and must not fail."""
    driver = DRIVERS["acp"]
    link = AgentLink(
        launch_id="x", session_id="s", agent="a", driver=driver, conversation=driver.begin("x"), launch=Launch(tmp_path)
    )
    assert not link.has_unread()
    (tmp_path / "out").write_bytes(b"more\n")
    assert link.has_unread()
