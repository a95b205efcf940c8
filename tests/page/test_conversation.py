"""A conversation as a user has it: streaming answers, answering prompts, changing the history."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from tests.harness import eventually
from tests.page.person import Person, until

# Holds DELETE requests until the test releases them.
HELD_DELETE = """
  const really = window.fetch;
  window.fetch = async (url, options) => {
    if (options?.method === 'DELETE') await new Promise((resolve) => { window.letGo = resolve; });
    return really(url, options);
  };
"""
# Presses keys in the moment in which the text appears.
PRESS_IMMEDIATELY = """([sign, words, keys]) => {
  const look = (_, observer) => {
    if (![...document.querySelectorAll(sign)].some((one) => one.textContent.includes(words))) return;
    observer.disconnect();
    for (const key of keys) document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
    window.pressed = true;
  };
  const what = { subtree: true, childList: true, attributes: true, attributeFilter: ['data-keys'] };
  new MutationObserver(look).observe(document, what);
}"""
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
# Records a text that is shown only for a moment.
WAS_SHOWN = """(words) => {
  const look = () => { window.said ||= document.body.textContent.includes(words); };
  new MutationObserver(look).observe(document.body, { subtree: true, childList: true });
}"""


def test_the_first_message_creates_a_session_and_the_answer_streams_as_markdown(person: Person) -> None:
    person.start(
        "think Let me see.\nsay # Heading and **bold** and `code` and x@1.2.0 by me@example.org\nusage 1200 340"
    )
    person.is_idle()
    heading = person.log.get_by_role("heading", name="Heading and bold")
    expect(heading).to_be_visible()
    expect(heading.get_by_role("link")).to_have_text("me@example.org")
    expect(person.log.locator(".md code")).to_have_text("code")
    person.sees("Thought")
    expect(person.log.get_by_role("group", name="Turn 1")).to_contain_text("1.5k tokens")


def test_a_tool_is_one_line_that_opens_and_several_are_folded(person: Person) -> None:
    person.start("tool Bash hello\nedit notes.md\nsay between\ntool Read a\ntool Read b\ntool Read c\ntool Read d")
    person.is_idle()
    expect(person.log.get_by_role("button", name=re.compile("Read c"))).to_have_count(0)
    person.log.get_by_role("button", name=re.compile("4 tools")).click()
    expect(person.log.get_by_role("button", name=re.compile("Read c"))).to_be_visible()
    person.log.get_by_role("button", name=re.compile("Edited notes.md")).click()
    expect(person.log.get_by_role("table", name="Changes in notes.md")).to_contain_text("rehearsed 1")
    person.log.get_by_role("button", name=re.compile("Ran hello")).click()
    person.sees("Output")


def test_the_plan_is_beside_the_conversation(person: Person) -> None:
    person.start("plan read; write; check")
    beside = person.page.get_by_role("complementary", name="Plan, files and outline")
    expect(beside).to_contain_text("write")
    expect(beside.get_by_text("completed:")).to_have_count(3)


@pytest.mark.parametrize("agent", ["rehearsal", "rehearsal-stream"])
def test_an_edit_that_waits_for_permission_is_shown_as_a_diff(person: Person, agent: str) -> None:
    """Also with Claude's protocol, in which a tool call has only an input."""
    session = person.server.create(agent=agent)
    person.server.send(session, "propose notes.txt 3")
    person.go(f"/s/{session}")
    card = person.page.get_by_role("region", name="Permission request")
    expect(card.get_by_role("table", name="Changes in notes.txt")).to_contain_text("rehearsed 3")
    expect(card.get_by_role("row")).to_have_count(3)


def test_one_key_allows_a_request(person: Person) -> None:
    person.start("permit Deploy")
    expect(person.page.get_by_role("region", name="Permission request")).to_be_visible()
    person.may_answer()
    person.press("y")
    person.sees("allowed Deploy")
    person.sees("Allowed by you: Run Deploy")


def test_a_key_answers_only_a_prompt_that_was_visible_long_enough(person: Person) -> None:
    person.start("permit One\npermit Two")
    expect(person.page.get_by_role("region", name="Permission request")).to_contain_text("One")
    person.may_answer()
    person.page.evaluate(PRESS_IMMEDIATELY, ["[aria-label='Permission request']", "Two", "yyy"])
    person.press("y")
    card = person.page.get_by_role("region", name="Permission request").filter(has_text="Two")
    card.wait_for()
    person.page.wait_for_function("() => window.pressed")
    person.may_answer()
    expect(card).to_be_visible()
    person.sees("allowed One")
    assert "allowed Two" not in person.log.inner_text()


