"""After a reload, a lost network or a killed server, the view is soon correct again, with nothing lost or repeated."""

import json
import re
import time
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, expect

from perdure.core.imported import TAKEN
from perdure.core.view import LIVE_PARTS
from tests.harness import LiveServer, eventually, is_loaded
from tests.page.person import Person

BACK_LIMIT_S = 1.0
SURELY_BACK_S = 5.0
"""Counted from the server's first response, on an idle machine and on any machine. ui/test/stream.test.ts checks the
retry interval with a fake clock."""
WHEN_BACK = """() => {
  const gone = () => !document.body.textContent.includes("Reconnecting, last event");
  window.backAt = new Promise((resolve) => {
    new MutationObserver((_, observer) => {
      if (gone()) resolve(Date.now() / 1000), observer.disconnect();
    }).observe(document.body, { subtree: true, childList: true });
  });
}"""

# Clickable elements outside scrolling areas that the line with these words covers.
COVERED = """(words) => {
  const line = [...document.querySelectorAll("[role=status] p")].find((one) => one.textContent.includes(words));
  const box = line.getBoundingClientRect();
  return [...document.querySelectorAll("a, button, input, textarea, h1")].filter((one) => {
    const own = one.getBoundingClientRect();
    if (!own.width || line.contains(one) || one.closest(".overflow-y-auto")) return false;
    return own.bottom > box.top + 1 && own.top < box.bottom - 1 && own.right > box.left && own.left < box.right;
  }).map((one) => one.outerHTML.slice(0, 160));
}"""


def place_of_log(person: Person) -> object:
    return person.log.evaluate("(element) => JSON.stringify(element.getBoundingClientRect())")


def shown_text(person: Person) -> str:
    """The text of all answers as shown on the page."""
    return " ".join(person.log.locator(".md").all_inner_texts())


def shows_all(person: Person, count: int) -> None:
    """Wait until each streamed word is shown once, in order."""
    wanted = [f"w{number}" for number in range(count)]
    eventually(lambda: re.findall(r"\bw\d+\b", shown_text(person)) == wanted, f"{count} words are shown, each once")


def test_a_server_killed_during_a_turn_loses_nothing(server: LiveServer, make_person: Callable[..., Person]) -> None:
    person = make_person(server)
    session = person.start("stream 400 10\nsay finished")
    person.sees("w40 ")
    before = place_of_log(person)
    server.kill()
    expect(person.page.get_by_text("Reconnecting, last event")).to_be_visible()
    assert place_of_log(person) == before, "nothing moves when the line comes"
    person.page.evaluate(WHEN_BACK)
    server.restart()
    begun = time.time()
    expect(person.page.get_by_text("Reconnecting, last event")).to_have_count(0)
    taken_s = person.page.evaluate("() => window.backAt") - begun
    print(f"back {taken_s:.2f} s after the server")
    assert taken_s < (SURELY_BACK_S if is_loaded() else BACK_LIMIT_S)
    person.is_idle()
    person.sees("finished")
    shows_all(person, 400)
    assert shown_text(person).split() == server.text(session, 1).split()


def test_a_message_sent_while_the_server_is_down_arrives_once(
    server: LiveServer, make_person: Callable[..., Person]
) -> None:
    person = make_person(server)
    session = person.start("say one")
    person.is_idle()
    server.kill()
    person.send("say two")
    expect(person.log.get_by_role("article", name="Message being sent")).to_be_visible()
    person.page.wait_for_timeout(0)
    server.restart()
    expect(person.log.get_by_role("group", name="Turn 2")).to_be_visible()
    person.is_idle()
    expect(person.log.get_by_role("article", name="Message being sent")).to_have_count(0)
    assert [turn["message"]["text"] for turn in server.transcript(session)] == ["say one", "say two"]


def test_a_reload_keeps_the_draft_and_the_view(person: Person) -> None:
    person.start("say one\nstream 50")
    person.is_idle()
    before = shown_text(person)
    person.composer.fill("half a thou")
    person.page.reload()
    expect(person.composer).to_have_value("half a thou")
    person.sees("w49")
    eventually(lambda: shown_text(person) == before, "the same is shown")


