"""What a session knows of its process, while somebody else damages the files between them."""

from pathlib import Path

from perdure.drivers import DRIVERS
from perdure.runtime.keeping.launch import Launch
from perdure.runtime.running.attachment import Attachment


def test_a_launch_whose_output_was_removed_has_nothing_unread(tmp_path: Path) -> None:
    """A clock may look before the runner has noticed: it must not fail."""
    driver = DRIVERS["acp"]
    attachment = Attachment(
        launch_id="x", session_id="s", agent="a", driver=driver, conversation=driver.begin("x"), launch=Launch(tmp_path)
    )
    assert not attachment.has_unread()
    (tmp_path / "out").write_bytes(b"more\n")
    assert attachment.has_unread()