def test_a_key_answers_as_soon_as_the_page_offers_it(person: Person) -> None:
    person.page.add_init_script(f"({PRESS_IMMEDIATELY})(['[data-keys=ready]', 'Deploy', 'y'])")
    person.start("permit Deploy")
    person.sees("allowed Deploy")


def test_a_request_is_denied_with_a_reason(person: Person) -> None:
    session = person.start("permit Deploy")
    card = person.page.get_by_role("region", name="Permission request")
    expect(card).to_be_visible()
    person.press("n")
    reason = card.get_by_role("textbox")
    expect(reason).to_be_focused()
    reason.fill("not on a Friday")
    reason.press("Enter")
    person.sees("denied Deploy")
    answers = [event["answer"] for event in person.server.log(session) if event["type"] == "prompt_resolved"]
    assert "not on a Friday" in str(answers)
    tool = person.log.get_by_role("button", name=re.compile("Deploy"))
    expect(tool).to_contain_text("Denied")
    expect(tool).not_to_contain_text("failed")


def test_an_image_from_the_agent_is_shown(person: Person) -> None:
    at: dict[str, object] = {"at": "2026-02-07T12:00:00.000Z", "turn": 1}
    began = {"run_id": "", "message_id": "m", "agent": "", "context": "fresh", "context_reason": "imported"}
    events = [
        {**at, "type": "user_message", "message_id": "m", "text": "show me", "agent": ""},
        {**at, "type": "turn_start", **began},
        {**at, "type": "image", "mime_type": "image/png", "size": 70, "data": DOT},
        {**at, "type": "image", "mime_type": "image/png", "size": 3_000_000, "data": None},
        {**at, "type": "turn_end", "stop_reason": "end_turn"},
    ]
    person.server.post("/api/import", {"id": "pictures", "created_at": at["at"], "events": events}, expect=201)
    person.open("pictures")
    image = person.log.get_by_role("img", name="PNG image, 70 B")
    expect(image).to_be_visible()
    assert image.evaluate("image => image.naturalWidth") == 1
    person.sees("PNG image, 2.9 MB: not available.")


def test_always_is_remembered_for_the_same_request(person: Person) -> None:
    person.start("permit Deploy")
    person.page.get_by_role("button", name="Always").click()
    person.sees("allowed Deploy")
    person.is_idle()
    person.send("permit Deploy")
    expect(person.log.get_by_role("group", name="Turn 2")).to_be_visible()
    person.is_idle()
    expect(person.log.get_by_text("allowed Deploy")).to_have_count(2)


def test_a_question_is_answered_in_a_form(person: Person) -> None:
    person.start("ask Which one? | Red | Blue")
    card = person.page.get_by_role("region", name="Question")
    card.get_by_text("Blue", exact=True).click()
    card.get_by_role("button", name="Answer").click()
    person.sees(re.compile("Blue.*", re.DOTALL))
    person.is_idle()


def test_queued_messages_can_be_edited_and_removed(person: Person) -> None:
    person.start("hang")
    expect(person.header).to_contain_text("Working")
    person.send("say second")
    person.send("say third")
    queue = person.page.get_by_role("list", name=re.compile("Queue"))
    expect(queue.get_by_role("listitem")).to_have_count(2)
    queue.get_by_role("listitem").nth(1).get_by_role("button", name="Remove from the queue").click()
    expect(queue.get_by_role("listitem")).to_have_count(1)
    queue.get_by_role("button", name=re.compile("^Edit")).click()
    expect(person.composer).to_have_value("say second")
    person.composer.fill("say instead")
    person.composer.press("Control+Enter")
    person.sees("instead")
    expect(person.log.get_by_role("group", name="Turn 1")).to_contain_text("interrupted")


def test_a_queued_message_being_edited_is_not_lost_when_the_user_leaves(person: Person) -> None:
    person.context.add_init_script(HELD_DELETE)
    person.server.create(title="Other place")
    session = person.start("hang")
    expect(person.header).to_contain_text("Working")
    person.send("say precious words")
    person.page.get_by_role("list", name="Queue: 1 message").get_by_role("button", name=re.compile("^Edit")).click()
    person.page.wait_for_function("() => window.letGo")
    person.page.get_by_role("link", name=re.compile("Other place")).click()
    expect(person.header).to_contain_text("Other place")
    person.page.evaluate("() => window.letGo()")
    eventually(lambda: person.server.get(f"/api/sessions/{session}/queue")["queue"] == [], "the message left the queue")
    person.page.go_back()
    expect(person.header).to_contain_text("Working")
    expect(person.composer).to_have_value("say precious words")
    person.interrupt()


