"""Places in a session: a search result, a turn in the outline, a link. The page scrolls there and marks the row."""

import re
from typing import Any

from playwright.sync_api import Locator, expect

from tests.harness import LiveServer
from tests.page.person import Person

TURNS = 60
HIT = 4
"""Far before the turns that are loaded with the session."""
MARKS = """
  window.marks = [];
  new MutationObserver(() => {
    for (const one of document.querySelectorAll('.marked')) window.marks.push(one.textContent.trim());
  }).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ['class'] });
"""


def long_session(server: LiveServer, name: str, word: str) -> str:
    """A session with many turns, one of which has a long answer with this word near its end."""
    events: list[dict[str, Any]] = []
    for turn in range(1, TURNS + 1):
        at = f"2026-02-07T12:{turn % 60:02d}:00.000Z"
        answer = f"Answer {turn}."
        if turn == HIT:
            lines = [f"Paragraph {number} of what there is to say." for number in range(80)]
            answer = "\n\n".join([*lines, f"Here is the {word}, at last.", *lines[:20]])
        about = {"turn": turn, "at": at}
        message = {"message_id": f"m{turn}", "agent": ""}
        began = {"run_id": "", "context": "fresh", "context_reason": "imported"}
        events += [
            {"type": "user_message", "text": f"Question {turn}", **message, **about},
            {"type": "turn_start", **began, **message, **about},
            {"type": "assistant_text", "block": 0, "delta": answer, **about},
            {"type": "turn_end", "stop_reason": "end_turn", "duration_ms": 1000, **about},
        ]
    given = {"id": name, "title": "Long", "created_at": "2026-02-07T12:00:00.000Z", "events": events}
    server.post("/api/import", given, expect=201)
    return name


def place(person: Person) -> Locator:
    return person.log.locator("[aria-current=location]")


def test_a_search_result_opens_at_its_place(person: Person) -> None:
    long_session(person.server, "hit", "platypus")
    person.context.add_init_script(MARKS)
    person.go("/search?q=platypus")
    person.page.get_by_role("list", name="Search results").get_by_role("link").click()
    expect(person.page).to_have_url(re.compile(rf"/s/hit/turn/{HIT}\?q=platypus$"))
    expect(place(person)).to_have_text("Here is the platypus, at last.")
    expect(place(person)).to_be_in_viewport()
    expect(place(person)).not_to_have_class(re.compile("marked"))
    assert "Here is the platypus, at last." in person.page.evaluate("() => window.marks")
    expect(person.log).to_have_attribute("data-following", "false")
    person.page.reload()
    expect(place(person)).to_be_in_viewport()


def test_the_outline_and_a_link_go_to_a_turn(person: Person) -> None:
    session = long_session(person.server, "outline", "heron")
    person.context.grant_permissions(["clipboard-read", "clipboard-write"])
    person.open(session)
    person.sees(f"Answer {TURNS}.")
    beside = person.page.get_by_role("complementary", name="Plan, files and outline")
    beside.get_by_role("link", name=re.compile("Question 45")).click()
    expect(place(person)).to_contain_text("Question 45")
    expect(place(person)).to_be_in_viewport()
    beside.get_by_role("link", name=re.compile("^7 ")).click()
    expect(place(person)).to_contain_text("Question 7")
    expect(place(person)).to_be_in_viewport()
    person.page.go_back()
    expect(place(person)).to_contain_text("Question 45")
    expect(place(person)).to_be_in_viewport()
    person.turn_menu(45, "Copy link")
    person.copied(f"{person.server.url}/s/{session}/turn/45")
    other = person.new_tab(f"/s/{session}/turn/45")
    expect(other.get_by_role("article", name="Your message, turn 45", exact=True)).to_be_in_viewport()
    person.page.get_by_role("button", name="Jump to the end").click()
    expect(person.page).to_have_url(f"{person.server.url}/s/{session}")
    expect(place(person)).to_have_count(0)
    expect(person.log).to_have_attribute("data-following", "true")


def test_going_to_a_turn_works_after_scrolling(person: Person) -> None:
    session = long_session(person.server, "scrolled", "egret")
    person.open(session)
    person.sees(f"Answer {TURNS}.")
    person.scroll_back(400)
    person.page.mouse.wheel(0, 3000)
    expect(person.log).to_have_attribute("data-following", "true")
    beside = person.page.get_by_role("complementary", name="Plan, files and outline")
    for turn in (7, 45, 3):
        beside.get_by_role("link", name=re.compile(f"^{turn} ")).click()
        expect(place(person)).to_contain_text(f"Question {turn}")
        expect(place(person)).to_be_in_viewport()
        expect(person.log).to_have_attribute("data-following", "false")


def test_one_click_shows_rewound_turns_even_after_a_failed_try(person: Person) -> None:
    session = person.server.create(title="Taken back")
    for text in ("say one", "say two", "say three"):
        person.server.turn(session, text)
    person.server.post(f"/api/sessions/{session}/rewind", {"turn": 2})
    person.server.turn(session, "say four")
    person.open(session)
    person.sees("say four")
    asked = re.compile("rewound=true")
    person.page.route(asked, lambda route: route.abort())
    person.log.get_by_role("button", name=re.compile("Show 2 turns")).click()
    expect(person.page.get_by_text("Can't reach the server.")).to_be_visible()
    person.page.unroute(asked)
    person.log.get_by_role("button", name=re.compile("Show 2 turns")).click()
    person.sees("say two")
    person.sees("say three")


def test_a_link_to_a_rewound_or_missing_turn_says_so(person: Person) -> None:
    session = person.server.create(title="Short")
    for text in ("say one", "say two", "say three"):
        person.server.turn(session, text)
    person.server.post(f"/api/sessions/{session}/rewind", {"turn": 2})
    person.go(f"/s/{session}/turn/3")
    expect(place(person)).to_contain_text("rewound")
    expect(place(person)).to_contain_text("say three")
    person.go(f"/s/{session}/turn/9")
    expect(person.page.get_by_text("This session has no turn 9.")).to_be_visible()
    person.sees("say one")


def test_an_unknown_link_says_so_and_offers_a_way_on(person: Person) -> None:
    person.page.goto(person.server.url + "/no/such/place")
    expect(person.page.get_by_role("heading", name="Page not found")).to_be_visible()
    person.page.get_by_role("main").get_by_role("button", name="New session").click()
    expect(person.composer).to_be_focused()
