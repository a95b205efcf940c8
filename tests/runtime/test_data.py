"""The data directory: one server, private files, and an epoch that changes only if numbers may have been used twice."""

import json
import shutil
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.runtime.data import directory as module
from perdure.runtime.data.directory import FILES, FOLDERS, DataDirectory, DataError


def test_a_second_server_is_refused_with_the_address_of_the_first(tmp_path: Path) -> None:
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


def test_a_directory_that_can_not_be_created_is_reported_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="--data"):
        DataDirectory(tmp_path / "file" / "data").open()


def test_the_token_is_generated_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    made = directory.token(None)
    assert len(made) >= 32
    assert directory.token(None) == made
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


def test_a_given_token_is_saved_so_that_the_command_line_finds_it(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    directory.token(None)
    assert directory.token("chosen-by-somebody") == "chosen-by-somebody"
    assert directory.token(None) == "chosen-by-somebody"


def test_the_epoch_survives_restarts_and_kills(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    assert directory.epoch(1) == 0
    assert directory.epoch(2) == 0
    directory.mark_boot(0, 2, clean=True)
    assert directory.epoch(3) == 0


def test_the_epoch_changes_after_a_reboot_without_a_clean_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = DataDirectory(tmp_path)
    assert directory.epoch(1) == 0
    monkeypatch.setattr(module, "boot_id", lambda: "another")
    assert directory.epoch(2) == 1
    directory.mark_boot(1, 2, clean=True)
    monkeypatch.setattr(module, "boot_id", lambda: "a third")
    assert directory.epoch(3) == 1


@pytest.mark.parametrize(
    "found",
    [b"{", b"", b"[1,2]", b"5", b"null", b'{"generation":null}', b"\xff", bytes(40), b"[" * 100_000]
    + [
        b'{"boot":"b","clean":true,"epoch":%b,"generation":3,"place":1}' % number
        for number in (b"-1", b'"4"', b"1e300")
    ],
)
def test_an_unreadable_boot_file_counts_as_an_unclean_shutdown(tmp_path: Path, found: bytes) -> None:
    directory = DataDirectory(tmp_path)
    (tmp_path / "boot.json").write_bytes(found)
    moved = directory.epoch(9)
    # The generation: no earlier epoch can be higher, as it increases at most once per server start.
    assert moved == 9
    assert directory.epoch(10) == moved


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=st.sampled_from(["token", "install", "boot.json", "server.json"]), content=st.binary(max_size=60))
def test_any_content_of_a_small_file_is_used_or_refused_with_what_to_do(
    tmp_path: Path, name: str, content: bytes
) -> None:
    directory = DataDirectory(tmp_path)
    (tmp_path / name).write_bytes(content)
    refused = None
    try:
        assert directory.token(None).isascii()
        assert len(directory.install_id()) == 8
        assert directory.epoch(3) >= 0
        assert directory.running()
    except DataError as error:
        refused = str(error)
        (tmp_path / name).unlink()
    assert refused is None or (str(tmp_path / name) in refused and "elete" in refused)


@pytest.mark.parametrize("name", FILES)
def test_a_folder_in_place_of_a_file_is_reported_and_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name / "inside").mkdir(parents=True)
    tmp_path.chmod(0o700)
    with pytest.raises(DataError, match=rf"/{name} must be a file.*Move it away"):
        DataDirectory(tmp_path).open()
    assert (tmp_path / name / "inside").is_dir()


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("is_link", [False, True])
def test_a_file_or_a_broken_link_in_place_of_a_folder_is_reported_and_left_alone(
    tmp_path: Path, name: str, is_link: bool
) -> None:
    (tmp_path / name).symlink_to("/no/such/place") if is_link else (tmp_path / name).write_text("mine")
    tmp_path.chmod(0o700)
    with pytest.raises(DataError, match=rf"/{name} must be a folder.*Move it away"):
        DataDirectory(tmp_path).open()
    assert (tmp_path / name).is_symlink() is is_link


def test_the_epoch_changes_after_a_backup_of_the_database_is_restored(tmp_path: Path) -> None:
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
