"""What Claude Code tells of itself: at the handshake, with its first turn, and what of it is passed on."""

from typing import Any

import pytest

from perdure.drivers.base import SessionOpened
from tests.drivers.claude_peer import SESSION, Peer, all_of, init, only

LOGGED_IN = {"tokenSource": "claude.ai", "apiProvider": "firstParty", "email": "a@example.invalid"}
WITH_KEY = {"tokenSource": "none", "apiKeySource": "ANTHROPIC_API_KEY", "apiProvider": "firstParty"}
NOBODY = {"tokenSource": "none", "apiProvider": "firstParty"}
NOBODY_EITHER = {"tokenSource": "none", "apiKeySource": "none", "apiProvider": "firstParty"}
ELSEWHERE = {"apiProvider": "bedrock"}


@pytest.fixture
def peer() -> Peer:
    return Peer()


def abilities(observations: list[Any]) -> dict[str, Any]:
    return only(SessionOpened, observations).capabilities


@pytest.mark.parametrize(
    ("account", "logged_in"),
    [(LOGGED_IN, True), (WITH_KEY, True), (NOBODY, False), (NOBODY_EITHER, False), (ELSEWHERE, None), ({}, None)],
)
def test_the_handshake_says_whether_anybody_is_logged_in(
    peer: Peer, account: dict[str, str], logged_in: bool | None
) -> None:
    assert abilities(peer.open(account=account)).get("logged_in") is logged_in


def test_a_new_version_tells_it_at_the_handshake(peer: Peer) -> None:
    told = abilities(peer.open(claude_code_version="2.1.325", capabilities=["b", "a", 3]))
    assert told == {"can_resume": True, "version": "2.1.325", "features": ["a", "b"]}


def test_what_the_first_turn_adds_is_passed_on_once_with_what_was_known(peer: Peer) -> None:
    peer.open(account=WITH_KEY)
    peer.prompted()
    first = init(claude_code_version="2.1.325", capabilities=["interrupt_receipt_v1"])
    opened = only(SessionOpened, peer.says(first))
    assert opened.native_session_id == SESSION
    assert (opened.models, opened.modes) == (None, None)
    assert opened.capabilities == {
        "can_resume": True,
        "version": "2.1.325",
        "features": ["interrupt_receipt_v1"],
        "logged_in": True,
    }
    assert all_of(SessionOpened, peer.says(first)) == []


def test_an_old_version_that_says_nothing_of_itself_is_no_trouble(peer: Peer) -> None:
    assert abilities(peer.open()) == {"can_resume": True}
    peer.prompted()
    line = init()
    line.pop("claude_code_version", None)
    assert all_of(SessionOpened, peer.says(line)) == []
