"""Which file system a directory is on, according to the mount table, and when two paths are the same directory."""

from pathlib import Path

import pytest

from perdure.runtime.data import filesystem
from perdure.runtime.data.filesystem import (
    NETWORK_FILE_SYSTEMS,
    UNKNOWN_BOOT,
    boot_id,
    directory_identity,
    file_system,
    is_within,
)


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
    assert file_system(tmp_path / "data") == "lustre", "the last mount at a path hides the others"
    assert file_system(tmp_path / "my données" / "data") == "fuse.rclone"
    assert {"lustre", "fuse.rclone", "nfs4", "fuse.sshfs"} <= NETWORK_FILE_SYSTEMS


def test_a_system_that_does_not_report_the_type_is_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "MOUNTS", tmp_path / "none")
    assert file_system(tmp_path) == ""


def test_a_directory_has_one_identity_under_all_its_names(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "link").symlink_to("one")
    (tmp_path / "other").mkdir()
    one, link, other = (directory_identity(str(tmp_path / name)) for name in ("one", "link", "other"))
    assert one == link != other
    (tmp_path / "one").rename(tmp_path / "moved")
    assert directory_identity(str(tmp_path / "moved")) == one


def test_the_same_inode_of_another_machine_is_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = directory_identity(str(tmp_path))
    (tmp_path / "boot").write_text("another\n")
    monkeypatch.setattr(filesystem, "BOOT_ID", tmp_path / "boot")
    assert directory_identity(str(tmp_path)) != here
    monkeypatch.setattr(filesystem, "BOOT_ID", tmp_path / "none")
    assert boot_id() == UNKNOWN_BOOT


def test_a_path_that_is_not_a_directory_has_no_identity(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert [directory_identity(path) for path in (str(tmp_path / "none"), str(tmp_path / "file"), "a\0b")] == [None] * 3


def test_a_path_is_within_itself_and_its_parents_but_not_its_siblings() -> None:
    assert is_within("/a/b", "/a/b") and is_within("/a/b", "/a") and is_within("/a", "/")
    assert not is_within("/a/bc", "/a/b") and not is_within("/a", "/a/b")
