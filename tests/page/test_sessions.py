"""The list of sessions, the inbox, search, and keyboard use."""

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Route, expect

from tests.harness import LiveServer, eventually
from tests.page.person import Person


def test_the_first_visit_offers_a_rehearsal_that_shows_everything(
    server: LiveServer, make_person: Callable[..., Person]
) -> None:
    person = make_person(server)
    person.page.get_by_role("button", name="Start the rehearsal").click()
    expect(person.page.get_by_role("region", name="Permission request")).to_be_visible()
    expect(person.log.get_by_role("button", name=re.compile("Edited notes.md"))).to_be_visible()
    person.page.get_by_role("button", name="Allow").click()
    person.sees("That was a rehearsal")


def test_the_first_visit_on_a_phone_is_two_taps_from_a_session(
    server: LiveServer, make_person: Callable[..., Person]
) -> None:
    person = make_person(server, width=390, height=844, touch=True)
    person.page.get_by_role("button", name="Start a session").click()
    person.page.get_by_role("button", name="Start the rehearsal").click()
    expect(person.page.get_by_role("region", name="Permission request")).to_be_visible()


def test_empty_views_explain_themselves_and_offer_an_action(
    server: LiveServer, make_person: Callable[..., Person]
) -> None:
    person = make_person(server)
    for path in ("/inbox", "/usage", "/search"):
        person.go(path)
        person.page.get_by_role("main").get_by_role("button", name="New session").click()
        expect(person.page).to_have_url(re.compile("/new$"))
    person.go("/search?q=nowhere")
    person.page.get_by_role("button", name="Clear search").click()
    expect(person.page.get_by_role("searchbox", name="Search terms")).to_be_focused()
    person.go("/settings/projects")
    person.page.get_by_role("button", name="Create the first project").click()
    expect(person.page.get_by_label("Name")).to_be_focused()
    person.open(server.create(title="Nothing yet"))
    person.sees("No messages yet")


def test_the_list_is_live_and_grouped_by_urgency(server: LiveServer, make_person: Callable[..., Person]) -> None:
    person = make_person(server)
    waiting, working = server.create(title="Needs me"), server.create(title="Goes on")
    server.send(waiting, "permit Deploy")
    server.send(working, "hang")
    navigation = person.page.get_by_role("navigation", name="Sessions")
    expect(navigation.get_by_role("region", name="Waiting for you")).to_contain_text("Needs me")
    expect(navigation.get_by_role("region", name="Waiting for you")).to_contain_text("Run Deploy")
    expect(navigation.get_by_role("region", name="Working")).to_contain_text("Goes on")
    expect(person.page).to_have_title(re.compile(r"^\(1\)"))
    expect(person.page.locator("#favicon")).to_have_attribute("href", "/page/icon-waiting.svg")
    server.post(f"/api/sessions/{waiting}/prompts/{server.prompt(waiting)['prompt_id']}", {"cancel": True})
    expect(navigation.get_by_role("region", name="Waiting for you")).to_have_count(0)
    expect(person.page.locator("#favicon")).to_have_attribute("href", "/page/icon-working.svg")
    server.post(f"/api/sessions/{working}/abort")
    expect(navigation.get_by_role("region", name="Today")).to_contain_text("Goes on")
    expect(person.page).to_have_title("Perdure")


def test_the_inbox_answers_prompts_of_all_sessions(server: LiveServer, make_person: Callable[..., Person]) -> None:
    person = make_person(server)
    first, second = server.create(title="First"), server.create(title="Second")
    server.send(first, "permit Deploy")
    server.send(second, "ask Which? | Red | Blue")
    person.go("/inbox")
    card = person.page.get_by_role("region", name="Second").get_by_role("region", name="Question")
    card.get_by_text("Red", exact=True).click()
    card.get_by_role("button", name="Answer").click()
    expect(person.page.get_by_role("region", name="Second")).to_have_count(0)
    person.may_answer()
    person.press("y")
    expect(person.page.get_by_text("Nothing is waiting for you")).to_be_visible()
    server.wait_idle(first)
    assert "allowed Deploy" in server.text(first, 1)


def test_a_session_is_renamed_labelled_archived_unarchived_and_erased(person: Person) -> None:
    session = person.start("say one")
    person.is_idle()
    person.menu("Rename")
    person.page.get_by_role("textbox", name="Title").fill("A better name")
    person.page.get_by_role("button", name="Save").click()
    expect(person.page.get_by_role("heading", name="A better name")).to_be_visible()
    expect(person.page.get_by_role("navigation", name="Sessions")).to_contain_text("A better name")
    person.menu("Labels")
    person.page.get_by_role("textbox", name=re.compile("Labels")).fill("one, two")
    person.page.get_by_role("button", name="Save").click()
    expect(person.header).to_contain_text("#two")
    person.menu("Archive")
    expect(person.page.get_by_role("navigation", name="Sessions")).not_to_contain_text("A better name")
    person.menu("Unarchive")
    expect(person.page.get_by_role("navigation", name="Sessions")).to_contain_text("A better name")
    person.menu("Erase")
    person.page.get_by_role("dialog").get_by_role("button", name="Erase").click()
    expect(person.page.get_by_role("navigation", name="Sessions")).not_to_contain_text("A better name")
    assert person.server.http.get(f"/api/sessions/{session}").status_code == 404


