"""What Claude Code reports about itself in the handshake and in its first turn, and what is passed on."""

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
def test_the_handshake_says_whether_a_user_is_logged_in(
    peer: Peer, account: dict[str, str], logged_in: bool | None
) -> None:
    assert abilities(peer.open(account=account)).get("logged_in") is logged_in


def test_newer_versions_report_version_and_features_in_the_handshake(peer: Peer) -> None:
    told = abilities(peer.open(claude_code_version="2.1.325", capabilities=["b", "a", 3]))
    assert told == {"can_resume": True, "version": "2.1.325", "features": ["a", "b"]}


def test_abilities_added_by_the_first_turn_are_reported_once_with_the_known_ones(peer: Peer) -> None:
    peer.open(account=WITH_KEY)
    peer.send_input()
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


def test_an_old_version_without_a_self_description_works(peer: Peer) -> None:
    assert abilities(peer.open()) == {"can_resume": True}
    peer.send_input()
    line = init()
    line.pop("claude_code_version", None)
    assert all_of(SessionOpened, peer.says(line)) == []
