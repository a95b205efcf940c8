"""The keys and commands of the view of changes: what they do, and what they never do."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.page.person import Person
from tests.page.repositories import make_repository, recorded
from tests.page.test_changes import (
    CHANGED_TOKENS,
    TOKENS,
    diffs,
    opened,
    part,
    presses,
    runs,
    until_at,
    view,
    working,
)

pytestmark = pytest.mark.needs("git")


def test_a_comment_is_on_the_old_line_only_where_there_is_no_new_one(person: Person, tmp_path: Path) -> None:
    root = make_repository(tmp_path / "site", {"a.py": TOKENS})
    session = person.server.create(workdir=str(root))
    with working(person.server, session):
        (root / "a.py").write_text(CHANGED_TOKENS)
    opened(person, session)
    forms = diffs(person).get_by_role("form")
    presses(person, "n c")
    expect(forms).to_have_accessible_name("Comment on line 3, before the change")
    expect(forms.get_by_role("textbox")).to_be_focused()
    presses(person, "Escape")
    expect(diffs(person)).to_be_focused()
    # The next line that is unchanged is in both files.
    presses(person, "j j c")
    expect(forms).to_have_accessible_name("Comment on line 4")


def test_a_key_never_discards_more_than_the_part_at_the_cursor(person: Person, tmp_path: Path) -> None:
    lines = [f"line {number}\n" for number in range(1, 61)]
    root = make_repository(tmp_path / "site", {"a.txt": "".join(lines)})
    session = person.server.create(workdir=str(root))
    with working(person.server, session):
        lines[9], lines[49] = "tenth\n", "fiftieth\n"
        (root / "a.txt").write_text("".join(lines))
        (root / "new.txt").write_text("new\n")
    opened(person, session)
    dialogs, advice = person.page.get_by_role("dialog"), person.page.get_by_text("Move to a change first")
    until_at(person, "a.txt", "Shift+N")
    presses(person, "x")
    expect(advice).to_be_visible()
    expect(dialogs).to_have_count(0)
    presses(person, "Shift+X")
    expect(person.page.get_by_role("dialog", name="Discard the file's changes?")).to_be_visible()
    presses(person, "Escape")
    expect(dialogs).to_have_count(0)
    # A new file is one part, and without it there is no file.
    until_at(person, "new.txt", "Shift+N")
    presses(person, "n x")
    expect(person.page.get_by_role("dialog", name="Delete the new file?")).to_contain_text("This deletes new.txt")
    presses(person, "Escape Shift+P n")
    # Without changes of white space, the parts are others, so none can be discarded.
    runs(person, "Show or ignore changes of whitespace")
    expect(view(person).get_by_role("list", name="Notes")).to_contain_text("parts of a change can't be discarded")
    expect(part(person, "a.txt").get_by_role("button", name="Discard")).to_have_count(0)
    until_at(person, "a.txt", "Shift+P")
    presses(person, "n x")
    expect(person.page.get_by_text("a part can't be discarded")).to_be_visible()
    expect(dialogs).to_have_count(0)
    assert (root / "a.txt").read_text() == "".join(lines)


def test_every_action_of_the_view_is_a_command(person: Person, tmp_path: Path) -> None:
    root = make_repository(tmp_path / "site", {"a.txt": "one\n", "b.txt": "one\n"})
    session = person.server.create(workdir=str(root))
    for turn in ("edit a.txt\nedit b.txt", "edit a.txt"):
        person.server.turn(session, turn)
        recorded(person.server, session)
    opened(person, session, 2)
    presses(person, "?")
    shortcuts = person.page.get_by_role("dialog", name="Keyboard shortcuts").get_by_role("listitem")
    for title, key in (("Send the comments", "S"), ("Undo the last file operation", "U"), ("Discard this part", "X")):
        expect(shortcuts.filter(has_text=title)).to_have_text(re.compile(f"{key}$"))
    presses(person, "Escape")
    runs(person, "Changes of the previous turn")
    expect(person.page).to_have_url(re.compile("/changes/1$"))
    runs(person, "Mark the file as viewed")
    expect(view(person)).to_contain_text("1 of 2 viewed")
    runs(person, "Restore all files to before this turn")
    asked = person.page.get_by_role("dialog", name="Restore to before turn 1?")
    expect(asked).to_be_visible()
    # A question is about the changes that are shown.
    person.page.go_back()
    expect(person.page).to_have_url(re.compile("/changes/2$"))
    expect(asked).to_have_count(0)
    runs(person, "File operations")
    expect(person.page.get_by_role("dialog", name="File operations")).to_be_visible()
    presses(person, "Escape")
    runs(person, "Close changes")
    expect(view(person)).to_have_count(0)
