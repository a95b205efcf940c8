"""Nodes on the page: hidden if there is only one; otherwise listed with their state, drained and removed.

These tests use SQLite, so the server is the only node. They intercept the requests and answer as several nodes would.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Locator, Route, expect

from perdure.surfaces.http import nodes as shapes
from tests.harness import LiveServer
from tests.page.conftest import ARTEFACTS
from tests.page.person import Person, until
from tests.page.test_views import AXE, FINGER_PX, PRESSED, SIDEWAYS, SMALL, violations

Json = dict[str, Any]
PHONE_PX = 390
OF_NODES = re.compile(r"/api/nodes(/.*)?$")


def node(name: str, **given: Any) -> Json:
    fields: Json = {
        "id": f"id-of-{name}",
        "name": name,
        "url": f"http://{name}.example.com:7433",
        "version": "0.1.0",
        "state": "alive",
        "draining": False,
        "this": False,
        "started_at": "2026-11-01T08:00:00.000Z",
        "last_seen_s": 2.0,
        "sessions": 12,
        "running": 2,
        "slots": 4,
        "labels": [],
        "workdirs": "local",
        "agents": ["rehearsal"],
        **given,
    }
    msgspec.convert(fields, shapes.Node)
    return fields


class Several:
    """Three nodes, and the requests they received."""

    def __init__(self, person: Person) -> None:
        silent: Json = {"state": "silent", "last_seen_s": 42.2, "running": 0, "sessions": 3}
        self.nodes = [
            node("north", this=True, last_seen_s=None),
            node("south-with-a-rather-long-name-of-a-machine-in-a-cloud", labels=["gpu", "eu-west"]),
            node("west", **silent),
        ]
        self.asked: list[str] = []
        person.page.route(OF_NODES, self._answer)
        person.page.reload()

    def _answer(self, route: Route) -> None:
        method, (_, _, name, *rest) = route.request.method, (*route.request.url.split("/")[3:], "")[:4]
        if method == "GET":
            route.fulfill(json={"nodes": self.nodes})
            return
        found = next(each for each in self.nodes if each["id"] == name)
        self.asked.append(f"{method} {found['name']} {''.join(rest)}".strip())
        if method == "DELETE":
            self.nodes.remove(found)
            route.fulfill(json={"id": found["id"], "name": found["name"], "sessions": found["sessions"]})
            return
        found["draining"] = rest == ["drain"]
        found["state"] = "draining" if found["draining"] else "alive"
        route.fulfill(json=found)


def row(person: Person, name: str) -> Locator:
    listed = person.page.get_by_role("list", name="Nodes").get_by_role("listitem")
    return listed.filter(has=person.page.get_by_role("heading", name=re.compile(f"^{name}")))


def test_a_single_node_is_not_linked_but_has_a_view(server: LiveServer, make_person: Callable[..., Person]) -> None:
    person = make_person(server)
    session = server.create(title="Alone")
    server.turn(session, "say hello")
    with person.page.expect_response("**/api/nodes"):
        person.go(f"/s/{session}")
    expect(person.page.get_by_role("heading", name="Alone")).to_be_visible()
    expect(person.page.get_by_role("link", name="Jobs", exact=True)).to_be_visible()
    expect(person.page.get_by_role("link", name="Nodes", exact=True)).to_have_count(0)
    expect(person.page.get_by_title("The node that owns this session")).to_have_count(0)
    person.go("/nodes")
    expect(person.page.get_by_text("This server is the only node.")).to_be_visible()
    expect(person.page).to_have_title("Nodes · Perdure")
    listed = person.page.get_by_role("list", name="Nodes").get_by_role("listitem")
    expect(listed).to_have_count(1)
    expect(listed).to_contain_text("Alive")
    expect(listed).to_contain_text("1 session")
    expect(listed.get_by_role("button")).to_have_count(0)


def test_several_nodes_are_linked_and_shown_with_their_state(
    server: LiveServer, make_person: Callable[..., Person]
) -> None:
    person = make_person(server)
    Several(person)
    person.page.get_by_role("link", name="Nodes", exact=True).click()
    expect(person.page).to_have_url(f"{server.url}/nodes")
    for words in ("Alive", "this node", "12 sessions · 2 of 4 slots in use", "http://north.example.com:7433"):
        expect(row(person, "north")).to_contain_text(words)
    expect(row(person, "south")).to_contain_text("#gpu")
    expect(row(person, "south")).not_to_contain_text("this node")
    expect(row(person, "west")).to_contain_text("Silent · last seen 42 s ago")
    expect(row(person, "west")).to_contain_text("3 sessions wait for this node")
    expect(row(person, "west")).to_contain_text("perdure nodes move --from west --to NODE")
    expect(row(person, "west").get_by_role("button", name="Drain west")).to_have_count(0)
    expect(row(person, "north").get_by_role("button", name="Remove north")).to_have_count(0)


def test_a_node_is_drained_after_a_confirmation_and_resumed_by_keyboard(
    server: LiveServer, make_person: Callable[..., Person]
) -> None:
    person = make_person(server)
    page, several = person.page, Several(person)
    person.go("/nodes")
    row(person, "south").get_by_role("button", name="Drain south").press("Enter")
    dialog = page.get_by_role("dialog", name=re.compile("Drain south"))
    expect(dialog).to_contain_text("2 running turns finish first.")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(row(person, "south").get_by_role("button", name="Drain south")).to_be_focused()
    assert several.asked == []
    page.keyboard.press("Enter")
    dialog.get_by_role("button", name="Drain").press("Enter")
    expect(row(person, "south")).to_contain_text("Draining")
    expect(page.get_by_text("is draining.")).to_be_visible()
    row(person, "south").get_by_role("button", name="Resume south").press("Enter")
    expect(row(person, "south")).to_contain_text("Alive")
    name = several.nodes[1]["name"]
    assert several.asked == [f"POST {name} drain", f"POST {name} resume"]


def test_a_silent_node_is_removed_only_after_a_confirmation(
    server: LiveServer, make_person: Callable[..., Person]
) -> None:
    person = make_person(server)
    page, several = person.page, Several(person)
    person.go("/nodes")
    row(person, "west").get_by_role("button", name="Remove west").click()
    dialog = page.get_by_role("dialog", name="Remove west?")
    expect(dialog).to_contain_text("Its 3 sessions have no owner until another node takes them over.")
    expect(dialog).to_contain_text("can't be undone")
    dialog.get_by_role("button", name="Cancel").click()
    assert several.asked == []
    row(person, "west").get_by_role("button", name="Remove west").click()
    dialog.get_by_role("button", name="Remove").click()
    expect(row(person, "west")).to_have_count(0)
    expect(page.get_by_text("Removed west. 3 sessions have no owner now.")).to_be_visible()
    assert several.asked == ["DELETE west"]


def test_a_refusal_shows_the_servers_message(server: LiveServer, make_person: Callable[..., Person]) -> None:
    person = make_person(server)
    several = Several(person)
    person.go("/nodes")
    words = "Node west is alive. Stop it first."
    person.page.route(
        "**/api/nodes/id-of-west",
        lambda route: route.fulfill(status=409, json={"code": "conflict", "error": words, "detail": words}),
    )
    row(person, "west").get_by_role("button", name="Remove west").click()
    person.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(person.page.get_by_text(words)).to_be_visible()
    expect(row(person, "west")).to_be_visible()
    assert several.asked == []


def test_a_session_shows_its_node_if_there_are_several(server: LiveServer, make_person: Callable[..., Person]) -> None:
    session = server.create(title="Somewhere")
    server.turn(session, "say hello")
    person = make_person(server)
    Several(person)
    person.go(f"/s/{session}")
    name = server.get(f"/api/sessions/{session}")["node_name"]
    expect(person.page.get_by_title("The node that owns this session")).to_have_text(f" · on {name}")


def test_g_n_opens_the_nodes_if_there_are_several(server: LiveServer, make_person: Callable[..., Person]) -> None:
    person = make_person(server)
    Several(person)
    person.go("/usage")
    expect(person.page.get_by_role("link", name="Nodes", exact=True)).to_be_visible()

    def press() -> None:
        person.page.keyboard.press("g")
        person.page.keyboard.press("n")

    until(lambda limit_ms: expect(person.page).to_have_url(f"{server.url}/nodes", timeout=limit_ms), press)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, PHONE_PX])
def test_the_nodes_view_is_accessible_and_fits(
    server: LiveServer, make_person: Callable[..., Person], width: int, dark: bool
) -> None:
    phone = width == PHONE_PX
    person = make_person(server, width=width, height=844 if phone else 800, dark=dark, touch=phone)
    page, bad = person.page, {}

    def look(view: str) -> None:
        ARTEFACTS.mkdir(exist_ok=True)
        page.screenshot(path=ARTEFACTS / f"{view}-{width}-{'dark' if dark else 'light'}.png", animations="disabled")
        found = violations(page) if AXE.exists() else []
        found += page.evaluate(SIDEWAYS) if phone else []
        found += page.evaluate(SMALL, [PRESSED, FINGER_PX]) if phone else []
        if found or page.evaluate("() => document.documentElement.scrollWidth") > width:
            bad[view] = found

    person.go("/nodes")
    expect(page.get_by_text("This server is the only node.")).to_be_visible()
    look("nodes-one")
    several = Several(person)
    several.nodes.append(node("east", state="draining", draining=True, slots=0, running=1))
    several.nodes.append(node("old", state="dead", url=None, version=None, started_at=None, last_seen_s=9000.0))
    person.go("/nodes")
    expect(row(person, "old")).to_contain_text("Dead")
    look("nodes-list")
    row(person, "west").get_by_role("button", name="Remove west").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    look("nodes-remove")
    page.keyboard.press("Escape")
    row(person, "north").get_by_role("button", name="Drain north").click()
    look("nodes-drain")
    person.go("/")
    expect(page.get_by_role("link", name="Nodes", exact=True)).to_be_visible()
    look("nodes-sidebar")
    assert not bad, bad