def test_an_ended_session_says_so_and_can_be_forked(person: Person) -> None:
    person.start("say kept words")
    person.is_idle()
    person.menu("End session")
    expect(person.header).to_contain_text("Ended: stopped")
    expect(person.composer).to_be_disabled()
    person.page.get_by_role("button", name="Actions for turn 1").click()
    expect(person.page.get_by_role("menuitem", name="Fork from here")).to_be_visible()
    for action in ("Edit in place", "Retry from here", "Rewind to before this turn"):
        expect(person.page.get_by_role("menuitem", name=action)).to_have_count(0)
    person.page.get_by_role("menuitem", name="With another agent").click()
    dialog = person.page.get_by_role("dialog", name="Turn 1 with another agent")
    expect(dialog.get_by_role("button", name="Fork from here")).to_be_visible()
    expect(dialog.get_by_role("button", name="Retry from here")).to_have_count(0)
    person.page.keyboard.press("Escape")
    person.page.get_by_role("button", name="New session").click()
    expect(person.page).to_have_url(re.compile("/new"))
    person.page.go_back()
    person.page.get_by_role("button", name="Fork", exact=True).click()
    expect(person.composer).to_be_enabled()
    person.sees("kept words")


def test_a_missing_session_is_reported(person: Person) -> None:
    person.go("/s/s_none")
    expect(person.page.get_by_role("heading", name="Session not found")).to_be_visible()


def test_search_shows_the_matching_passage(person: Person) -> None:
    person.start("say the quick xylophone jumps")
    person.is_idle()
    person.press("/")
    person.page.get_by_role("searchbox", name="Search terms").fill("xylophone")
    expect(person.page.locator("mark").first).to_have_text("xylophone")
    person.page.get_by_role("list", name="Search results").get_by_role("link").first.click()
    person.sees("xylophone")


def test_the_list_is_filtered(server: LiveServer, make_person: Callable[..., Person]) -> None:
    person = make_person(server)
    server.create(title="Blue", labels=["sea"])
    server.create(title="Green", agent="rehearsal-stream")
    navigation = person.page.get_by_role("navigation", name="Sessions")
    expect(navigation).to_contain_text("Green")
    person.page.get_by_role("button", name="Filter sessions").click()
    person.page.get_by_role("menuitemcheckbox", name="Label sea").click()
    expect(navigation).not_to_contain_text("Green")
    expect(navigation).to_contain_text("Blue")


