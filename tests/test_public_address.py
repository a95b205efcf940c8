"""An address that other machines can reach: plain HTTP there must be an explicit choice."""

import os
from pathlib import Path

import pytest

from tests import warm
from tests.harness import NO_LIMITS, WAIT_S, LiveServer
from tests.signing import new_code


def refused(data: Path, host: str) -> str:
    """Return the error of a server that refuses to start at this address."""
    command = ["serve", "--host", host, "--port", "0", "--data", str(data)]
    ended = warm.run(command, stdin="", env=dict(os.environ), cwd=data.parent, timeout_s=WAIT_S)
    assert ended.returncode == 1, ended.stdout
    assert "Traceback" not in ended.stderr and "listening" not in ended.stdout
    return ended.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_address_that_others_can_reach_is_refused_with_both_ways_out(tmp_path: Path, host: str) -> None:
    said = refused(tmp_path / "data", host)
    assert "--behind-proxy" in said and "--insecure-http" in said


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", pytest.param("127.0.0.2", marks=pytest.mark.full), pytest.param("localhost", marks=pytest.mark.full)],
)
def test_this_machine_s_own_addresses_need_no_choice(tmp_path: Path, host: str) -> None:
    server = LiveServer(tmp_path / "data", NO_LIMITS, env={"PERDURE_HOST": host}).start()
    try:
        assert server.http.get("/api/sessions").status_code == 200
        assert "plain HTTP" not in server.log_tail()
    finally:
        server.finish()


@pytest.mark.parametrize(
    ("config", "env", "is_secure"),
    [
        (NO_LIMITS, {"PERDURE_INSECURE_HTTP": "1"}, False),
        (NO_LIMITS + "insecure_http = true\n", {}, False),
        (NO_LIMITS, {"PERDURE_BEHIND_PROXY": "1"}, True),
        (NO_LIMITS + "behind_proxy = true\n", {}, True),
    ],
)
def test_an_explicit_choice_is_respected(tmp_path: Path, config: str, env: dict[str, str], is_secure: bool) -> None:
    server = LiveServer(tmp_path / "data", config, env={"PERDURE_HOST": "0.0.0.0", **env}).start()
    try:
        answer = server.http.post("/api/login", json={"code": new_code(server)})
        assert answer.status_code == 200
        assert ("Secure" in answer.headers["set-cookie"]) == is_secure
        assert ("plain HTTP" in server.log_tail()) != is_secure
    finally:
        server.finish()