def test_the_composer_does_not_move_when_a_turn_starts(person: Person) -> None:
    person.page.set_viewport_size({"width": 768, "height": 1024})
    person.start("say done")
    person.is_idle()
    person.send("say begun\nhang")
    person.sees("begun")
    working = person.composer.locator("..").bounding_box()
    person.composer.fill("something")
    expect(person.page.get_by_role("button", name="Interrupt and send")).to_be_visible()
    person.composer.fill("")
    person.interrupt()
    eventually(lambda: person.composer.locator("..").bounding_box() == working, "it is as it was")


def test_escape_twice_interrupts(person: Person) -> None:
    person.start("say begun\nhang")
    person.sees("begun")
    expect(person.page.get_by_role("button", name="Interrupt", exact=True)).to_be_visible()
    person.page.evaluate(WAS_SHOWN, "Press Esc again")
    turn = person.log.get_by_role("group", name="Turn 1")

    def twice() -> None:
        person.composer.press("Escape")
        person.composer.press("Escape")

    until(lambda limit: expect(turn).to_contain_text("interrupted", timeout=limit), twice)
    person.is_idle()
    assert person.page.evaluate("() => window.said")


def test_holding_escape_does_not_interrupt(person: Person) -> None:
    person.start("say begun\nhang")
    person.sees("begun")
    asked: list[str] = []
    person.page.on("request", lambda request: asked.append(request.url))
    person.page.evaluate(WAS_SHOWN, "Press Esc again to interrupt.")
    person.composer.focus()
    for _ in range(5):
        person.page.keyboard.down("Escape")
    person.page.wait_for_function("() => window.said")
    person.page.keyboard.up("Escape")
    assert not [url for url in asked if url.endswith("/abort")]
    person.interrupt()
    assert [url for url in asked if url.endswith("/abort")]


def test_a_crashed_turn_says_what_is_saved_and_can_be_retried(person: Person) -> None:
    person.start("say one\ncrash 3")
    alert = person.log.get_by_role("group", name="Error")
    expect(alert).to_contain_text("saved")
    alert.get_by_role("button", name="Retry turn 1").click()
    expect(person.log.get_by_role("group", name="Turn 2")).to_be_visible()
    person.sees("Turn 1 was rewound")


def test_history_is_edited_rewound_retried_and_forked(person: Person) -> None:
    session = person.start("say one")
    person.is_idle()
    person.send("say two")
    expect(person.log.get_by_role("group", name="Turn 2")).to_be_visible()
    person.is_idle()

    person.turn_menu(1, "Edit in place")
    field = person.log.get_by_role("textbox", name="Message")
    field.fill("say never mind")
    field.press("Escape")
    expect(field).to_have_value("say never mind")
    field.fill("say one")
    field.press("Escape")
    expect(field).to_have_count(0)
    person.turn_menu(1, "Edit in place")
    field.fill("say uno")
    person.log.get_by_role("button", name="Save", exact=True).click()
    person.sees("edited")

    person.turn_menu(2, "Rewind")
    person.sees("Turn 2 was rewound")
    expect(person.composer).to_have_value("say two")
    person.page.reload()
    person.send("say drei")
    expect(person.log.get_by_role("group", name="Turn 3")).to_be_visible()
    person.is_idle()
    person.log.get_by_role("button", name="Show 1 turn").click()
    person.sees("say two")
    person.log.get_by_role("button", name="Hide").click()
    expect(person.log).not_to_contain_text("say two")

    person.turn_menu(3, "Fork")
    expect(person.page).not_to_have_url(re.compile(session))
    person.sees("say uno")
    person.sees("say drei")


