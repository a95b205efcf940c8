"""Which file system a directory is on, as the system's table says."""

from pathlib import Path

import pytest

from perdure.runtime import filesystem
from perdure.runtime.filesystem import NETWORK_FILE_SYSTEMS, file_system


def test_the_longest_mount_point_names_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = str(tmp_path.resolve())
    (tmp_path / "my données").mkdir()
    escaped = f"{place}/my donn\u00e9es".replace(" ", "\\040")
    table = tmp_path / "mounts"
    table.write_text(
        f"root / ext4 rw 0 0\nhost {place} xfs rw 0 0\nhost {place} lustre rw 0 0\nhost {escaped} fuse.rclone rw 0 0\n",
        "utf-8",
    )
    monkeypatch.setattr(filesystem, "MOUNTS", table)
    assert file_system(Path("/")) == "ext4"
    assert file_system(tmp_path / "data") == "lustre", "the last one at a place hides the others"
    assert file_system(tmp_path / "my données" / "data") == "fuse.rclone"
    assert {"lustre", "fuse.rclone", "nfs4", "fuse.sshfs"} <= NETWORK_FILE_SYSTEMS


def test_a_system_that_does_not_say_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "MOUNTS", tmp_path / "none")
    assert file_system(tmp_path) == ""
