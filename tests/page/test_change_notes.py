"""What the view of changes says about them: whose they are, what became of comments, images, patches, white space."""

import re
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.harness import LiveServer
from tests.page.person import Person
from tests.page.repositories import GIT_S, git, make_repository, recorded
from tests.page.test_changes import at_cursor, diffs, opened, part, presses, runs, until_at, view, working
from tests.page.test_views import shoot

pytestmark = pytest.mark.needs("git")

LONG_LINE_CALLS = 200_000


def png(width: int, height: int) -> bytes:
    """A black image."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + bytes(width) for _ in range(height)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def can_be_undone(root: Path, patch: str) -> bool:
    """Whether `git apply` accepts the patch as what has changed."""
    reverse = ["git", "apply", "--check", "--reverse"]
    done = subprocess.run(reverse, cwd=root, input=patch, capture_output=True, text=True, timeout=GIT_S)
    return done.returncode == 0


def test_white_space_is_hidden_but_patches_have_it_and_images_are_shown(person: Person, tmp_path: Path) -> None:
    root = make_repository(tmp_path / "site", {"a.py": "if x:\n  a()\n", "b.py": "one\n"})
    (root / "logo.png").write_bytes(png(2, 3))
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "Logo")
    session = person.server.create(workdir=str(root))
    with working(person.server, session):
        (root / "a.py").write_text("if x:\n    a()\n")
        (root / "b.py").write_text("two\n")
        (root / "logo.png").write_bytes(png(4, 5))
    person.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened(person, session, 1)
    expect(part(person, "a.py").locator(".added")).to_have_count(1)
    for name, size in (("before", "2 .* 3 px"), ("after", "4 .* 5 px")):
        picture = part(person, "logo.png").get_by_role("figure").filter(has_text=re.compile(size))
        expect(picture.get_by_role("img", name=f"logo.png, {name} the change")).to_be_visible()
    view(person).get_by_role("button", name="More about the changes").click()
    person.page.get_by_role("menuitemcheckbox", name="Ignore whitespace").click()
    expect(part(person, "a.py")).to_contain_text("Only whitespace differs.")
    expect(part(person, "b.py").locator(".added")).to_have_text(re.compile("two"))
    shown = person.server.http.get(f"/api/sessions/{session}/changes/patch", params={"turn": 1}).text
    for item in ("Copy patch", "Download patch"):
        view(person).get_by_role("button", name="More about the changes").click()
        entry = person.page.get_by_role("menuitem", name=item)
        if item == "Copy patch":
            entry.click()
            person.copied(shown)
        else:
            with person.page.expect_download() as download:
                entry.click()
            assert "GIT binary patch" in (patch := download.value.path().read_text())
    assert "+    a()" in shown and can_be_undone(root, patch)


def test_a_comment_says_what_became_of_its_lines_and_follows_them(person: Person, tmp_path: Path) -> None:
    server, lines = person.server, [f"line {number}\n" for number in range(1, 31)]
    root = make_repository(tmp_path / "site", {"a.txt": "start\n"})
    session = server.create(workdir=str(root))
    with working(server, session):
        (root / "a.txt").write_text("".join(lines))
    # Somebody else changes a line that is commented on.
    lines[20] = "mine\n"
    (root / "a.txt").write_text("".join(lines))
    given = [{"path": "a.txt", "line": number, "text": f"About line {number}"} for number in (5, 10, 21)]
    body = {"comments": given, "text": "permit Change", "message_id": "m_review"}
    server.post(f"/api/sessions/{session}/review", body, expect=202)
    opened(person, session)
    cards = diffs(person).get_by_role("article", name=re.compile("^Comment on"))
    expect(cards).to_have_count(3)
    expect(cards.filter(has_text="About line 5")).to_contain_text("Sent")
    # A draft that is not sent meanwhile.
    part(person, "a.txt").locator(".number[data-side=new]").filter(has_text=re.compile("^15$")).click()
    form = diffs(person).get_by_role("textbox", name="Comment")
    expect(form).to_be_focused()
    form.fill("Look at this")
    form.press("Control+Enter")
    prompt = server.prompt(session)["prompt_id"]
    lines[4] = "changed\n"
    (root / "a.txt").write_text("new\nnew\nnew\n" + "".join(lines))
    server.post(f"/api/sessions/{session}/prompts/{prompt}", {"option_id": "allow_once"}, expect=200)
    recorded(server, session)
    for number, state in ((5, "Addressed"), (10, "Open"), (21, "Outdated")):
        expect(cards.filter(has_text=f"About line {number}")).to_contain_text(state)
    # What was quoted is shown where the lines are gone; other comments are below their lines.
    expect(cards.filter(has_text="About line 5").locator("pre")).to_have_text("line 5")
    expect(cards.filter(has_text="About line 21").locator("pre")).to_have_text("line 21")
    expect(cards.filter(has_text="About line 10")).to_contain_text("Line 13")
    expect(cards.filter(has_text="About line 10").locator("pre")).to_have_count(0)
    expect(diffs(person).get_by_role("article", name="Draft on line 18")).to_contain_text("Look at this")
    view(person).get_by_role("form", name="Review").get_by_role("button", name="Send").click()
    expect(view(person).get_by_role("form", name="Review")).to_have_count(0)
    sent = server.wait_idle(session) and server.transcript(session)[-1]["message"]["text"]
    assert "line 18" in sent and "line 15\n" in sent, "the number that the line has now, and what it says"


def test_whose_changes_they_are_is_said(person: Person, tmp_path: Path) -> None:
    server, root = person.server, make_repository(tmp_path / "site", {"a.txt": "one\n", "b.txt": "one\n"})
    session = server.create(workdir=str(root), title="First")
    server.turn(session, "edit a.txt")
    recorded(server, session)
    (root / "b.txt").write_text("mine\n")
    other = server.create(workdir=str(root), title="Other")
    with working(server, session):
        server.turn(other, "edit c.txt")
        recorded(server, other)
    opened(person, session)
    notes = view(person).get_by_role("list", name="Notes")
    expect(part(person, "b.txt")).to_contain_text("Changed by you or another program, not by a turn of this session.")
    # Nor is it counted.
    expect(view(person)).to_contain_text("2 files")
    expect(view(person)).to_contain_text("0 of 2 viewed")
    told = notes.get_by_text("1 file was changed by you or another program between this session's turns.")
    # Enter on a note opens it, although it also opens what is at the cursor.
    told.focus()
    presses(person, "Enter")
    expect(notes.get_by_text("b.txt", exact=True)).to_be_visible()
    # After a box was checked, the keys of the view still work.
    part(person, "a.txt").get_by_role("checkbox", name="Viewed a.txt").click()
    expect(view(person)).to_contain_text("1 of 2 viewed")
    presses(person, "Shift+N v Shift+N v")
    expect(view(person)).to_contain_text("2 of 2 viewed")
    expect(notes).to_contain_text("Another session worked in this directory at the same time")
    notes.get_by_role("link", name="Other").click()
    expect(person.page).to_have_url(re.compile(f"/s/{other}/changes"))
    expect(notes.get_by_role("link", name="First")).to_be_visible()


def test_a_tool_leads_to_its_change_below_the_top_of_the_repository(person: Person, tmp_path: Path) -> None:
    files = {"a.txt": "one\n", "app/a.txt": "one\n", "app/b.txt": "one\n", ".gitignore": "*.log\n"}
    root = make_repository(tmp_path / "site", files)
    session = person.server.create(workdir=str(root / "app"))
    with working(person.server, session):
        (root / "a.txt").write_text("top\n")
    person.server.turn(session, "edit b.txt\nedit a.txt\nedit out.log")
    recorded(person.server, session)
    person.open(session)
    person.log.get_by_role("button", name="3 tools").click()
    person.log.get_by_role("link", name="Show b.txt in the changes of turn 2").click()
    expect(at_cursor(person)).to_contain_text("b.txt")
    person.log.get_by_role("link", name="Show a.txt in the changes of turn 2").click()
    expect(at_cursor(person)).to_contain_text("a.txt")
    expect(diffs(person)).to_be_focused()
    # Git ignores this one.
    person.log.get_by_role("link", name="Show out.log in the changes of turn 2").click()
    expect(person.page.get_by_text("out.log is not among the files that turn 2 changed.")).to_be_visible()
    # A link from elsewhere, which only knows the path.
    person.go(f"/s/{session}/changes?file={root}/app/a.txt")
    expect(at_cursor(person)).to_contain_text("app/a.txt")


def test_a_comment_on_a_file_that_is_no_longer_changed_is_shown_and_can_be_deleted(
    person: Person, tmp_path: Path
) -> None:
    root = make_repository(tmp_path / "site", {"a.txt": "one\n", "b.txt": "one\n"})
    session = person.server.create(workdir=str(root))
    person.server.turn(session, "edit a.txt\nedit b.txt")
    recorded(person.server, session)
    opened(person, session)
    until_at(person, "a.txt", "Shift+P")
    presses(person, "n c")
    person.page.keyboard.type("Why?")
    presses(person, "Control+Enter")
    expect(part(person, "a.txt").get_by_role("article", name=re.compile("^Draft"))).to_contain_text("Why?")
    person.server.post(f"/api/sessions/{session}/discard", {"path": "a.txt"}, expect=200)
    lost = view(person).get_by_role("region", name="Comments on files that are not shown")
    with working(person.server, session):
        pass
    expect(part(person, "a.txt")).to_have_count(0)
    expect(lost).to_contain_text("a.txt is not among these changes any more.")
    expect(lost.get_by_role("article")).to_contain_text("Why?")
    # It is about the whole session, not about its second turn.
    view(person).get_by_role("button", name="Changes of: the whole session").click()
    person.page.get_by_role("menuitemradio", name=re.compile("^Turn 2")).click()
    expect(view(person)).to_contain_text("In turn 2, no files changed.")
    expect(lost).to_have_count(0)
    runs(person, "Changes of the whole session")
    lost.get_by_role("button", name="Delete comment").click()
    expect(lost).to_have_count(0)
    expect(view(person).get_by_role("form", name="Review")).to_have_count(0)
    expect(diffs(person)).to_be_focused()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_file_of_one_very_long_line_is_cut(
    shared: LiveServer, make_person: Callable[..., Person], tmp_path: Path, width: int
) -> None:
    root = make_repository(tmp_path / "site", {"app.min.js": "a();" * LONG_LINE_CALLS})
    session = shared.create(workdir=str(root))
    with working(shared, session):
        (root / "app.min.js").write_text("b();" * LONG_LINE_CALLS)
    person = make_person(shared, width=width, height=800)
    opened(person, session)
    expect(part(person, "app.min.js").locator(".line")).to_have_count(2)
    expect(part(person, "app.min.js").locator(".added")).to_contain_text("more characters")
    presses(person, "n c")
    form = diffs(person).get_by_role("textbox", name="Comment")
    expect(form).to_be_focused()
    person.page.keyboard.type("Don't commit this.")
    presses(person, "Control+Enter")
    expect(diffs(person).get_by_role("article", name=re.compile("^Draft"))).to_contain_text("Don't commit this.")
    assert person.page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert person.page.evaluate("() => document.body.innerText.length") < 50_000, "most of the lines is not drawn"
    shoot(person, f"changes-long-line-{width}")