def test_a_turn_is_retried_or_forked_with_another_agent(person: Person) -> None:
    session = person.start("say one")
    person.is_idle()
    person.send("say two")
    person.sees("Turn 2")
    person.is_idle()
    person.turn_menu(2, "With another agent")
    dialog = person.page.get_by_role("dialog", name="Turn 2 with another agent")
    expect(dialog.get_by_role("radio", name="rehearsal", exact=True)).to_have_count(0)
    dialog.get_by_role("radio", name="rehearsal-stream").check()
    dialog.get_by_role("button", name="Retry from here").click()
    expect(person.log.get_by_role("group", name="Turn 3")).to_contain_text("rehearsal-stream")
    person.is_idle()
    shown = [(turn["message"]["text"], turn["agent"]) for turn in person.server.transcript(session)]
    assert shown == [("say one", "rehearsal"), ("say two", "rehearsal-stream")]
    person.turn_menu(1, "With another agent")
    person.page.get_by_role("dialog").get_by_role("radio", name="rehearsal-stream").check()
    person.page.get_by_role("dialog").get_by_role("button", name="Fork from here").click()
    expect(person.page).not_to_have_url(re.compile(session))
    expect(person.page.get_by_role("button", name="Agent: rehearsal-stream")).to_be_visible()
    expect(person.log.get_by_role("article")).to_have_count(1)


def test_the_badge_shows_how_a_turn_started_and_the_context_can_be_restarted(person: Person) -> None:
    person.start("say one")
    person.is_idle()
    person.send("say two")
    expect(person.log.get_by_role("group", name="Turn 2")).to_contain_text("live")
    person.is_idle()
    person.page.get_by_role("button", name="Restart context", exact=True).click()
    person.send("say three")
    badge = person.log.get_by_role("group", name="Turn 3").get_by_text("replayed", exact=True)
    expect(badge).to_have_attribute("title", re.compile("a context restart was requested"))
    person.sees("The conversation was replayed to rehearsal: a context restart was requested.")


def test_agent_model_and_mode_are_chosen_on_the_composer(person: Person) -> None:
    session = person.start("say one")
    person.is_idle()
    person.page.get_by_role("button", name="Model: Rehearsal 1").click()
    person.page.get_by_role("menuitemradio", name=re.compile("Rehearsal 2")).click()
    expect(person.page.get_by_role("button", name="Model: Rehearsal 2")).to_be_visible()
    person.page.get_by_role("button", name="Mode: Ask").click()
    person.page.get_by_role("menuitemradio", name=re.compile("Auto")).click()
    expect(person.page.get_by_role("button", name="Mode: Auto")).to_be_visible()
    eventually(lambda: person.server.session(session)["model"] == "rehearsal-2", "the model is set")
    person.page.get_by_role("button", name="Agent: rehearsal").click()
    person.page.get_by_role("menuitemradio", name="rehearsal-stream").click()
    person.send("say other")
    expect(person.log.get_by_role("group", name="Turn 2")).to_contain_text("rehearsal-stream")


def test_files_are_completed_after_an_at_sign(person: Person) -> None:
    session = person.start("edit notes.md\nedit deep/inside.txt")
    person.is_idle()
    person.composer.fill("look at @ins")
    person.page.get_by_role("option", name="@deep/inside.txt").click()
    expect(person.composer).to_have_value("look at @deep/inside.txt ")
    person.composer.press("@")
    expect(person.page.get_by_role("option")).to_have_count(2)
    assert person.server.get(f"/api/sessions/{session}/files?q=notes")["files"] == ["notes.md"]


def test_text_typed_right_after_a_completion_follows_it(person: Person) -> None:
    session = person.server.create()
    person.server.turn(session, "edit notes.md")
    person.open(session)
    person.sees("notes.md")
    person.composer.fill("look at @not")
    choice = person.page.get_by_role("option", name="@notes.md")
    expect(choice).to_be_visible()
    # No frame is drawn until the test allows it.
    person.page.evaluate("() => { window.later = []; window.requestAnimationFrame = (run) => window.later.push(run); }")
    choice.click()
    person.page.keyboard.type("and")
    person.page.evaluate("() => { for (const run of window.later) run(performance.now()); }")
    person.page.keyboard.type(" more")
    expect(person.composer).to_have_value("look at @notes.md and more")


def test_commands_of_the_agent_are_completed_after_a_slash(person: Person) -> None:
    session = person.server.create(agent="rehearsal-stream")
    person.server.turn(session, "say one")
    person.open(session)
    person.sees("one")
    person.composer.press("/")
    expect(person.page.get_by_role("option", name="/compact")).to_be_visible()
    person.composer.press("Tab")
    expect(person.composer).to_have_value("/compact ")
    person.page.reload()
    expect(person.composer).to_have_value("/compact ")


