"""What the view of changes does with files: undo when they changed since, restore, discard, commit."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Route, expect

from tests.harness import LiveServer, eventually
from tests.page.person import Person
from tests.page.repositories import git, make_repository, recorded
from tests.page.test_changes import diffs, opened, part, presses, runs, view

pytestmark = pytest.mark.needs("git")

AGENTS = "one\nrehearsed 1\n"
REFUSAL = {"error": "Session s2 is working in this directory. Wait for its turn to end.", "code": "turn_active"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "site", {"a.txt": "one\n", "b.txt": "one\n"})


def worked(server: LiveServer, root: Path, *turns: str) -> str:
    session = server.create(workdir=str(root), title="Work")
    for turn in turns:
        server.turn(session, turn)
        recorded(server, session)
    return session


def dialog(person: Person, name: str | re.Pattern[str]) -> Locator:
    return person.page.get_by_role("dialog", name=name)


def choose(person: Person, menu: str, item: str) -> None:
    view(person).get_by_role("button", name=menu).click()
    person.page.get_by_role("menuitem", name=re.compile("^" + re.escape(item))).click()


@pytest.mark.parametrize("choice", ["Keep these", "Overwrite"])
def test_an_undo_asks_what_to_do_with_files_that_changed_since(person: Person, root: Path, choice: str) -> None:
    session = worked(person.server, root, "edit a.txt\nedit b.txt")
    person.server.post(f"/api/sessions/{session}/restore", {"turn": 1}, expect=200)
    (root / "a.txt").write_text("mine\n")
    opened(person, session, 1)
    choose(person, "More about the changes", "File operations")
    operations = dialog(person, "File operations")
    operations.get_by_role("button", name="Undo").click()
    asked = dialog(person, "Undo? 1 file has changed since")
    expect(asked.get_by_role("list", name="Paths and reasons").get_by_role("listitem")).to_have_text(
        ["a.txt It was changed after this operation."]
    )
    asked.get_by_role("button", name="Cancel").click()
    assert (root / "a.txt").read_text() == "mine\n" and (root / "b.txt").read_text() == "one\n"
    operations.get_by_role("button", name="Undo").click()
    asked.get_by_role("button", name=choice).click()
    # The result is said in the dialog: a toast beneath it could be neither heard nor pressed.
    expect(operations.get_by_role("status")).to_contain_text("Undone")
    expect(asked).to_have_count(0)
    assert (root / "a.txt").read_text() == ("mine\n" if choice == "Keep these" else AGENTS)
    assert (root / "b.txt").read_text() == AGENTS


def test_a_discard_is_undone_from_its_toast_and_refused_if_the_file_is_another_one(person: Person, root: Path) -> None:
    session = worked(person.server, root, "edit a.txt")
    opened(person, session)
    choose(person, "Actions for a.txt", "Discard the file's changes")
    dialog(person, re.compile("^Discard")).get_by_role("button", name="Discard").click()
    # While it has the focus, it stays.
    undo = person.page.get_by_role("button", name="Undo", exact=True)
    undo.focus()
    eventually(lambda: (root / "a.txt").read_text() == "one\n", "the change is discarded")
    (root / "a.txt").write_text("mine\n")
    undo.press("Enter")
    asked = dialog(person, "Undo? 1 file has changed since")
    # Without this file, there is nothing to undo.
    expect(asked.get_by_role("button", name="Keep these")).to_have_count(0)
    asked.get_by_role("button", name="Overwrite").click()
    eventually(lambda: (root / "a.txt").read_text() == AGENTS, "the discard is undone")
    # While the dialog is open, the agent changes the file. What was seen is not there any more.
    opened(person, session)
    choose(person, "Actions for a.txt", "Discard the file's changes")
    person.server.turn(session, "edit a.txt")
    recorded(person.server, session)
    expect(part(person, "a.txt")).to_contain_text("rehearsed 2")
    dialog(person, re.compile("^Discard")).get_by_role("button", name="Discard").click()
    refused = dialog(person, "No file was changed")
    expect(refused).to_contain_text("a.txt has changed since you read it")
    refused.get_by_role("button", name="Close").last.click()
    assert (root / "a.txt").read_text() == AGENTS + "rehearsed 2\n"


def test_files_are_restored_to_before_or_after_a_turn(person: Person, root: Path) -> None:
    session = worked(person.server, root, "edit a.txt", "edit a.txt\nedit b.txt")
    opened(person, session, 2)
    choose(person, "Actions for a.txt", "Restore to before turn 2")
    asked = dialog(person, "Restore to before turn 2?")
    files = person.page.get_by_role("list", name="Files to restore").get_by_role("listitem")
    expect(files).to_have_text([re.compile("a.txt.*changed back")])
    # A refusal is said in the dialog.
    person.page.route("**/restore", lambda route: route.fulfill(status=409, json=REFUSAL))
    asked.get_by_role("button", name="Restore 1 file").click()
    expect(asked.get_by_role("alert")).to_have_text(REFUSAL["error"])
    person.page.unroute("**/restore")
    asked.get_by_role("button", name="Restore 1 file").click()
    expect(asked).to_have_count(0)
    assert (root / "a.txt").read_text() == AGENTS and (root / "b.txt").read_text() == AGENTS
    (root / "b.txt").write_text("mine\n")
    choose(person, "More about the changes", "Restore all files to after turn 2")
    asked = dialog(person, "Restore to after turn 2?")
    expect(files.filter(has_text="b.txt")).to_contain_text("kept")
    asked.get_by_role("radio", name="Overwrite them").check()
    asked.get_by_role("button", name="Restore 2 files").click()
    expect(asked).to_have_count(0)
    assert (root / "a.txt").read_text() == AGENTS + "rehearsed 2\n" and (root / "b.txt").read_text() == AGENTS
    choose(person, "More about the changes", "Restore all files to after turn 2")
    expect(asked.get_by_role("status")).to_have_text("No file would change.")
    expect(asked.get_by_role("button", name="Restore 0 files")).to_be_disabled()


def test_a_commit_has_only_the_files_that_the_dialog_shows(person: Person, root: Path) -> None:
    session = worked(person.server, root, "edit a.txt")
    (root / "b.txt").write_text("mine\n")
    person.server.turn(session, "edit b.txt")
    recorded(person.server, session)
    opened(person, session)
    expect(part(person, "b.txt")).to_contain_text("outside")
    runs(person, "Commit")
    asked = dialog(person, "Commit")
    field = asked.get_by_role("textbox", name="Commit message")
    expect(field).to_be_focused()
    expect(asked.get_by_role("checkbox", name="a.txt")).to_be_checked()
    expect(asked.get_by_role("checkbox", name="b.txt")).not_to_be_checked()
    expect(asked.get_by_role("listitem").filter(has_text="b.txt")).to_contain_text(
        "also changed by you or another program"
    )
    # A file that appears now was not decided about.
    person.server.turn(session, "edit c.txt")
    recorded(person.server, session)
    expect(part(person, "c.txt")).to_contain_text("rehearsed 1")
    expect(asked.get_by_role("checkbox")).to_have_count(2)
    field.fill("Only one")
    person.page.route("**/commit", lambda route: route.fulfill(status=409, json=REFUSAL))
    field.press("Control+Enter")
    expect(asked.get_by_role("alert")).to_have_text(REFUSAL["error"])
    person.page.unroute("**/commit")
    field.press("Control+Enter")
    expect(dialog(person, "Committed")).to_be_visible()
    assert git(root, "show", "--name-only", "--format=%s", "HEAD").split() == ["Only", "one", "a.txt"]


def test_a_commit_is_refused_if_a_file_is_not_what_the_dialog_showed(person: Person, root: Path) -> None:
    session = worked(person.server, root, "edit a.txt\nedit b.txt", "edit b.txt")
    # Whatever is shown, a commit is of the whole session.
    opened(person, session, 2)
    runs(person, "Commit")
    asked = dialog(person, "Commit")
    expect(asked.get_by_role("checkbox")).to_have_count(2)
    (root / "a.txt").write_text("mine\n")
    asked.get_by_role("textbox", name="Commit message").fill("Both")
    asked.get_by_role("button", name="Commit 2 files").click()
    refused = asked.get_by_role("alert")
    expect(refused).to_contain_text("1 file changed since you read the changes, so nothing was committed.")
    expect(refused.get_by_role("listitem")).to_have_text(["a.txt It has changed since you read it."])
    assert git(root, "log", "--format=%s") == "First"
    # The message and the choice are still there.
    asked.get_by_role("checkbox", name="a.txt").uncheck()
    asked.get_by_role("button", name="Commit 1 file").click()
    expect(dialog(person, "Committed")).to_be_visible()
    assert git(root, "show", "--name-only", "--format=%s", "HEAD").split() == ["Both", "b.txt"]
    # What the page does not show can be committed too, if that is chosen.
    presses(person, "Enter")
    runs(person, "Commit")
    asked.get_by_role("textbox", name="Commit message").fill("The other")
    asked.get_by_role("button", name="Commit 1 file").click()
    asked.get_by_role("checkbox", name="as they are now").check()
    asked.get_by_role("button", name="Commit 1 file").click()
    expect(dialog(person, "Committed")).to_be_visible()
    assert git(root, "show", "HEAD:a.txt") == "mine"


def test_discarding_a_file_warns_that_somebody_else_changed_it_too(person: Person, root: Path) -> None:
    session = worked(person.server, root, "edit a.txt")
    (root / "a.txt").write_text(AGENTS + "mine\n")
    (root / "b.txt").write_text("mine\n")
    person.server.turn(session, "edit c.txt")
    recorded(person.server, session)
    opened(person, session)
    choose(person, "Actions for a.txt", "Discard the file's changes")
    asked = dialog(person, "Discard the file's changes?")
    expect(asked).to_contain_text("You or another program also changed this file between the turns.")
    expect(asked.get_by_role("button", name="Cancel")).to_be_focused()
    presses(person, "Enter")
    assert (root / "a.txt").read_text() == AGENTS + "mine\n"
    choose(person, "Actions for a.txt", "Discard the file's changes")
    asked.get_by_role("button", name="Discard anyway").click()
    expect(person.page.get_by_text("Discarded the change to a.txt.")).to_be_visible()
    assert (root / "a.txt").read_text() == "one\n"
    choose(person, "Actions for b.txt", "Discard the file's changes")
    expect(asked).to_contain_text("No turn of this session changed this file")
    asked.get_by_role("button", name="Discard anyway").click()
    expect(person.page.get_by_text("Discarded the change to b.txt.")).to_be_visible()
    assert (root / "b.txt").read_text() == "one\n"
    # One turn's changes are its own.
    opened(person, session, 2)
    choose(person, "Actions for c.txt", "Discard the file's changes")
    expect(dialog(person, "Delete the new file?")).not_to_contain_text("another program")


def test_all_files_are_committed_only_if_that_is_chosen(
    server: LiveServer, make_person: Callable[..., Person], root: Path
) -> None:
    person = make_person(server, width=390, height=800)
    session = worked(server, root, "edit a.txt\nedit b.txt")

    def cut(route: Route) -> None:
        answer: dict[str, Any] = route.fetch().json()
        route.fulfill(json={**answer, "files": answer["files"][:1], "truncated": True})

    person.page.route(re.compile(r"/api/.*/changes$"), cut)
    opened(person, session)
    # On a phone, it is in the menu.
    choose(person, "More about the changes", "Commit")
    asked = dialog(person, "Commit")
    asked.get_by_role("textbox", name="Commit message").fill("Everything")
    expect(asked.get_by_role("button", name="Commit 1 file")).to_be_enabled()
    asked.get_by_role("checkbox", name="Commit all uncommitted files").check()
    asked.get_by_role("button", name="Commit all files").click()
    expect(dialog(person, "Committed")).to_be_visible()
    assert git(root, "status", "--porcelain") == ""
    presses(person, "Enter")
    expect(diffs(person)).to_be_visible()
