"""A program made for server-driven chat: each success criterion of its specification, against the settings of
docs/sdc.md."""

from collections.abc import Callable

import pytest

from tests.harness import LiveServer, eventually
from tests.seeds.sdc_client import Discussion

Serve = Callable[..., LiveServer]
WORDS = 300
ANSWER = "".join(f"w{number} " for number in range(WORDS))


def discussion_of(server: LiveServer) -> Discussion:
    return Discussion(server.url, server.token)


@pytest.mark.smoke
def test_a_turn_finishes_with_no_client_connected(serve: Serve) -> None:
    chat = discussion_of(serve("sdc.md"))
    status, accepted = chat.send(f"stream {WORDS} 2")
    assert status == 202
    session = accepted["session_id"]
    eventually(lambda: chat.session(session)["state"] == "idle", "the turn ends")
    assert chat.history(session) == [ANSWER]
    view = chat.view()
    assert (view.session_id, view.text, view.processing, view.result) == (session, ANSWER, False, "end_turn")
    view.disconnect()


def test_a_view_that_reconnects_gets_a_snapshot_and_then_live_events(serve: Serve) -> None:
    chat = discussion_of(serve("sdc.md"))
    chat.send(f"tool Bash ls\nstream {WORDS} 5")
    view = chat.view()
    while len(view.text) < 20:
        view.step()
    view.disconnect()
    back = chat.view()
    assert back.processing and list(back.tools.values()) == ["completed"]
    assert len(back.text) >= 20 and ANSWER.startswith(back.text)
    back.until("turn_end")
    assert (back.text, back.result) == (ANSWER, "end_turn")
    back.disconnect()
    assert chat.history(back.session_id) == [ANSWER]


def test_a_second_message_is_refused_during_a_turn_and_two_views_see_the_same(serve: Serve) -> None:
    chat = discussion_of(serve("sdc.md"))
    _, accepted = chat.send(f"stream {WORDS} 5")
    first, second = chat.view(), chat.view()
    status, refusal = chat.send("say too early", accepted["session_id"])
    assert (status, refusal["code"], refusal["state"]) == (409, "turn_active", "processing")
    for view in (first, second):
        view.until("turn_end")
        assert view.text == ANSWER
    status, again = chat.send("recall", accepted["session_id"])
    assert (status, again["session_id"], again["turn"]) == (202, accepted["session_id"], 2)
    first.until("turn_end")
    assert f"stream {WORDS} 5" in first.text
    first.disconnect()
    second.disconnect()


def test_the_stop_button_keeps_the_output_and_the_session_continues(serve: Serve) -> None:
    chat = discussion_of(serve("sdc.md"))
    _, accepted = chat.send("say half of it\nhang")
    view = chat.view()
    while "half of it" not in view.text:
        view.step()
    assert chat.abort() == 202
    view.until("turn_end")
    assert view.result == "cancelled"
    assert chat.history(accepted["session_id"]) == ["half of it"]
    assert chat.send("say more", accepted["session_id"])[0] == 202
    view.until("turn_end")
    assert (view.text, view.result) == ("more", "end_turn")
    view.disconnect()


def test_a_prompt_waits_is_in_the_snapshot_and_is_answered_over_rest(serve: Serve) -> None:
    server = serve("sdc.md")
    chat = discussion_of(server)
    chat.send("permit Deploy\nsay after it")
    view = chat.view()
    while not view.prompts:
        view.step()
    view.disconnect()
    [prompt] = chat.view().prompts.values()
    allow = next(option for option in prompt["options"] if option["kind"] == "allow_once")
    view = chat.view()
    status, _ = chat.answer(prompt["prompt_id"], {"option_id": allow["option_id"]})
    assert status == 200
    assert chat.answer(prompt["prompt_id"], {"option_id": allow["option_id"]})[0] == 409
    view.until("turn_end")
    assert view.prompts == {} and view.text.endswith("after it")
    _, asked = chat.send("ask Which colour? | Red | Blue", chat.session_id)
    while not view.prompts:
        view.step()
    [question] = view.prompts.values()
    assert chat.answer(question["prompt_id"], {"answers": {question["questions"][0]["question_id"]: "Blue"}})[0] == 200
    view.until("turn_end")
    assert "Blue" in view.text and asked["turn"] == 2
    view.disconnect()


def test_a_new_session_clears_the_active_one_its_prompts_and_its_work(serve: Serve) -> None:
    chat = discussion_of(serve("sdc.md"))
    _, old = chat.send("permit Deploy")
    view = chat.view()
    while not view.prompts:
        view.step()
    _, new = chat.send("say in the new one")
    assert new["session_id"] != old["session_id"]
    view.until_ended()
    assert view.prompts == {}
    assert chat.session(old["session_id"])["status"] == "stopped"
    assert chat.active_sessions() == [new["session_id"]]
    fresh = chat.view(new["session_id"])
    while fresh.result is None:
        fresh.step()
    assert (fresh.text, fresh.result) == ("in the new one", "end_turn")
    fresh.disconnect()