def test_the_next_turn_can_be_previewed(person: Person) -> None:
    person.start("say one")
    person.is_idle()
    person.menu("Preview the next turn")
    expect(person.page.get_by_text("Next turn: live.")).to_be_visible()


def test_a_file_is_attached(person: Person, tmp_path: Path) -> None:
    person.start("say one")
    person.is_idle()
    note = tmp_path / "note.txt"
    note.write_text("hello")
    person.page.get_by_role("button", name="Attach files").focus()
    person.attach(note)
    expect(person.composer).to_be_focused()
    person.send("say two")
    message = person.log.get_by_role("article", name="Your message, turn 2")
    expect(message.get_by_role("list", name="Attachments")).to_contain_text("note.txt")


def test_a_turn_started_by_the_agent_is_not_shown_as_the_users(person: Person) -> None:
    at = {"turn": 1, "at": "2026-02-07T12:00:00.000Z", "agent": "rehearsal", "message_id": "m1"}
    events = [
        {**at, "type": "user_message", "text": "A background task ended.", "origin": "agent"},
        {**at, "type": "turn_start", "run_id": "", "context": "live", "context_reason": "agent_began"},
        {**at, "type": "assistant_text", "block": 0, "delta": "The build is ready."},
        {**at, "type": "turn_end", "stop_reason": "end_turn"},
    ]
    person.server.post("/api/import", {"id": "by-itself", "created_at": at["at"], "events": events}, expect=201)
    person.open("by-itself")
    begun = person.log.get_by_role("article", name="Started by the agent, turn 1")
    expect(begun).to_contain_text("Started by rehearsal")
    expect(person.log).not_to_contain_text("You")
    person.page.get_by_role("button", name="Actions for turn 1").click()
    expect(person.page.get_by_role("menuitem", name=re.compile("^Rewind"))).to_be_visible()
    expect(person.page.get_by_role("menuitem", name=re.compile("^(Edit|Retry)"))).to_have_count(0)


def test_a_working_turn_shows_its_duration_and_can_be_interrupted(person: Person) -> None:
    session = person.start("say begun\nhang")
    person.sees("begun")
    working = person.log.get_by_role("status")
    expect(working).to_contain_text("Working for")
    working.get_by_role("button", name="Interrupt").click()
    person.is_idle()
    assert person.server.session(session)["turns"][0]["stop_reason"] == "cancelled"


def test_a_message_put_back_into_the_composer_keeps_the_draft(person: Person, tmp_path: Path) -> None:
    person.start("hang")
    expect(person.header).to_contain_text("Working")
    note = tmp_path / "note.txt"
    note.write_text("hello")
    person.attach(note)
    person.send("say queued")
    queue = person.page.get_by_role("list", name="Queue: 1 message")
    expect(queue).to_contain_text("say queued")
    person.composer.fill("half written")
    queue.get_by_role("button", name="Edit").click()
    expect(person.composer).to_have_value("say queued\n\nhalf written")
    files = person.page.get_by_role("list", name="Attachments")
    expect(files).to_contain_text("note.txt")
    address = person.page.url
    person.page.get_by_role("link", name="Inbox").click()
    person.page.go_back()
    expect(person.page).to_have_url(address)
    expect(files).to_contain_text("note.txt")
    expect(person.composer).to_have_value("say queued\n\nhalf written")


def test_files_of_a_queued_message_return_to_the_composer_in_any_tab(person: Person, tmp_path: Path) -> None:
    session = person.start("hang")
    expect(person.header).to_contain_text("Working")
    note = tmp_path / "note.txt"
    note.write_text("hello from a file")
    person.attach(note)
    person.send("say queued")
    other = person.new_tab(f"/s/{session}")
    queue = other.get_by_role("list", name="Queue: 1 message")
    expect(queue).to_contain_text("1 file")
    queue.get_by_role("button", name="Edit").click()
    expect(other.get_by_role("list", name="Attachments")).to_contain_text("note.txt")
    box = other.get_by_label("Message", exact=True)
    expect(box).to_have_value("say queued")
    expect(queue).to_have_count(0)
    box.press("Enter")
    expect(queue).to_contain_text("1 file")
    (waiting,) = person.server.get(f"/api/sessions/{session}/queue")["queue"]
    (kept,) = waiting["attachments"]
    path = f"/api/sessions/{session}/attachments/{kept['file']}"
    assert person.server.http.get(path).text == "hello from a file"