def test_a_reload_during_a_turn_loses_nothing(person: Person) -> None:
    person.start("stream 200 10\nsay finished")
    person.sees("w20 ")
    person.page.reload()
    person.is_idle()
    person.sees("finished")
    shows_all(person, 200)


def test_a_lost_network_is_reported_and_nothing_is_missed(
    server: LiveServer, make_person: Callable[..., Person]
) -> None:
    person = make_person(server)
    session = person.start("say one")
    person.is_idle()
    server.kill()
    expect(person.page.get_by_text("Reconnecting, last event")).to_be_visible()
    expect(person.page.locator("#favicon")).to_have_attribute("href", "/page/icon-lost.svg")
    server.restart()
    server.turn(session, "say said meanwhile")
    person.sees("said meanwhile")
    expect(person.log.get_by_role("group", name=re.compile("^Turn"))).to_have_count(2)


def test_the_scroll_position_stays_while_more_arrives(person: Person) -> None:
    person.start("stream 1500")
    person.is_idle()
    person.scroll_back(500)
    before = person.scrolled()
    person.composer.fill("")
    person.server.send(person.page.url.rsplit("/", 1)[-1], "stream 500")
    expect(person.page.get_by_role("button", name=re.compile(r"\d+ new"))).to_be_visible()
    assert abs(person.scrolled() - before) < 4
    person.page.get_by_role("button", name=re.compile(r"\d+ new")).click()
    person.sees("w499")


@pytest.mark.timeout(300)
def test_eight_tabs_are_all_live_and_can_all_send(server: LiveServer, make_person: Callable[..., Person]) -> None:
    person = make_person(server)
    session = person.start("say one")
    person.is_idle()
    others = [server.create(title=f"Session {number}") for number in range(7)]
    tabs = [person.page, *(person.new_tab(f"/s/{other}") for other in others)]
    for tab in tabs:
        expect(tab.get_by_role("textbox", name="Message", exact=True)).to_be_visible()
    for number, one in enumerate([session, *others]):
        server.send(one, f"say from outside {number}")
    for number, tab in enumerate(tabs):
        expect(tab.get_by_role("log")).to_contain_text(f"from outside {number}")
    for number, tab in enumerate(tabs):
        box = tab.get_by_role("textbox", name="Message", exact=True)
        box.fill(f"say from tab {number}")
        box.press("Enter")
    for number, tab in enumerate(tabs):
        expect(tab.locator(".md", has_text=f"from tab {number}")).to_be_visible()


def test_two_tabs_of_one_session_show_the_same(person: Person) -> None:
    session = person.start("say one")
    person.is_idle()
    second = person.new_tab(f"/s/{session}")
    expect(second.get_by_role("log")).to_contain_text("one")
    person.send("stream 100 5\nsay the end")
    for tab in (person.page, second):
        expect(tab.locator(".md", has_text="the end")).to_be_visible()
        assert " ".join(tab.locator(".md").all_inner_texts()).count("w99") == 1


def test_a_browser_without_shared_workers_gets_live_updates(person: Person) -> None:
    person.context.add_init_script("delete window.SharedWorker")
    tab = person.new_tab("/new")
    assert tab.evaluate("() => typeof SharedWorker") == "undefined"
    box = tab.get_by_role("textbox", name="Message", exact=True)
    box.fill("stream 50 5\nsay the end")
    box.press("Enter")
    expect(tab.locator(".md", has_text="the end")).to_be_visible()
    expect(
        tab.get_by_role("navigation", name="Sessions").get_by_role("link", name=re.compile("stream 50"))
    ).to_be_visible()


def test_a_view_that_fails_to_load_says_so_and_loads_when_the_server_is_back(
    server: LiveServer, make_person: Callable[..., Person]
) -> None:
    person = make_person(server)
    expect(person.composer).to_be_visible()
    server.kill()
    person.page.get_by_role("link", name="Usage").click()
    expect(person.page.get_by_role("heading", name="This view can't be shown")).to_be_visible()
    expect(person.page.get_by_role("navigation", name="Sessions")).to_be_visible()
    server.restart()
    expect(person.page.get_by_role("heading", name="Usage")).to_be_visible()


