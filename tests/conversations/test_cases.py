"""When a turn continues in the native session, and when it doesn't. Each case checks both halves: which session the
agent was asked to open, and what its model really received. Without a resumed session, it must receive everything."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conversations.families import CONFIG, FAMILIES, Family, Stage
from tests.harness import LiveServer, SharedServers
from tests.model.server import running

pytestmark = pytest.mark.timeout(300)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(params=FAMILIES, ids=lambda family: family.name)
def family(request: pytest.FixtureRequest) -> Family:
    found: Family = request.param
    return found


@pytest.fixture
def stage(
    family: Family,
    tmp_path: Path,
    servers: SharedServers,
    request: pytest.FixtureRequest,
) -> Iterator[Stage]:
    installed = request.getfixturevalue("real_agent")(family.program) if family.program else None
    with contextlib.ExitStack() as ended:
        model = ended.enter_context(running()) if installed else None
        server = ended.enter_context(servers.borrowed(LiveServer, CONFIG))
        yield Stage(family, tmp_path, server, installed, model)


def resumes(stage: Stage, session: str, text: str, said: list[str], **fields: Any) -> Any:
    """The next turn resumes the native session and sends only the message; the model knows everything."""
    native = stage.native_id(session)
    stage.end_process(session)
    turn = stage.say(session, text, **fields)
    assert turn["context"] == "resumed"
    resumed, told, message = stage.newest()
    assert (resumed, told, message) == (native, [], text)
    assert stage.held(session) == [*said, text]
    return turn


def starts_over(stage: Stage, session: str, text: str, said: list[str], reason: str, **fields: Any) -> Any:
    """The next turn resumes nothing and sends the whole history with the message; the model knows it once."""
    stage.end_process(session)
    return told_all(stage, session, stage.say(session, text, **fields), text, said, reason)


def told_all(stage: Stage, session: str, turn: Any, text: str, said: list[str], reason: str) -> Any:
    assert (turn["context"], turn["context_reason"]) == ("fresh", reason)
    resumed, told, message = stage.newest()
    assert resumed is None
    assert [entry.text for entry in told if entry.role == "user"] == said
    assert message == text
    assert stage.held(session) == [*said, text]
    return turn


@pytest.mark.smoke
def test_a_follow_up_resumes_and_sends_only_the_new_message(stage: Stage) -> None:
    session = stage.session()
    stage.say(session, "say one")
    turn = resumes(stage, session, "say two", ["say one"])
    assert turn["input_bytes"] < 1000


def test_another_agent_receives_everything(stage: Stage) -> None:
    session = stage.session()
    stage.say(session, "say one")
    starts_over(stage, session, "say two", ["say one"], "no_native_session", agent="second")


def test_returning_to_an_agent_resumes_it_and_sends_what_it_missed(stage: Stage) -> None:
    session = stage.session()
    stage.say(session, "say one")
    native = stage.native_id(session)
    stage.say(session, "say two", agent="second")
    turn = stage.say(session, "say three", agent="first")
    assert (turn["context"], turn["catch_up"]) == ("resumed", 1)
    resumed, told, message = stage.newest()
    assert (resumed, message) == (native, "say three")
    assert [(entry.role, entry.text, entry.agent) for entry in told] == [
        ("user", "say two", "second"),
        ("assistant", "two", "second"),
    ]
    assert stage.held(session) == ["say one", "say two", "say three"]


@pytest.mark.parametrize("how", ["fresh", "forceFreshSession"])
def test_a_turn_is_fresh_on_request(stage: Stage, how: str) -> None:
    session = stage.session()
    stage.say(session, "say one")
    starts_over(stage, session, "say two", ["say one"], "fresh_requested", **{how: True})


def test_a_retry_is_fresh_and_the_model_does_not_see_the_replaced_turn(stage: Stage) -> None:
    session = stage.session()
    stage.say(session, "say one")
    stage.say(session, "say two")
    turn = stage.retry(session, 2, text="say other")
    told_all(stage, session, turn, "say other", ["say one"], "fresh_requested")
    assert [turn["turn"] for turn in stage.server.session(session)["turns"]] == [1, 3]


def test_an_edit_of_a_turn_that_the_agent_has_seen_starts_over(stage: Stage) -> None:
    session = stage.session()
    stage.say(session, "say one")
    stage.say(session, "say two")
    assert stage.edit(session, 1, "say won")["bumped"] == ["first"]
    starts_over(stage, session, "say three", ["say won", "say two"], "history_changed")


def test_with_scope_agent_editing_a_foreign_turn_that_remains_the_boundary_changes_nothing(stage: Stage) -> None:
    stage.set_project('history_scope = "agent"')
    session = stage.session()
    stage.say(session, "say one", agent="second")
    stage.say(session, "say two", agent="first")
    assert stage.newest() == (None, [], "say two")
    assert stage.edit(session, 1, "say won")["bumped"] == ["second"]
    resumes(stage, session, "say three", ["say two"])


@pytest.mark.parametrize("how", ["retry", "rewind"])
def test_with_scope_agent_a_retry_or_a_cut_at_a_foreign_boundary_starts_over(stage: Stage, how: str) -> None:
    stage.set_project('history_scope = "agent"')
    session = stage.session()
    stage.say(session, "say one")
    stage.say(session, "say two", agent="second")
    stage.say(session, "say three", agent="first")
    if how == "rewind":
        assert stage.rewind(session, 2)["bumped"] == ["first", "second"]
        starts_over(stage, session, "say four", ["say one"], "history_changed", agent="first")
    else:
        stage.retry(session, 2)
        assert stage.change(session)["bumped"] == ["first", "second"]
        # Its view starts after the other agent's answer, which is visible again.
        starts_over(stage, session, "say four", [], "history_changed", agent="first")


def test_with_scope_all_both_an_edit_and_a_retry_of_a_foreign_turn_start_over(stage: Stage) -> None:
    session = stage.session()
    stage.say(session, "say one", agent="second")
    stage.say(session, "say two", agent="first")
    assert stage.edit(session, 1, "say won")["bumped"] == ["first", "second"]
    starts_over(stage, session, "say three", ["say won", "say two"], "history_changed", agent="first")
    stage.retry(session, 1)
    assert stage.change(session)["bumped"] == ["first", "second"]
    starts_over(stage, session, "say four", ["say won"], "history_changed", agent="first")


def test_another_working_directory_in_the_same_place_starts_over(stage: Stage) -> None:
    session = stage.session()
    stage.say(session, "say one")
    stage.end_process(session)
    stage.workdir.rename(stage.folder / "moved away")
    stage.workdir.mkdir()
    starts_over(stage, session, "say two", ["say one"], "workdir_changed")


def test_another_program_under_the_same_name_starts_over(stage: Stage) -> None:
    session = stage.session()
    stage.say(session, "say one")
    stage.move_the_program()
    starts_over(stage, session, "say two", ["say one"], "runtime_changed")


def test_a_refused_session_is_requested_once_and_then_everything_is_replayed(stage: Stage) -> None:
    session = stage.session()
    stage.say(session, "say one")
    native = stage.native_id(session)
    stage.end_process(session)
    stage.forget_native_session(session)
    turn = stage.say(session, "say two")
    assert turn["context"] == "fresh"
    resumed, told, message = stage.newest()
    assert resumed is None
    assert [entry.text for entry in told if entry.role == "user"] == ["say one"]
    assert message == "say two"
    assert stage.held(session) == ["say one", "say two"]
    assert [turn["turn"] for turn in stage.server.session(session)["turns"]] == [1, 2]
    fallen = [event for event in stage.server.log(session) if event["type"] == "context_fallback"]
    assert [event["turn"] for event in fallen] == [2] and fallen[0]["reason"]
    assert stage.native_id(session) != native
    # It is never requested again.
    resumes(stage, session, "say three", ["say one", "say two"])


def test_an_agent_that_cannot_resume_is_never_asked_to_and_always_receives_everything(stage: Stage) -> None:
    stage.hide_resume()
    session = stage.session()
    stage.say(session, "say one")
    starts_over(stage, session, "say two", ["say one"], "agent_cannot_resume")
    starts_over(stage, session, "say three", ["say one", "say two"], "agent_cannot_resume")


def test_resuming_can_be_turned_off_for_a_project(stage: Stage) -> None:
    stage.set_project('resume = "never"')
    session = stage.session()
    stage.say(session, "say one")
    starts_over(stage, session, "say two", ["say one"], "resume_off")


def test_a_question_is_asked_and_answered_in_a_resumed_turn(stage: Stage) -> None:
    session = stage.session()
    stage.say(session, "say one")
    stage.end_process(session)
    number = stage.server.send(session, "ask Which colour? | red | blue")["turn"]
    prompt = stage.server.prompt(session, 120)
    assert prompt["kind"] == "question"
    answers = {prompt["questions"][0]["question_id"]: "red"}
    stage.server.post(f"/api/sessions/{session}/prompts/{prompt['prompt_id']}", {"answers": answers}, expect=200)
    assert stage.over(session, number)["context"] == "resumed"
    assert "red" in stage.server.text(session, number)
    # The replay says that the question was answered.
    stage.say(session, "say on", fresh=True)
    _, told, _ = stage.newest()
    assert "already answered: red" in "".join(entry.text for entry in told if entry.role == "assistant")


def test_a_fork_resumes_nothing_and_receives_the_history_up_to_its_turn(stage: Stage) -> None:
    session = stage.session()
    stage.say(session, "say one")
    stage.say(session, "say two")
    forked = stage.server.post(f"/api/sessions/{session}/fork", {"turn": 1}, expect=201)["id"]
    starts_over(stage, forked, "say three", ["say one"], "no_native_session")
    stage.say(session, "say four")
    assert stage.held(session) == ["say one", "say two", "say four"]


def test_an_attached_image_is_sent_once_and_then_only_named(stage: Stage) -> None:
    session = stage.session()
    picture = {"name": "shot.png", "mime_type": "image/png", "data": PIXEL}
    stage.say(session, "say one", attachments=[picture])
    if stage.model is not None:
        assert '"image"' in json.dumps(stage.model.log.asked[-1].body["messages"])
    starts_over(stage, session, "say two", ["say one"], "fresh_requested", fresh=True)
    _, told, _ = stage.newest()
    assert told[0].note == "attached: shot.png"
