"""Nesting: a sub-agent's tools inside its tool call, and child sessions below their parent."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, expect

from tests.harness import LiveServer, eventually
from tests.page.person import Person

# A busy server may read the start and the end of a tool at the same time, and then has no duration to show.
TIME = re.compile(r"done|\d+ ms|\d+(\.\d)? s|\d+ min")


def lists(person: Person, group: str, sessions: list[str]) -> None:
    """Wait until the list shows these sessions in this group, in this order."""
    region = person.page.get_by_role("navigation", name="Sessions").get_by_role("region", name=group)
    entries = region.locator("[data-session]")
    shown = "(entries) => entries.map((one) => one.dataset.session)"
    eventually(lambda: entries.evaluate_all(shown) == sessions, f"{group} has {sessions}")


def started_by(person: Person, title: str) -> Locator:
    return person.page.get_by_role("list", name=f"Started by {title}", exact=True)


def fold(person: Person, title: str) -> Locator:
    return person.page.get_by_role("button", name=re.compile(rf"^\d+ child sessions? of {title}"))


# Sub-agents -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", ["rehearsal", "rehearsal-stream", "rehearsal-resume"])
def test_a_sub_agents_tools_are_shown_inside_its_tool_call(person: Person, agent: str) -> None:
    session = person.server.create(agent=agent, title=f"Team of {agent}")
    person.open(session)
    person.send("delegate ../outside Write there\nsay That is all.")
    person.is_idle()
    card = person.log.get_by_role("button", name="Delegated to ../outside")
    expect(card).to_contain_text("Write there")
    expect(card).to_contain_text("2 tools inside, 1 failed")
    expect(card).to_contain_text(TIME)
    expect(person.log).not_to_contain_text("There was trouble")
    person.sees("That is all.")
    command = person.log.get_by_role("button", name="Ran ls")
    expect(command).to_have_count(0)
    card.click()
    inside = person.log.get_by_role("group", name="Tools of the sub-agent")
    expect(inside.get_by_role("button", name="Ran ls")).to_contain_text(TIME)
    edit = inside.get_by_role("button", name="Edited ../outside.md")
    expect(edit).to_contain_text("failed")
    expect(person.log.get_by_role("region", name="Task")).to_contain_text("You are ../outside")
    expect(person.log.get_by_role("region", name="Report")).to_contain_text("There was trouble: refused")
    expect(inside).not_to_contain_text("is not a file inside")
    edit.click()
    expect(inside).to_contain_text("is not a file inside the working directory")
    edit.click()
    expect(inside).not_to_contain_text("is not a file inside")
    card.click()
    expect(command).to_have_count(0)
    person.page.reload()
    expect(card).to_contain_text("2 tools inside, 1 failed")


def test_a_sub_agents_tool_call_is_opened_by_keyboard(person: Person) -> None:
    person.start("delegate writer Begin")
    person.is_idle()
    card = person.log.get_by_role("button", name="Delegated to writer")
    card.focus()
    person.page.keyboard.press("Enter")
    expect(card).to_have_attribute("aria-expanded", "true")
    person.page.keyboard.press("Tab")
    person.page.keyboard.press("Tab")
    person.page.keyboard.press("Tab")
    command = person.log.get_by_role("button", name="Ran ls")
    expect(command).to_be_focused()
    person.page.keyboard.press("Enter")
    expect(command).to_have_attribute("aria-expanded", "true")


def test_a_running_sub_agent_is_shown_and_is_interrupted_with_its_turn(person: Person) -> None:
    person.start("\n".join(["delegate writer Begin"] * 300))
    expect(person.log.get_by_role("button", name="Delegating to writer")).to_be_visible()
    person.page.get_by_role("button", name="Interrupt", exact=True).click()
    person.is_idle()
    expect(person.log.get_by_role("button", name="Delegating to writer")).to_have_count(0)
    person.sees("interrupted")


# Child sessions -------------------------------------------------------------------------------------------------------


def test_child_sessions_are_below_their_parent_and_move_the_tree_to_their_group(
    server: LiveServer, make_person: Callable[..., Person]
) -> None:
    person = make_person(server)
    root = server.create(title="Release")
    alone = server.create(title="Alone")
    child = server.create(title="Guide", parent=root)
    grandchild = server.create(title="Pictures", parent=child)
    expect(started_by(person, "Guide")).to_contain_text("Pictures")
    expect(started_by(person, "Release")).to_contain_text("Guide")
    lists(person, "Today", [root, child, grandchild, alone])
    server.send(grandchild, "permit Deploy")
    waiting = person.page.get_by_role("region", name="Waiting for you")
    expect(waiting).to_contain_text("Release")
    lists(person, "Waiting for you", [root, child, grandchild])
    server.post(f"/api/sessions/{grandchild}/prompts/{server.prompt(grandchild)['prompt_id']}", {"cancel": True})
    expect(waiting).to_have_count(0)
    person.open(grandchild)
    person.header.get_by_role("link", name="Started by Guide").click()
    expect(person.page.get_by_role("heading", name="Guide")).to_be_visible()
    person.menu("Open parent session")
    expect(person.page.get_by_role("heading", name="Release")).to_be_visible()


def test_a_collapsed_tree_summarizes_its_sessions_and_stays_collapsed(
    server: LiveServer, make_person: Callable[..., Person]
) -> None:
    person = make_person(server)
    root = server.create(title="Release")
    child = server.create(title="Guide", parent=root)
    server.send(server.create(title="Pictures", parent=child), "hang")
    server.turn(server.create(title="Numbers", parent=root), "crash 2")
    expect(fold(person, "Release")).to_have_text(re.compile("^3 child sessions of Release$"))
    fold(person, "Release").click()
    expect(started_by(person, "Release")).to_have_count(0)
    expect(fold(person, "Release")).to_contain_text("1 working")
    expect(fold(person, "Release")).to_contain_text("1 failed")
    person.page.reload()
    expect(fold(person, "Release")).to_have_attribute("aria-expanded", "false")
    expect(started_by(person, "Release")).to_have_count(0)
    # Opening a child expands the tree.
    person.open(child)
    expect(started_by(person, "Release")).to_contain_text("Guide")
    expect(fold(person, "Guide")).to_be_visible()


def test_the_tree_works_by_keyboard(server: LiveServer, make_person: Callable[..., Person]) -> None:
    person = make_person(server)
    root = server.create(title="Release")
    child = server.create(title="Guide", parent=root)
    expect(started_by(person, "Release")).to_contain_text("Guide")
    person.press("j")
    expect(person.page).to_have_url(re.compile(root))
    person.press("j")
    expect(person.page).to_have_url(re.compile(child))
    person.page.locator(f"[data-session={root}]").focus()
    person.page.keyboard.press("Tab")
    expect(fold(person, "Release")).to_be_focused()
    person.page.keyboard.press("Enter")
    expect(started_by(person, "Release")).to_have_count(0)
    person.page.locator(f"[data-session={root}]").focus()
    person.page.keyboard.press("ArrowRight")
    expect(started_by(person, "Release")).to_contain_text("Guide")
    person.page.keyboard.press("ArrowLeft")
    expect(started_by(person, "Release")).to_have_count(0)


def test_children_of_an_erased_session_become_top_level(server: LiveServer, make_person: Callable[..., Person]) -> None:
    person = make_person(server)
    root = server.create(title="Release")
    child = server.create(title="Guide", parent=root)
    person.open(child)
    expect(started_by(person, "Release")).to_contain_text("Guide")
    server.http.delete(f"/api/sessions/{root}?purge=true")
    expect(started_by(person, "Release")).to_have_count(0)
    lists(person, "Today", [child])
    person.send("say still here")
    person.sees("still here")
    person.header.get_by_role("link", name="Started by another session").click()
    expect(person.page.get_by_role("heading", name="Session not found")).to_be_visible()
