"""The client's history methods, against a real server and the rehearsal agent."""

from collections.abc import Callable, Iterator

import pytest

from perdure.surfaces.client import Client, Problem
from tests.surfaces.conftest import ServerProcess
from tests.surfaces.test_client import LIMIT_S, Script


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with server.client() as made:
        yield made


def ask(client: Client, text: str, session_id: str | None = None) -> str:
    """Send a message and wait for its turn. Returns the session's id."""
    sent = client.send(text, session_id)
    return finish(client, sent["session_id"], sent["seq"])


def finish(client: Client, session_id: str, seq: int) -> str:
    next(event for event in client.events(session_id, seq) if event.type == "waiting_for_input")
    return session_id


def answer(client: Client, session_id: str) -> str:
    last = client.transcript(session_id)["turns"][-1]
    return "".join(part["text"] for part in last["parts"] if part["type"] == "text")


def conversation(client: Client, *texts: str) -> str:
    session_id = ask(client, texts[0])
    for text in texts[1:]:
        ask(client, text, session_id)
    return session_id


def test_an_edited_message_is_what_the_agent_knows_from_then_on(client: Client) -> None:
    session_id = conversation(client, "say one", "say two")
    turn = client.session(session_id)["turns"][0]
    changed = client.edit_message(session_id, turn["message_id"], "say uno")
    assert changed["revision"] == 1
    assert client.transcript(session_id)["turns"][0]["message"]["text"] == "say uno"
    ask(client, "recall", session_id)
    assert '"say uno"' in answer(client, session_id) and '"say one"' not in answer(client, session_id)


def test_a_message_with_any_id_can_be_edited(client: Client) -> None:
    sent = client.send("say one", message_id="my/own id?")
    session_id = finish(client, sent["session_id"], sent["seq"])
    client.edit_message(session_id, "my/own id?", "say uno")
    assert client.transcript(session_id)["turns"][0]["message"]["text"] == "say uno"


def test_a_change_for_an_old_revision_is_refused_and_changes_nothing(client: Client) -> None:
    session_id = conversation(client, "say one", "say two")
    before = client.session(session_id)
    message_id = before["turns"][0]["message_id"]
    client.edit_message(session_id, message_id, "say uno", revision=before["revision"])
    changes: list[Callable[[], object]] = [
        lambda: client.edit_message(session_id, message_id, "say eins", revision=before["revision"]),
        lambda: client.rewind(session_id, 2, revision=before["revision"]),
        lambda: client.retry(session_id, 2, revision=before["revision"]),
    ]
    for change in changes:
        with pytest.raises(Problem) as refused:
            change()
        assert refused.value.code == "conflict"
    assert [turn["message"]["text"] for turn in client.transcript(session_id)["turns"]] == ["say uno", "say two"]


def test_rewound_turns_are_gone_from_the_transcript_and_can_still_be_read(client: Client) -> None:
    session_id = conversation(client, "say one", "say two", "say three")
    rewound = client.rewind(session_id, 2)
    assert [turn["turn"] for turn in rewound["turns"]] == [1]
    assert [turn["turn"] for turn in client.transcript(session_id)["turns"]] == [1]
    every = client.transcript(session_id, rewound=True)["turns"]
    assert [(turn["turn"], turn["rewound"]) for turn in every] == [(1, False), (2, True), (3, True)]


def test_a_retry_replaces_the_turn_with_a_new_one_for_the_same_or_another_message(client: Client) -> None:
    session_id = conversation(client, "say one", "say two", "recall")
    again = client.retry(session_id, 2)
    assert again["turn"] == 4
    finish(client, session_id, again["seq"])
    assert answer(client, session_id) == "two"
    other = client.retry(session_id, 4, text="recall", agent="rehearsal-stream", revision=1)
    finish(client, session_id, other["seq"])
    assert answer(client, session_id).splitlines() == ["recall 2", '- "say one"', '- "recall"']
    last = client.session(session_id)["turns"][-1]
    assert (last["turn"], last["agent"], last["context"]) == (5, "rehearsal-stream", "fresh")


def test_a_retry_happens_once_although_the_response_was_lost(server: ServerProcess, client: Client) -> None:
    session_id = conversation(client, "say one")
    lost = Script([b""])
    places = iter([lost.address])
    with Client(lambda: next(places, None) or server.address(), patience_s=LIMIT_S) as other:
        first = other.retry(session_id, 1, message_id="again")
        finish(other, session_id, first["seq"])
        assert other.retry(session_id, 1, message_id="again") == first
    lost.close()
    assert len(lost.asked) == 1
    assert [turn["turn"] for turn in client.session(session_id)["turns"]] == [2]


def test_a_fork_has_the_history_and_is_independent(client: Client) -> None:
    session_id = conversation(client, "say one", "say two")
    fork = client.fork(session_id, 1, agent="rehearsal-stream")
    assert fork["id"] != session_id and fork["agent"] == "rehearsal-stream"
    ask(client, "recall", fork["id"])
    assert answer(client, fork["id"]).splitlines() == ["recall 2", '- "say one"', '- "recall"']
    assert client.session(session_id)["turn_count"] == 2
    assert client.fork(session_id)["turn_count"] == 2


def test_the_plan_describes_what_the_next_turn_would_do(client: Client) -> None:
    session_id = conversation(client, "say one")
    assert client.plan(session_id)["context"] == "live"
    fresh = client.plan(session_id, fresh=True)
    assert (fresh["context"], fresh["reason"], fresh["guards"]["not_asked_fresh"]) == (
        "fresh",
        "fresh_requested",
        False,
    )
    other = client.plan(session_id, agent="rehearsal-stream")
    assert (other["agent"], other["reason"], other["turns_told"]) == ("rehearsal-stream", "no_native_session", [1])


def test_usage_is_summed_by_the_requested_key(client: Client) -> None:
    session_id = conversation(client, "usage 100 20\nsay one", "say two")
    conversation(client, "usage 1 1")
    by_session = client.usage("session", session=session_id)
    assert [(group["session"], group["turns"], group["input_tokens"]) for group in by_session["usage"]] == [
        (session_id, 2, 100)
    ]
    assert client.usage()["total"]["turns"] == 3
    assert client.usage(until="2020-01-01")["usage"] == []
    with pytest.raises(Problem, match="group_by must be"):
        client.usage("moon")


def test_history_cannot_be_changed_while_a_turn_runs(client: Client) -> None:
    session_id = conversation(client, "say one")
    message_id = client.session(session_id)["turns"][0]["message_id"]
    client.send("hang", session_id)
    changes: list[Callable[[], object]] = [
        lambda: client.edit_message(session_id, message_id, "say uno"),
        lambda: client.rewind(session_id, 1),
        lambda: client.retry(session_id, 1),
        lambda: client.plan(session_id),
    ]
    for change in changes:
        with pytest.raises(Problem) as refused:
            change()
        assert refused.value.code == "turn_active"
