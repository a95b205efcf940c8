"""A message without a free slot: the page shows it, says what it waits for, and its turn starts when a slot is free."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.harness import LiveServer, SharedServers
from tests.page.person import Person, until
from tests.page.test_views import AXE, SIDEWAYS, shoot, violations

ONE_SLOT = "[server]\nslots = 1\nproject_slots = 0\nagent = 'rehearsal'\n"
WAITS = "Waiting for a free slot: the server runs 1 turn at a time"
# Records the states in the header from now on, without repeats.
RECORD = """() => {
  const state = () => document.querySelector("main header p").textContent.split(" · ")[0];
  window.states = [state()];
  new MutationObserver(() => {
    if (state() !== window.states.at(-1)) window.states.push(state());
  }).observe(document.querySelector("main header"), { subtree: true, childList: true, characterData: true });
}"""


@pytest.fixture(scope="module")
def one_slot(servers: SharedServers) -> Iterator[LiveServer]:
    with servers.borrowed(LiveServer, ONE_SLOT) as server:
        yield server


@pytest.fixture
def first(one_slot: LiveServer) -> Iterator[str]:
    """A session whose turn takes the only slot until it is aborted."""
    session = one_slot.create(title="Takes the slot")
    one_slot.send(session, "hang")
    one_slot.wait(session, lambda shown: shown["state"] == "processing")
    yield session
    one_slot.http.post(f"/api/sessions/{session}/abort")
    one_slot.wait_idle(session)


def free(server: LiveServer, first: str) -> None:
    server.post(f"/api/sessions/{first}/abort")


def waits(person: Person) -> None:
    person.sees(WAITS)
    expect(person.header).to_contain_text("Waiting to start")


def cancel_button(person: Person) -> Locator:
    return person.log.get_by_role("button", name="Cancel", exact=True)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_message_without_a_slot_says_what_it_waits_for_and_starts_when_one_is_free(
    one_slot: LiveServer, first: str, make_person: Callable[..., Person], width: int, dark: bool
) -> None:
    looks = f"{width}-{'dark' if dark else 'light'}"
    person = make_person(one_slot, width=width, height=800 if width > 1000 else 844, dark=dark)
    session = person.start("say the second answer")
    waits(person)
    expect(person.log.get_by_role("article", name="Your message, turn 1")).to_contain_text("say the second answer")
    expect(cancel_button(person)).to_be_visible()
    assert person.page.evaluate(SIDEWAYS) == []
    if AXE.exists():
        assert violations(person.page) == []
    shoot(person, f"waiting-to-begin-{looks}")

    person.page.reload()
    waits(person)
    person.composer.fill("say the third answer")
    expect(person.page.get_by_role("button", name="Send instead")).to_be_visible()
    shoot(person, f"waiting-to-begin-composer-{looks}")
    person.page.get_by_role("button", name="Queue").click()
    expect(person.page.get_by_role("list", name="Queue: 1 message")).to_be_visible()
    waits(person)

    person.page.evaluate(RECORD)
    free(one_slot, first)
    person.sees("the second answer")
    person.sees("the third answer")
    person.is_idle()
    states = person.page.evaluate("() => window.states")
    assert states[:2] == ["Waiting to start", "Working"] and "Idle" not in states[:-1]
    expect(person.log).not_to_contain_text(WAITS)
    assert one_slot.session(session)["turn_count"] == 2


@pytest.mark.parametrize("width", [1280, 390])
def test_the_list_has_its_own_group_for_messages_waiting_to_start(
    one_slot: LiveServer, first: str, make_person: Callable[..., Person], width: int
) -> None:
    person = make_person(one_slot, width=width)
    session = one_slot.create(title="Comes next")
    person.go("/")
    navigation = person.page.get_by_role("navigation", name="Sessions")
    expect(navigation.get_by_role("region", name="Working")).to_contain_text("Takes the slot")
    one_slot.send(session, "say one")
    region = navigation.get_by_role("region", name="Waiting to start")
    expect(region).to_contain_text("Comes next")
    expect(region).to_contain_text(WAITS)
    expect(navigation.get_by_role("region", name="Waiting for you")).to_have_count(0)
    expect(person.page).to_have_title(re.compile("^•"))
    expect(person.page.locator("#favicon")).to_have_attribute("href", "/page/icon-working.svg")
    for dark in (False, True):
        person.page.emulate_media(color_scheme="dark" if dark else "light")
        shoot(person, f"waiting-to-begin-list-{width}-{'dark' if dark else 'light'}")
    person.go("/inbox")
    expect(person.page.get_by_text("Nothing is waiting for you")).to_be_visible()
    person.go("/")
    free(one_slot, first)
    expect(region).to_have_count(0)
    one_slot.wait_idle(session)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_waiting_message_that_is_cancelled_looks_like_an_interrupted_turn(
    one_slot: LiveServer, first: str, make_person: Callable[..., Person], width: int
) -> None:
    person = make_person(one_slot, width=width)
    session = person.start("say never")
    waits(person)
    cancel_button(person).click()
    person.is_idle()
    turn = person.log.get_by_role("group", name="Turn 1")
    expect(turn).to_contain_text("interrupted")
    expect(turn).not_to_contain_text("ms")
    expect(person.log).not_to_contain_text(WAITS)
    # The list updates a moment later.
    expect(person.page.get_by_role("region", name="Waiting to start")).to_have_count(0)
    for dark in (False, True):
        person.page.emulate_media(color_scheme="dark" if dark else "light")
        shoot(person, f"stopped-before-it-began-{width}-{'dark' if dark else 'light'}")
    person.page.reload()
    expect(turn).to_contain_text("interrupted")
    assert one_slot.session(first)["state"] == "processing"
    assert [event["type"] for event in one_slot.log(session)].count("turn_start") == 0


def test_the_interrupt_keys_cancel_a_waiting_message_and_the_queue_continues(
    one_slot: LiveServer, first: str, make_person: Callable[..., Person]
) -> None:
    person = make_person(one_slot)
    person.start("say never")
    waits(person)
    person.send("say the next")
    expect(person.page.get_by_role("list", name="Queue: 1 message")).to_be_visible()
    turn = person.log.get_by_role("group", name="Turn 1")
    until(
        lambda limit: expect(turn).to_contain_text("interrupted", timeout=limit), lambda: person.press("Escape Escape")
    )
    expect(person.log.get_by_role("article", name="Your message, turn 2")).to_contain_text("say the next")
    waits(person)
    free(one_slot, first)
    person.is_idle()
    expect(person.log.locator(".md")).to_have_text("the next")


def test_another_message_can_be_sent_instead_of_the_waiting_one(
    one_slot: LiveServer, first: str, make_person: Callable[..., Person]
) -> None:
    person = make_person(one_slot)
    person.start("say never")
    waits(person)
    person.composer.fill("say instead")
    person.page.get_by_role("button", name="Send instead").click()
    expect(person.log.get_by_role("group", name="Turn 1")).to_contain_text("interrupted")
    expect(person.log.get_by_role("article", name="Your message, turn 2")).to_contain_text("say instead")
    free(one_slot, first)
    person.is_idle()
    expect(person.log.locator(".md")).to_have_text("instead")


def test_a_waiting_message_can_still_be_edited(
    one_slot: LiveServer, first: str, make_person: Callable[..., Person]
) -> None:
    person = make_person(one_slot)
    person.start("say before")
    waits(person)
    person.turn_menu(1, "Edit in place")
    message = person.log.get_by_role("article", name="Your message, turn 1")
    message.get_by_role("textbox", name="Message").fill("say after")
    expect(message.get_by_role("button", name="Save and retry")).to_have_count(0)
    message.get_by_role("button", name="Save", exact=True).click()
    expect(message).to_contain_text("edited")
    waits(person)
    free(one_slot, first)
    person.is_idle()
    expect(person.log.locator(".md")).to_have_text("after")
