"""The data directory: one server, private files, an epoch that moves only when numbers may have been given twice."""

import json
import shutil
import stat
from pathlib import Path

import pytest

from perdure.runtime import data as module
from perdure.runtime.data import DataDirectory, DataError


def test_a_second_server_is_refused_and_told_where_the_first_one_listens(tmp_path: Path) -> None:
    first, second = DataDirectory(tmp_path / "d"), DataDirectory(tmp_path / "d")
    first.open()
    first.write("server.json", json.dumps({"pid": 7, "url": "http://127.0.0.1:1"}))
    with pytest.raises(DataError, match=r"pid 7, http://127.0.0.1:1.*--data"):
        second.open()
    first.close()
    second.open()
    second.close()


def test_a_directory_on_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "file_system", lambda _: "nfs4")
    with pytest.raises(DataError, match="network file system"):
        DataDirectory(tmp_path).open()


def test_a_directory_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="--data"):
        DataDirectory(tmp_path / "file" / "data").open()


def test_the_token_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    made = directory.token(None)
    assert len(made) >= 32
    assert directory.token(None) == made
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


def test_a_given_token_is_kept_so_that_the_command_line_finds_it(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    directory.token(None)
    assert directory.token("chosen-by-somebody") == "chosen-by-somebody"
    assert directory.token(None) == "chosen-by-somebody"


def test_the_epoch_stays_over_restarts_and_kills(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    assert directory.epoch(1) == 0
    assert directory.epoch(2) == 0
    directory.mark_boot(0, 2, clean=True)
    assert directory.epoch(3) == 0


def test_the_epoch_moves_after_a_reboot_that_no_server_saw_coming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = DataDirectory(tmp_path)
    assert directory.epoch(1) == 0
    monkeypatch.setattr(module, "boot_id", lambda: "another")
    assert directory.epoch(2) == 1
    directory.mark_boot(1, 2, clean=True)
    monkeypatch.setattr(module, "boot_id", lambda: "a third")
    assert directory.epoch(3) == 1


def test_a_damaged_boot_file_is_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "boot.json").write_text("{")
    assert DataDirectory(tmp_path).epoch(1) == 0


def test_the_epoch_moves_when_a_backup_of_the_database_was_put_back(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    assert directory.epoch(7) == 0
    assert directory.epoch(5) == 1
    assert directory.epoch(6) == 1


def test_a_copy_of_the_directory_is_another_installation_with_another_epoch(tmp_path: Path) -> None:
    first, second = DataDirectory(tmp_path / "first"), DataDirectory(tmp_path / "second")
    first.path.mkdir(mode=0o700)
    known = first.install_id()
    assert first.install_id() == known
    first.epoch(1)
    shutil.copytree(first.path, second.path)
    assert second.install_id() not in ("", known)
    assert second.install_id() == second.install_id()
    assert second.epoch(2) == 1
    assert (first.install_id(), first.epoch(2)) == (known, 0)
