"""Rewinding and retrying turns, with the files: what would change is shown first, and a restore can be undone."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Route, expect

from tests.harness import LiveServer, eventually
from tests.page.conftest import ARTEFACTS
from tests.page.person import Person, hold
from tests.page.repositories import make_repository, recorded
from tests.page.test_views import AXE, violations

pytestmark = pytest.mark.needs("git")

RESTORES = "Also restore the files to before this message"
PATIENCE_MS = 500
"""After this time, the dialog opens without the list (ui/src/views/rewinding.tsx)."""
WAITS = f"""{{
  const later = window.setTimeout;
  window.setTimeout = (run, ms, ...given) => (ms === {PATIENCE_MS} ? 0 : later(run, ms, ...given));
}}"""


def a_session(server: LiveServer, folder: Path, *turns: str) -> str:
    session = server.create(workdir=str(make_repository(folder, {"a.txt": "one\n", "b.txt": "one\n"})), title="Work")
    for turn in turns:
        server.turn(session, turn)
        recorded(server, session)
    return session


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "site"


@pytest.fixture
def session(shared: LiveServer, folder: Path) -> str:
    """Turn 1 changes nothing, turn 2 a file, turn 3 another one."""
    return a_session(shared, folder, "say one", "edit a.txt\nsay two", "edit new/c.txt\nsay three")


@pytest.fixture
def patient(person: Person) -> Person:
    """The page waits for the list of files, however long it takes: on a busy machine, its dialog would open before."""
    person.context.add_init_script(WAITS)
    return person


def dialog(person: Person) -> Locator:
    return person.page.get_by_role("dialog")


def asked(person: Person, session: str, turn: int, action: str = "Rewind") -> Locator:
    """The dialog about a turn, once it shows what would change."""
    person.open(session)
    person.turn_menu(turn, action)
    expect(dialog(person).get_by_role("checkbox", name=RESTORES)).to_be_visible()
    return dialog(person)


def turns(person: Person, session: str) -> list[int]:
    return [turn["turn"] for turn in person.server.transcript(session)]


def is_rewound(person: Person, session: str, left: list[int]) -> None:
    expect(dialog(person)).to_have_count(0)
    eventually(lambda: turns(person, session) == left, f"only the turns {left} are left")


def test_the_files_are_restored_with_the_history_and_that_can_be_undone(
    person: Person, session: str, folder: Path
) -> None:
    shown = asked(person, session, 2)
    expect(shown).to_contain_text("Turns 2 to 3 leave the conversation.")
    shown.get_by_role("checkbox").check()
    listed = shown.get_by_role("list", name="Files to restore").get_by_role("listitem")
    expect(listed).to_have_text([re.compile("a.txt.*changed back"), re.compile("new/c.txt.*deleted")])
    shown.get_by_role("button", name="Rewind and restore 2 files").click()
    undo = person.page.get_by_role("button", name="Undo restore")
    # While the pointer is on it, it stays.
    undo.hover()
    is_rewound(person, session, [1])
    assert (folder / "a.txt").read_text() == "one\n" and not (folder / "new").exists()
    expect(person.composer).to_have_value("edit a.txt\nsay two")
    undo.click()
    eventually((folder / "new" / "c.txt").exists, "the restore is undone")
    assert (folder / "a.txt").read_text() != "one\n"
    assert turns(person, session) == [1], "the conversation stays rewound"


def test_the_files_can_be_kept_and_the_choice_is_remembered(patient: Person, session: str, folder: Path) -> None:
    person = patient
    before = (folder / "a.txt").read_text()
    shown = asked(person, session, 3)
    expect(shown.get_by_role("checkbox")).not_to_be_checked()
    expect(shown.get_by_role("checkbox")).to_be_focused()
    shown.get_by_role("button", name="Rewind, keep the files").click()
    is_rewound(person, session, [1, 2])
    assert (folder / "new" / "c.txt").exists()
    shown = asked(person, session, 2)
    expect(shown.get_by_role("checkbox")).not_to_be_checked()
    shown.get_by_role("checkbox").check()
    shown.get_by_role("button", name="Cancel").click()
    assert turns(person, session) == [1, 2] and (folder / "a.txt").read_text() == before
    shown = asked(person, session, 2)
    shown.get_by_role("checkbox").check()
    shown.get_by_role("button", name=re.compile("^Rewind and restore")).click()
    is_rewound(person, session, [1])
    person.server.turn(session, "edit a.txt")
    recorded(person.server, session)
    expect(asked(person, session, 4).get_by_role("checkbox")).to_be_checked()


def test_everything_can_be_done_with_the_keyboard(patient: Person, session: str, folder: Path) -> None:
    person = patient
    expect(asked(person, session, 2).get_by_role("checkbox")).to_be_focused()
    person.page.keyboard.press("Space")
    expect(dialog(person).get_by_role("checkbox")).to_be_checked()
    person.page.keyboard.press("Enter")
    undo = person.page.get_by_role("button", name="Undo restore")
    # While it has the focus, it stays.
    undo.focus()
    is_rewound(person, session, [1])
    assert (folder / "a.txt").read_text() == "one\n"
    undo.press("Enter")
    eventually(lambda: (folder / "a.txt").read_text() != "one\n", "the restore is undone")
    person.server.turn(session, "edit b.txt")
    recorded(person.server, session)
    expect(asked(person, session, 4).get_by_role("checkbox")).to_be_focused()
    person.page.keyboard.press("Escape")
    expect(dialog(person)).to_have_count(0)
    assert turns(person, session) == [1, 4]


@pytest.mark.parametrize("choice", ["Keep these changes", "Overwrite them"])
def test_changes_made_outside_are_kept_unless_the_user_says_so(
    person: Person, session: str, folder: Path, choice: str
) -> None:
    (folder / "a.txt").write_text("mine\n")
    shown = asked(person, session, 2)
    shown.get_by_role("checkbox").check()
    expect(shown.get_by_text("1 file was changed outside this session")).to_be_visible()
    expect(shown.get_by_role("radio", name="Keep these changes")).to_be_checked()
    shown.get_by_role("radio", name=choice).check()
    count = "1 file" if choice.startswith("Keep") else "2 files"
    shown.get_by_role("button", name=f"Rewind and restore {count}").click()
    is_rewound(person, session, [1])
    assert (folder / "a.txt").read_text() == ("mine\n" if choice.startswith("Keep") else "one\n")
    assert not (folder / "new").exists()


def test_a_file_changed_after_the_list_was_made_is_listed_again(person: Person, session: str, folder: Path) -> None:
    shown = asked(person, session, 2)
    shown.get_by_role("checkbox").check()
    expect(shown.get_by_text("outside this session")).to_have_count(0)
    (folder / "a.txt").write_text("mine\n")
    shown.get_by_role("button", name="Rewind and restore 2 files").click()
    expect(shown.get_by_role("alert")).to_be_visible()
    expect(shown.get_by_text("1 file was changed outside this session")).to_be_visible()
    assert turns(person, session) == [1, 2, 3] and (folder / "new" / "c.txt").exists(), "nothing has changed"
    shown.get_by_role("button", name="Rewind and restore 1 file").click()
    is_rewound(person, session, [1])
    assert (folder / "a.txt").read_text() == "mine\n" and not (folder / "new").exists()


def test_a_retry_restores_the_files_first(person: Person, session: str, folder: Path) -> None:
    shown = asked(person, session, 3, "Retry")
    expect(shown).to_contain_text("Turn 3 leaves the conversation, and the message is sent again.")
    shown.get_by_role("checkbox").check()
    shown.get_by_role("button", name="Retry and restore 1 file").click()
    is_rewound(person, session, [1, 2, 4])
    recorded(person.server, session)
    assert len((folder / "new" / "c.txt").read_text().splitlines()) == 1, "the edit began with the restored file"


def test_an_edited_message_stays_in_its_field_until_it_is_sent(person: Person, session: str) -> None:
    person.open(session)
    person.turn_menu(3, "Edit in place")
    edited = person.log.get_by_role("textbox", name="Message")
    edited.fill("edit b.txt\nsay better")
    person.log.get_by_role("button", name="Save and retry").click()
    expect(dialog(person)).to_contain_text("Retry from turn 3?")
    dialog(person).get_by_role("button", name="Cancel").click()
    expect(edited).to_have_value("edit b.txt\nsay better")
    person.log.get_by_role("button", name="Save and retry").click()
    dialog(person).get_by_role("button", name="Retry, keep the files").click()
    is_rewound(person, session, [1, 2, 4])
    person.sees("better")


def test_nothing_is_asked_if_no_file_would_change(person: Person, tmp_path: Path) -> None:
    session = a_session(person.server, tmp_path / "quiet", "say one", "say two")
    person.open(session)
    person.turn_menu(2, "Rewind")
    is_rewound(person, session, [1])
    bare = person.server.create(title="Without a repository")
    person.server.turn(bare, "edit a.txt\nsay one")
    person.server.turn(bare, "say two")
    person.open(bare)
    person.turn_menu(1, "Rewind")
    is_rewound(person, bare, [])


def test_without_an_answer_the_conversation_alone_can_be_rewound(person: Person, session: str, folder: Path) -> None:
    held = hold(person, "**/restore")
    person.open(session)
    person.turn_menu(2, "Rewind")
    expect(dialog(person).get_by_role("status")).to_contain_text("Looking at which files have changed")
    expect(dialog(person).get_by_role("checkbox")).to_have_count(0)
    dialog(person).get_by_role("button", name="Rewind without the files").click()
    is_rewound(person, session, [1])
    assert (folder / "new" / "c.txt").exists()
    assert len(held) == 1


NO_FILES = {"preview": True, "files": [], "file_count": 0, "outside": [], "left_alone": [], "head_moved": None}
UNAVAILABLE = {"error": "The repository is in the middle of a rebase. Finish or abort it first.", "code": "conflict"}


def test_an_answer_never_acts_while_the_dialog_is_read(person: Person, session: str, folder: Path) -> None:
    person.open(session)
    shown = dialog(person)
    rewinds: list[str] = []
    person.page.on("request", lambda request: rewinds.append(request.url) if request.url.endswith("/rewind") else None)
    answers: list[tuple[int, dict[str, Any], str]] = [
        (200, NO_FILES, "No file would change."),
        (404, {"error": "There is no snapshot of turn 3.", "code": "not_found"}, "There is no snapshot of turn 3."),
        (409, UNAVAILABLE, UNAVAILABLE["error"]),
    ]
    for status, answer, text in answers:
        held = hold(person, "**/restore")
        person.turn_menu(3, "Rewind")
        expect(shown.get_by_role("status")).to_contain_text("Looking at which files have changed")
        held[0].fulfill(status=status, json=answer)
        expect(shown).to_contain_text(text)
        name = "Rewind" if status == 200 else "Rewind without the files"
        expect(shown.get_by_role("button", name=name, exact=True)).to_be_enabled()
        shown.get_by_role("button", name="Cancel").click()
        expect(shown).to_have_count(0)
        person.page.unroute("**/restore")
    assert not rewinds and turns(person, session) == [1, 2, 3]


@pytest.mark.parametrize("lost", [False, True], ids=["refused", "lost"])
def test_why_the_files_cannot_be_restored_is_said_before_anything_happens(
    person: Person, session: str, folder: Path, lost: bool
) -> None:
    def refuse(route: Route) -> None:
        route.abort() if lost else route.fulfill(status=409, json=UNAVAILABLE)

    person.open(session)
    person.page.route("**/restore", refuse)
    person.turn_menu(3, "Rewind")
    reason = "Can't reach the server." if lost else UNAVAILABLE["error"]
    expect(dialog(person).get_by_role("alert")).to_have_text(f"The files can't be restored. {reason}")
    assert turns(person, session) == [1, 2, 3]
    dialog(person).get_by_role("button", name="Rewind without the files").click()
    is_rewound(person, session, [1, 2])
    assert (folder / "new" / "c.txt").exists()


def test_a_list_that_arrives_late_preselects_nothing(person: Person, session: str) -> None:
    person.page.evaluate("() => localStorage.setItem('perdure.rewind.files', 'restore')")
    held = hold(person, "**/restore")
    person.open(session)
    person.turn_menu(2, "Rewind")
    expect(dialog(person).get_by_role("button", name="Rewind without the files")).to_be_visible()
    held[0].continue_()
    expect(dialog(person).get_by_role("checkbox")).not_to_be_checked()
    expect(dialog(person).get_by_role("button", name="Rewind, keep the files")).to_be_visible()


def test_a_refusal_is_shown_and_changes_nothing(person: Person, session: str, folder: Path) -> None:
    refusal = {"error": "The session's files are being changed. Try again in a moment.", "code": "conflict"}
    shown = asked(person, session, 2)
    person.page.route("**/rewind", lambda route: route.fulfill(status=409, json=refusal))
    shown.get_by_role("checkbox").check()
    shown.get_by_role("button", name="Rewind and restore 2 files").click()
    expect(shown.get_by_role("alert")).to_have_text(refusal["error"])
    person.page.unroute("**/rewind")
    expect(person.composer).to_have_value("")
    shown.get_by_role("button", name="Rewind and restore 2 files").click()
    is_rewound(person, session, [1])


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_dialog_is_accessible_and_fits(
    shared: LiveServer, session: str, make_person: Callable[..., Person], width: int, dark: bool
) -> None:
    def with_much(route: Route) -> None:
        answer: dict[str, Any] = route.fetch().json()
        answer["files"] += [{"path": f"src/{'deep/' * 12}module_{n}.py", "change": "write"} for n in range(40)]
        answer["file_count"] = 260
        answer["outside"] = [{"path": "a.txt", "reason": "It was changed after the session's last turn."}]
        answer["left_alone"] = [{"path": "big.bin", "kind": "large", "reason": "It has 40 MB."}]
        answer["head_moved"] = "The branch stays at 1234567890. It was at abcdefabcd: commits made since then remain."
        route.fulfill(json=answer)

    person = make_person(shared, width=width, height=800, dark=dark, touch=width < 1000)
    person.page.route("**/restore", with_much)
    shown = asked(person, session, 2)
    shown.get_by_role("checkbox").check()
    expect(shown).to_contain_text("and 218 more files")
    shown.get_by_text("1 path is left alone").click()
    expect(shown).to_contain_text("It has 40 MB.")
    assert person.page.evaluate("() => document.documentElement.scrollWidth") <= width
    box = shown.bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= width
    assert not AXE.exists() or not violations(person.page)
    ARTEFACTS.mkdir(exist_ok=True)
    person.page.screenshot(path=ARTEFACTS / f"rewind-{width}-{'dark' if dark else 'light'}.png")