def test_a_turn_whose_file_is_missing_is_rewound_without_it(person: Person, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("hello")
    person.go("/new")
    person.attach(note)
    person.send("say one")
    expect(person.page).to_have_url(re.compile("/s/"))
    person.is_idle()
    session = person.page.url.rsplit("/", 1)[-1]
    (attached,) = person.server.transcript(session)[0]["message"]["attachments"]
    (stored,) = person.server.data.rglob(f"{attached['file']}*")
    stored.unlink()
    person.turn_menu(1, "Rewind")
    expect(person.composer).to_have_value("say one")
    expect(person.page.get_by_text("Skipped attachments that are no longer on the server: note.txt.")).to_be_visible()
    expect(person.page.get_by_role("list", name="Attachments")).to_have_count(0)
    assert person.server.transcript(session) == []


def test_escape_leaves_the_composer_while_a_prompt_waits(person: Person) -> None:
    person.start("permit Deploy")
    person.may_answer()
    person.composer.fill("half written")
    expect(person.page.get_by_text("Press Esc, then the key")).to_be_visible()
    person.page.keyboard.press("Escape")
    expect(person.composer).not_to_be_focused()
    expect(person.page.get_by_text("Press Esc, then the key")).to_be_hidden()
    person.page.keyboard.press("y")
    person.sees("allowed Deploy")
    expect(person.composer).to_have_value("half written")


def test_a_tool_waiting_for_permission_says_so(person: Person) -> None:
    person.start("permit Deploy")
    person.may_answer()
    expect(person.log.get_by_role("button", name="Deploy")).to_contain_text("waiting for you")
    person.page.get_by_role("button", name="Allow", exact=True).first.click()
    person.sees("allowed Deploy")
    expect(person.log.get_by_text("waiting for you")).to_have_count(0)


def test_a_prompt_can_be_answered_right_after_opening_its_session(person: Person) -> None:
    waiting = person.server.create(title="Waits for a word")
    person.server.send(waiting, "permit Deploy")
    entry = person.page.get_by_role("link", name=re.compile("Waits for a word"))
    expect(entry).to_contain_text("Waiting for you")
    entry.click()
    person.may_answer()
    person.page.keyboard.press("y")
    person.sees("allowed Deploy")


def test_the_focused_row_stays_visible_while_more_arrives(person: Person) -> None:
    session = person.start("\n".join(["say far up"] + ["tool Read a", "say between"] * 30))
    person.is_idle()
    # The turn continues only after the row has the focus. Otherwise the row would scroll away.
    person.send("permit Go\nstream 4000 10")
    expect(person.page.get_by_role("region", name="Permission request")).to_be_visible()
    reached = person.log.get_by_role("button", name="Read a").first
    reached.focus()
    expect(person.log).to_have_attribute("data-following", "false")
    prompt = person.server.prompt(session)["prompt_id"]
    person.server.post(f"/api/sessions/{session}/prompts/{prompt}", {"option_id": "allow_once"}, expect=200)
    expect(person.page.get_by_role("button", name=re.compile(r"^\d+ new"))).to_be_visible()
    expect(person.page.locator(":focus")).to_have_text(re.compile("Read a"))
    expect(person.page.locator(":focus")).to_be_in_viewport()
    person.interrupt()


def test_a_list_keeps_its_first_number_and_all_code_is_copied(person: Person) -> None:
    person.context.grant_permissions(["clipboard-read", "clipboard-write"])
    lines = "\n".join(f"line {number}" for number in range(200))
    session = person.server.create(title="Code")
    answer = f"2. two\n\n```text\n{lines}\n```"
    transcript = re.compile("/transcript")
    person.server.turn(session, "say placeholder")

    def with_code(route: Route) -> None:
        found = route.fetch().json()
        found["turns"][0]["parts"] = [{"type": "text", "block": 0, "text": answer}]
        route.fulfill(json=found)

    person.page.route(transcript, with_code)
    for _ in range(31):
        person.server.turn(session, "say next")
    person.open(session)
    beside = person.page.get_by_role("complementary", name="Plan, files and outline")
    beside.get_by_role("listitem").first.get_by_role("link").click()
    expect(person.log.locator("ol[start='2']")).to_have_count(1)
    person.log.get_by_role("button", name="Copy", exact=True).first.click()
    person.copied(lines)