def test_an_outdated_page_offers_a_reload(person: Person) -> None:
    person.page.route("**/page/digest.txt", lambda route: route.fulfill(body="f" * 64))
    person.page.reload()
    expect(person.page.get_by_text("The page was updated.")).to_be_visible()
    expect(person.page.get_by_role("button", name="Reload")).to_be_visible()
    person.page.get_by_role("link", name="Usage").click()
    expect(person.page.get_by_role("heading", name="The page was updated")).to_be_visible()


def test_the_scroll_position_stays_in_a_session_of_many_turns(person: Person) -> None:
    session = person.server.create(title="Long")
    for number in range(40):
        person.server.turn(session, f"say Answer {number}\nstream 60")
    person.open(session)
    person.sees("Answer 39")
    person.scroll_back(300)
    place = "() => [...document.querySelectorAll('[role=log] article')].at(-1).getBoundingClientRect().top"
    before = person.page.evaluate(place)
    last = person.log.get_by_role("article").last.get_attribute("aria-label")
    person.server.send(session, "stream 500")
    expect(person.page.get_by_role("button", name=re.compile(r"\d+ new"))).to_be_visible()
    assert person.log.get_by_role("article").last.get_attribute("aria-label") == last
    assert abs(person.page.evaluate(place) - before) < 4


def test_status_bars_cover_nothing_clickable(server: LiveServer, make_person: Callable[..., Person]) -> None:
    session = server.create(title="One")
    for width, touch in ((390, True), (1280, False)):
        person = make_person(server, width=width, touch=touch)
        person.page.route("**/page/digest.txt", lambda route: route.fulfill(body="f" * 64))
        for path in ("/", "/inbox", f"/s/{session}", "/settings"):
            person.go(path)
            expect(person.page.get_by_text("The page was updated.").first).to_be_visible()
            assert person.page.evaluate(COVERED, "The page was updated.") == [], path
    person = make_person(server, width=390, touch=True)
    expect(person.page.get_by_role("link", name="New session")).to_be_visible()
    server.kill()
    expect(person.page.get_by_text("Reconnecting, last event")).to_be_visible()
    assert person.page.evaluate(COVERED, "Reconnecting, last event") == []


def test_a_very_long_turn_opens_at_its_end_and_its_start_can_be_loaded(
    server: LiveServer, make_person: Callable[..., Person]
) -> None:
    pattern = server.create()
    server.turn(pattern, "say words")
    lines = server.http.get(f"/api/sessions/{pattern}/log").text.splitlines()
    turn = [event for event in map(json.loads, lines) if event["type"] in TAKEN]
    said = next(event for event in turn if event["type"] == "assistant_text")
    steps = [{**said, "block": number, "delta": f"step{number}."} for number in range(2 * LIVE_PARTS + 1)]
    at = turn.index(said)
    others = [event for event in turn[at:] if event["type"] != "assistant_text"]
    events = [*turn[:at], *steps, *others]
    server.post("/api/import", {"id": "long", "created_at": turn[0]["at"], "events": events}, expect=201)
    person = make_person(server)
    person.open("long")
    person.sees(f"step{2 * LIVE_PARTS}.")
    person.scroll_back(300)
    button = person.log.get_by_role("button", name=f"Show {LIVE_PARTS + 1:,} earlier steps")
    first = person.log.get_by_text("step0.", exact=True)

    def at_the_beginning(wanted: Locator) -> bool:
        """Rows drawn on the way may be taller than estimated, so Home may have to be pressed again."""
        person.log.focus()
        person.page.keyboard.press("Home")
        return wanted.is_visible()

    eventually(lambda: at_the_beginning(button), "the button above the first loaded step is visible")
    assert not first.is_visible()

    def is_pressed() -> bool:
        """Rows drawn meanwhile may move the button between press and release."""
        if button.is_visible():
            button.click()
        return not button.is_visible()

    eventually(is_pressed, "the earlier steps are loaded or loading")
    expect(button).to_have_count(0)
    eventually(lambda: at_the_beginning(first), "the first step is visible")