def test_the_page_works_by_keyboard(person: Person) -> None:
    # The composer takes the focus when it first appears. Wait for that before pressing keys.
    expect(person.composer).to_be_focused()
    person.press("c")
    expect(person.page).to_have_url(re.compile("/new$"))
    expect(person.composer).to_be_focused()
    person.page.keyboard.type("permit Deploy")
    person.page.keyboard.press("Enter")
    expect(person.page.get_by_role("region", name="Permission request")).to_be_visible()
    person.press_both("g i", person.page.get_by_role("heading", name="Inbox"))
    expect(person.page.get_by_role("region", name="Permission request")).to_be_visible()
    person.press_both("g w", person.log)
    expect(person.page.get_by_role("region", name="Permission request")).to_be_visible()
    person.may_answer()
    person.press("y")
    person.sees("allowed Deploy")
    person.press("r")
    expect(person.page.get_by_role("textbox", name="Title")).to_be_focused()
    person.page.keyboard.type("By hand")
    person.page.keyboard.press("Enter")
    expect(person.page.get_by_role("heading", name="By hand")).to_be_visible()
    person.press("Control+k")
    expect(person.page.get_by_role("combobox", name="Command or session")).to_be_focused()
    person.page.keyboard.type("usag")
    expect(person.page.get_by_role("option", selected=True)).to_contain_text("Usage")
    person.page.keyboard.press("Enter")
    expect(person.page.get_by_role("heading", name="Usage")).to_be_visible()
    person.press("j")
    expect(person.page).to_have_url(re.compile("/s/"))
    person.press("i")
    expect(person.composer).to_be_focused()
    person.press("?")
    expect(person.page.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("Always allow")
    person.page.keyboard.press("Escape")
    expect(person.page.get_by_role("dialog")).to_have_count(0)
    person.page.get_by_role("button", name="Session actions").focus()
    person.page.keyboard.press("Enter")
    expect(person.page.get_by_role("menuitem", name="Rename")).to_be_visible()
    person.page.keyboard.press("ArrowDown")
    person.page.keyboard.press("Escape")
    expect(person.page.get_by_role("button", name="Session actions")).to_be_focused()


def test_the_list_scrolls_to_the_opened_session(server: LiveServer, make_person: Callable[..., Person]) -> None:
    person = make_person(server, height=500)
    for number in range(12):
        server.create(title=f"Session {number}")
    navigation = person.page.get_by_role("navigation", name="Sessions")
    expect(navigation.get_by_role("link", name=re.compile("Session"))).to_have_count(12)
    person.press(" ".join("j" * 12))
    expect(person.header).to_contain_text("Session 0")
    expect(navigation.get_by_role("link", name=re.compile("Session 0"))).to_be_in_viewport(ratio=1)


def test_the_list_shows_the_session_of_a_link_even_in_a_collapsed_tree(
    server: LiveServer, make_person: Callable[..., Person]
) -> None:
    person = make_person(server, height=500)
    root = server.create(title="Release")
    child = server.create(title="Guide", parent=root)
    for number in range(12):
        server.create(title=f"Session {number}")
    entry = person.page.get_by_role("navigation", name="Sessions").locator(f"[data-session={child}]")
    person.go(f"/s/{child}")
    expect(entry).to_be_in_viewport(ratio=1)
    person.page.get_by_role("button", name=re.compile("of Release")).click()
    expect(entry).to_have_count(0)
    person.page.get_by_role("link", name=re.compile("Session 11")).click()
    expect(person.header).to_contain_text("Session 11")
    person.page.go_back()
    expect(entry).to_be_in_viewport(ratio=1)


def test_the_panel_is_beside_or_over_the_conversation_and_closes(person: Person) -> None:
    beside = person.page.get_by_role("complementary", name="Plan, files and outline")
    person.start("say hello")
    person.is_idle()
    expect(beside).to_be_visible()
    person.press("o")
    expect(beside).to_be_hidden()
    person.page.reload()
    person.sees("hello")
    expect(beside).to_be_hidden()
    person.press("o")
    expect(beside).to_be_visible()
    person.page.set_viewport_size({"width": 800, "height": 800})
    expect(beside).to_be_hidden()
    person.press("o")
    expect(beside).to_be_visible()
    person.press("Escape")
    expect(beside).to_be_hidden()


def test_projects_and_their_rules_are_created_and_used(
    server: LiveServer, make_person: Callable[..., Person], tmp_path: Path
) -> None:
    person = make_person(server)
    place = tmp_path / "place"
    place.mkdir()
    person.go("/settings/projects")
    person.page.get_by_role("button", name="New project").click()
    person.page.get_by_label("Name").fill("Garden")
    person.page.get_by_label("Directory on the server").fill(str(place))
    person.page.get_by_role("button", name="Create project").click()
    person.page.get_by_role("button", name="Add a rule").click()
    person.page.get_by_label("Rule 1: tool").fill("Deploy")
    person.page.get_by_role("button", name="Save").click()
    expect(person.page.get_by_text("Saved.")).to_be_visible()
    person.page.get_by_role("link", name="New session").last.click()
    expect(person.page.get_by_role("button", name="Project: Garden")).to_be_visible()
    person.send("permit Deploy")
    person.sees("Allowed by a rule")


def test_notifications_announce_prompts_and_ended_turns(server: LiveServer, make_person: Callable[..., Person]) -> None:
    person = make_person(server)
    person.context.grant_permissions(["notifications"])
    person.context.add_init_script(
        "window.notes = []; window.Notification = class { static permission = 'granted';"
        "static requestPermission = async () => 'granted';"
        "constructor(title, given) { window.notes.push([title, given.body]); } }"
    )
    person.go("/settings")
    person.page.get_by_role("button", name="Turn notifications on").click()
    expect(person.page.get_by_role("button", name="Turn notifications off")).to_be_visible()
    session = server.create(title="Elsewhere")
    server.send(session, "permit Deploy")
    server.prompt(session)
    eventually(lambda: person.page.evaluate("() => window.notes.length") == 1, "one notification")
    assert person.page.evaluate("() => window.notes") == [["Elsewhere", "Waiting for you: Run Deploy"]]


def test_notifications_on_a_phone_use_a_service_worker_and_open_the_session(
    server: LiveServer, whole_browser: Browser, make_person: Callable[..., Person]
) -> None:
    person = make_person(server, within=whole_browser)
    person.context.grant_permissions(["notifications"])
    # As on Android, where a page can't create one.
    person.context.add_init_script(
        "window.Notification = function () { throw new TypeError('Illegal'); };"
        "window.Notification.permission = 'granted'; window.Notification.requestPermission = async () => 'granted';"
        "window.notes = 0; const { showNotification } = ServiceWorkerRegistration.prototype;"
        "ServiceWorkerRegistration.prototype.showNotification = async function (...given) {"
        "await showNotification.apply(this, given); window.notes += 1; };"
    )
    person.go("/settings")
    person.page.get_by_role("button", name="Turn notifications on").click()
    expect(person.page.get_by_role("button", name="Turn notifications off")).to_be_visible()
    session = server.create(title="Elsewhere")
    server.send(session, "permit Deploy")
    # Chromium drops a request for a notification that is still being shown, so wait until it is visible.
    eventually(lambda: person.page.evaluate("() => window.notes") == 1, "one notification")
    shown = """async () => {
      const registration = await navigator.serviceWorker.getRegistration('/page/');
      return registration ? (await registration.getNotifications()).map((one) => [one.title, one.body, one.data]) : [];
    }"""
    note = ["Elsewhere", "Waiting for you: Run Deploy", f"/s/{session}"]
    assert person.page.evaluate(shown) == [note]
    assert person.page.evaluate("() => navigator.serviceWorker.controller") is None
    (worker,) = person.context.service_workers
    worker.evaluate("""async () => {
      // Only a person may bring a tab to the front.
      WindowClient.prototype.focus = async () => {};
      const [notification] = await registration.getNotifications();
      dispatchEvent(new NotificationEvent('notificationclick', { notification }));
    }""")
    expect(person.page).to_have_url(re.compile(f"/s/{session}$"))
    eventually(lambda: person.page.evaluate(shown) == [], "it is gone")


def test_the_settings_show_the_server_and_a_code_for_a_phone(person: Person) -> None:
    person.go("/settings")
    expect(person.page.get_by_text("up for")).to_be_visible()
    person.page.get_by_role("button", name="Show code for a phone").click()
    expect(person.page.get_by_role("img", name="Sign-in code for a phone")).to_be_visible()
    expect(person.page.get_by_text("#login=")).to_be_visible()
    person.page.get_by_role("radio", name="Dark").check()
    expect(person.page.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_inspector_shows_what_is_stored(person: Person) -> None:
    session = person.start("say one")
    person.is_idle()
    person.go(f"/s/{session}/events")
    person.page.get_by_role("combobox").select_option("turn_end")
    person.page.get_by_role("list", name="Events").get_by_role("button").click()
    expect(person.page.get_by_role("list", name="Events")).to_contain_text('"stop_reason": "end_turn"')


def test_a_new_session_is_created_once_after_a_refusal_or_lost_response(
    server: LiveServer, make_person: Callable[..., Person]
) -> None:
    person = make_person(server)
    person.go("/new")

    def lose_the_answer(route: Route) -> None:
        route.fetch()
        route.abort()

    person.page.route("**/api/messages", lose_the_answer, times=1)
    person.send("say once")
    expect(person.page.get_by_text("Can't reach the server.")).to_be_visible()
    expect(person.composer).to_have_value("say once")
    expect(person.composer).to_be_enabled()
    person.composer.press("Enter")
    expect(person.page).to_have_url(re.compile("/s/"))
    person.sees("once")
    assert len(server.get("/api/sessions")["sessions"]) == 1
    person.go("/new")
    expect(person.composer).to_have_value("")


def test_a_search_keeps_the_space_before_the_next_word(person: Person) -> None:
    person.go("/search")
    field = person.page.get_by_role("searchbox")
    field.press_sequentially("two ")
    expect(person.page).to_have_url(re.compile(r"q=two$"))
    expect(field).to_have_value("two ")
    field.press_sequentially("words")
    expect(person.page).to_have_url(re.compile(r"q=two\+words$"))


def test_a_view_has_its_title_and_the_focus(person: Person) -> None:
    person.page.get_by_role("link", name="Inbox").click()
    expect(person.page).to_have_title(re.compile("Inbox · Perdure"))
    expect(person.page.get_by_role("main")).to_be_focused()
    person.page.get_by_role("link", name="New session").click()
    expect(person.composer).to_be_focused()


def test_a_message_stays_while_the_pointer_or_the_focus_is_on_it(person: Person) -> None:
    session = person.server.create()
    person.page.clock.install()
    person.open(session)
    message = person.page.get_by_text(re.compile("^Next turn:"))
    dismiss = person.page.get_by_role("button", name="Dismiss")
    person.menu("Preview the next turn")
    dismiss.hover()
    person.page.clock.fast_forward("01:00")
    expect(message).to_be_visible()
    dismiss.focus()
    person.page.mouse.move(0, 0)
    person.page.clock.fast_forward("01:00")
    expect(message).to_be_visible()
    dismiss.blur()

    def is_gone() -> bool:
        # It counts again from when it was left.
        person.page.clock.fast_forward("00:05")
        return message.count() == 0

    eventually(is_gone, "the message is gone")
