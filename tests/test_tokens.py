"""The token: which ones are valid, where they may come from, and what a new token invalidates."""

import os
import secrets
from pathlib import Path

import pytest

from tests import warm
from tests.harness import NO_LIMITS, WAIT_S, LiveServer
from tests.signing import signed_in

GOOD = "a-token-of-21-letters"


class Given(LiveServer):
    """A server that gets its token in the way that a test chooses."""

    given_token = None


def environment(**more: str) -> dict[str, str]:
    return {**{key: value for key, value in os.environ.items() if not key.startswith("PERDURE_")}, **more}


def refused(data: Path, *options: str, **more: str) -> str:
    """Return the error of a server that does not start."""
    command = ["serve", "--port", "0", "--data", str(data), *options]
    ended = warm.run(command, stdin="", env=environment(**more), cwd=data.parent, timeout_s=WAIT_S)
    assert ended.returncode == 1, ended.stdout
    assert "Traceback" not in ended.stderr
    return ended.stderr


@pytest.mark.parametrize(
    ("token", "told"),
    [
        ("fifteen-letters", "at least 16"),
        ("\u2603", "at least 16"),
        ("sixteen letters and more", "without spaces"),
        ("sixteen-letters\tand-more", "without spaces"),
        ("sixteen-letters\nand-more", "without spaces"),
        ("sixteen-letters-\x7f-\x1b[31m", "without spaces"),
        ("sixteen-letters-caf\u00e9", "without spaces"),
        ("x" * 1025, "at most 1024"),
    ],
)
def test_a_token_that_is_weak_or_can_not_be_sent_is_refused(tmp_path: Path, token: str, told: str) -> None:
    said = refused(tmp_path / "data", PERDURE_TOKEN=token)
    assert told in said and "leave it out" in said
    assert token not in said, "a token must not be in the log"
    assert not (tmp_path / "data" / "token").exists()


def test_a_stored_token_that_is_too_short_is_refused_with_how_to_get_another(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("short\n")
    said = refused(tmp_path)
    assert str(tmp_path / "token") in said and "Delete the file" in said


def test_a_token_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{GOOD}\n")
    file.chmod(0o600)
    server = Given(tmp_path / "data", NO_LIMITS, env={"PERDURE_TOKEN_FILE": str(file)}).start()
    try:
        assert server.token == GOOD, "the command line finds it in the data directory"
        assert server.http.get("/api/sessions").status_code == 200
    finally:
        server.finish()


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [
        (GOOD, 0o640, "chmod 600"),
        (GOOD, 0o604, "chmod 600"),
        (GOOD, 0o644, "chmod 600"),
        ("", 0o600, "at least 16"),
        ("short\n", 0o600, "at least 16"),
        (f"{GOOD}\n{GOOD}\n", 0o600, "without spaces"),
        (None, 0o600, "can't be read"),
    ],
)
def test_a_token_file_that_can_not_be_used_says_what_to_do(
    tmp_path: Path, text: str | None, mode: int, told: str
) -> None:
    file = tmp_path / "secret"
    if text is not None:
        file.write_text(text)
        file.chmod(mode)
    said = refused(tmp_path / "data", "--token-file", str(file))
    assert told in said and str(file) in said


def test_a_token_is_given_in_one_way_only(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(GOOD)
    file.chmod(0o600)
    said = refused(tmp_path / "data", "--token-file", str(file), PERDURE_TOKEN=GOOD + "-other")
    assert "--token-file" in said and "PERDURE_TOKEN" in said


# Sign-ins -----------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_new_token_ends_every_sign_in_made_with_the_old_one(tmp_path: Path) -> None:
    server = LiveServer(tmp_path / "data", NO_LIMITS).start()
    try:
        with signed_in(server) as browser:
            assert browser.get("/api/sessions").status_code == 200
            port = server.port
            server.stop()
            server.start(port)
            assert browser.get("/api/sessions").status_code == 200, "the same token changes nothing"
            server.stop()
            before, server.given_token = server.given_token, secrets.token_hex(20)
            server.start(port)
            assert browser.get("/api/sessions").status_code == 401
            assert server.get("/api/logins")["logins"] == []
            server.stop()
            server.given_token = before
            server.start(port)
            assert browser.get("/api/sessions").status_code == 401, "nor does the old token bring it back"
    finally:
        server.finish()
