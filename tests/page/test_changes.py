"""The view of changes: files and diffs of a turn, comments, discarding and committing, by keyboard, large and small."""

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, CDPSession, Locator, expect

from tests.harness import LiveServer, eventually
from tests.page.person import Person
from tests.page.repositories import git, make_repository, recorded
from tests.page.test_views import AXE, FINGER_PX, PRESSED, SIDEWAYS, SMALL, shoot, violations

pytestmark = pytest.mark.needs("git")

TOKENS = """import time

LIMIT_S = 3600


def check(token):
    if token.expires < time.time():
        return False
    return sign(token.user) == token.signature


def is_known(user):
    # Names are not case sensitive.
    user = user.lower()
    return user in USERS


def sign(user):
    return user + "!"


def parse(header):
    scheme, _, value = header.partition(" ")
    if scheme.lower() != "bearer":
        raise ValueError("not a bearer token")
    return value
"""
CHANGED_TOKENS = TOKENS.replace("3600", "900").replace("user + ", "secret + user + ").replace("== token", "is token")
PAGES = 36
OPENS_MS = 1000
LONGEST_TASK_MS = 200
SLOWDOWN = 4
MOST_BLANK = 2
ATTEMPTS = 4
"""Other processes can make an attempt slower, never faster, so one within the limits shows that the page is. Each limit
may be met by another attempt. Tasks are measured in CPU time, because on a busy machine they also wait for the
processor."""
MOST_TABS = 400
MANY_LINES = 10_000
"""Each is changed, so that the diff has twice as many lines."""
OPENED = """() => new Promise((done) => {
  const begun = performance.now();
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "d", bubbles: true }));
  const look = () => {
    if (document.querySelectorAll("[data-diffs] .line").length > 20) done(performance.now() - begun);
    else requestAnimationFrame(look);
  };
  look();
})"""
SCROLLED = """async () => {
  const element = document.querySelector("[data-diffs]");
  const drawn = () => [...element.querySelectorAll(".line")].some((line) => {
    const box = line.getBoundingClientRect();
    const frame = element.getBoundingClientRect();
    return box.bottom > frame.top && box.top < frame.bottom;
  });
  const frame = () => new Promise((next) => setTimeout(() => requestAnimationFrame(next)));
  let blank = 0;
  for (let step = 0; step < 100; step += 1) {
    element.scrollTop += element.scrollHeight / 100;
    await frame();
    await frame();
    if (!drawn()) blank += 1;
  }
  return blank;
}"""


def view(person: Person) -> Locator:
    return person.page.get_by_role("region", name="Changes", exact=True)


def diffs(person: Person) -> Locator:
    return view(person).get_by_role("group", name="Diffs")


def part(person: Person, path: str) -> Locator:
    """The section of a file."""
    return diffs(person).get_by_role("region", name=path, exact=True)


def at_cursor(person: Person) -> Locator:
    return diffs(person).locator(".current")


def presses(person: Person, keys: str) -> None:
    for key in keys.split(" "):
        person.page.keyboard.press(key)


def tabs_to(person: Person, target: Locator) -> None:
    """Press Tab until this has the focus."""
    for _ in range(MOST_TABS):
        presses(person, "Tab")
        if target.evaluate("(element) => element === document.activeElement"):
            return
    raise AssertionError("the Tab key never came there")


def runs(person: Person, command: str) -> None:
    """Run a command by its name."""
    presses(person, "Control+k")
    expect(person.page.get_by_role("combobox", name="Command or session")).to_be_focused()
    person.page.keyboard.type(command)
    expect(person.page.get_by_role("option").first).to_contain_text(command)
    presses(person, "Enter")


def opened(person: Person, session: str, turn: int | None = None) -> None:
    person.go(f"/s/{session}/changes" + (f"/{turn}" if turn else ""))
    expect(diffs(person)).to_be_focused()
    expect(diffs(person).locator(".line").first).to_be_visible()


@contextmanager
def working(server: LiveServer, session: str) -> Iterator[None]:
    """A turn, in which the files are changed from here: the agent waits meanwhile."""
    server.send(session, "say I am working on it.\npermit Change")
    prompt = server.prompt(session)["prompt_id"]
    yield
    server.post(f"/api/sessions/{session}/prompts/{prompt}", {"option_id": "allow_once"}, expect=200)
    recorded(server, session)


def page_text(number: int, title: str = "") -> str:
    shown = f"export const title{number} = '{title}';\n" if title else ""
    return f"export const name{number} = {number};\n{shown}export const render{number} = () => name{number};\n"


def forty_files(server: LiveServer, folder: Path) -> str:
    """A session whose only turn changes 40 files, in all ways."""
    pages = {f"src/pages/group{number % 4}/page{number}.ts": number for number in range(PAGES)}
    root = make_repository(
        folder,
        {
            "src/auth/tokens.py": TOKENS,
            "src/auth/old_name.py": TOKENS.replace("token", "ticket"),
            "gone.txt": "bye\n",
            **{path: page_text(number) for path, number in pages.items()},
        },
    )
    session = server.create(title="Auth refactor", workdir=str(root))
    with working(server, session):
        (root / "src/auth/tokens.py").write_text(CHANGED_TOKENS)
        (root / "src/auth/old_name.py").rename(root / "src/auth/new_name.py")
        (root / "gone.txt").unlink()
        (root / "notes.md").write_text("A new file with a long line. " * 20 + "\n")
        for path, number in pages.items():
            (root / path).write_text(page_text(number, f"Page {number}"))
    return session


@pytest.mark.parametrize("width", [1280, 390])
def test_a_turn_of_forty_files_is_reviewed_with_the_keyboard(
    server: LiveServer, make_person: Callable[..., Person], tmp_path: Path, width: int
) -> None:
    root = tmp_path / "site"
    session = forty_files(server, root)
    person = make_person(server, width=width, height=900)
    opened(person, session, 1)
    expect(view(person)).to_contain_text("40 files")
    expect(view(person).get_by_text("0 of 40 viewed")).to_be_visible()
    if width > 1000:
        expect(person.log).to_be_visible()
    # The files are in the order of the tree: folders first.
    expect(at_cursor(person)).to_contain_text("new_name.py")
    expect(part(person, "src/auth/new_name.py")).to_contain_text("Renamed, with the same content.")
    presses(person, "n")
    expect(at_cursor(person)).to_contain_text("LIMIT_S = 3600")
    comments(person)
    discard_a_hunk(person, root)
    # Mark files as viewed. Each closes, and the next one is at the cursor.
    presses(person, "v v")
    expect(view(person).get_by_text("2 of 40 viewed")).to_be_visible()
    expect(part(person, "src/auth/tokens.py").locator(".line")).to_have_count(0)
    commit(person, root, session)
    person.page.reload()
    expect(view(person).get_by_text("2 of 40 viewed")).to_be_visible()
    shoot(person, f"changes-reviewed-{width}")


def comments(person: Person) -> None:
    """Three comments, on one line and on several, sent as one message."""
    presses(person, "j Shift+J c")
    form = diffs(person).get_by_role("textbox", name="Comment")
    expect(form).to_be_focused()
    person.page.keyboard.type("Make this a setting.")
    presses(person, "Control+Enter")
    expect(diffs(person)).to_be_focused()
    presses(person, "n c")
    expect(form).to_be_focused()
    person.page.keyboard.type("Compare in constant time.")
    # A reload in the middle of a comment loses nothing.
    person.page.reload()
    expect(form).to_have_value("Compare in constant time.")
    expect(part(person, "src/auth/tokens.py").locator(".line").first).to_be_attached()
    tabs_to(person, form)
    presses(person, "Control+Enter")
    expect(diffs(person).get_by_role("article", name=re.compile("^Draft on line"))).to_have_count(2)
    expect(diffs(person)).to_be_focused()
    presses(person, "n c")
    expect(form).to_be_focused()
    person.page.keyboard.type("Why twice?")
    presses(person, "Control+Enter")
    bar = view(person).get_by_role("form", name="Review")
    expect(bar).to_contain_text("3 comments")
    presses(person, "s")
    expect(bar.get_by_role("textbox")).to_be_focused()
    person.page.keyboard.type("Please:")
    # Not yet: first have another look.
    presses(person, "Escape")
    expect(diffs(person)).to_be_focused()
    presses(person, "s Enter")
    expect(bar).to_have_count(0)
    expect(diffs(person)).to_be_focused()
    server, session = person.server, person.page.url.split("/s/")[1].split("/")[0]
    server.wait_idle(session)
    sent = server.transcript(session)[-1]["message"]["text"]
    assert "Please:" in sent and "src/auth/tokens.py" in sent
    assert all(text in sent for text in ("Make this a setting.", "Compare in constant time.", "Why twice?"))
    assert "LIMIT_S = 900" in sent
    recorded(server, session)
    # The agent did nothing about them.
    expect(diffs(person).get_by_role("article", name=re.compile("^Comment on line")).first).to_contain_text("Open")


def discard_a_hunk(person: Person, root: Path) -> None:
    """In the changes of the whole session: those of a turn stay what they were."""
    tokens = root / "src/auth/tokens.py"
    runs(person, "Changes of the whole session")
    expect(person.page).to_have_url(re.compile("/changes$"))
    expect(diffs(person)).to_be_focused()
    presses(person, "Shift+P Shift+P Shift+P")
    until_at(person, "tokens.py", "Shift+N")
    expect(part(person, "src/auth/tokens.py").locator(".removed").first).to_be_visible()
    presses(person, "n")
    expect(at_cursor(person)).to_contain_text("LIMIT_S = 3600")
    presses(person, "x")
    expect(person.page.get_by_role("dialog", name="Discard this part?")).to_be_visible()
    presses(person, "Enter")
    expect(part(person, "src/auth/tokens.py")).not_to_contain_text("LIMIT_S = 3600")
    assert "LIMIT_S = 3600" in tokens.read_text()
    assert "secret + user" in tokens.read_text()
    presses(person, "u")
    asked = person.page.get_by_role("dialog", name="Undo the last file operation?")
    expect(asked).to_contain_text("Discarded 1 hunk of src/auth/tokens.py.")
    presses(person, "Enter")
    expect(asked).to_have_count(0)
    expect(diffs(person)).to_be_focused()
    eventually(lambda: tokens.read_text() == CHANGED_TOKENS, "the discarded part is back")
    expect(part(person, "src/auth/tokens.py")).to_contain_text("LIMIT_S = 3600")


def until_at(person: Person, text: str, key: str) -> None:
    """Press a key until the cursor is at this text."""
    for _ in range(60):
        expect(at_cursor(person)).to_have_count(1)
        if text in at_cursor(person).inner_text():
            return
        presses(person, key)
    raise AssertionError(f"the cursor never came to {text}")


def commit(person: Person, root: Path, session: str) -> None:
    runs(person, "Commit")
    dialog = person.page.get_by_role("dialog", name="Commit")
    expect(dialog.get_by_role("textbox", name="Commit message")).to_be_focused()
    person.page.keyboard.type("Check tokens once")
    tabs_to(person, dialog.get_by_role("checkbox", name="notes.md"))
    presses(person, "Space Enter")
    done = person.page.get_by_role("dialog", name="Committed")
    expect(done.locator("code")).to_have_text(re.compile("^[0-9a-f]{40}$"))
    assert git(root, "log", "-1", "--format=%s %H").endswith(done.locator("code").inner_text())
    assert git(root, "status", "--porcelain") == "?? notes.md"
    presses(person, "Enter")
    expect(done).to_have_count(0)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1920, 1280, 390])
def test_the_changes_are_accessible_and_fit(
    shared: LiveServer, make_person: Callable[..., Person], tmp_path: Path, width: int, dark: bool
) -> None:
    session = forty_files(shared, tmp_path / "site")
    touch = width < 1000
    person = make_person(shared, width=width, height=900, dark=dark, touch=touch)
    opened(person, session)
    presses(person, "n n j c")
    expect(diffs(person).get_by_role("textbox", name="Comment")).to_be_focused()
    person.page.keyboard.type("A comment that is long enough to take more than one line on a phone, I think.")
    presses(person, "Control+Enter")
    expect(diffs(person).locator("[class^=hljs]").first).to_be_attached()
    shoot(person, f"changes-{width}-{'dark' if dark else 'light'}")
    if width == 1920:
        view(person).get_by_role("button", name="Show side by side").click()
        expect(diffs(person).locator(".pair").first).to_be_visible()
        shoot(person, f"changes-split-{'dark' if dark else 'light'}")
    assert person.page.evaluate("() => document.documentElement.scrollWidth") <= width
    if AXE.exists():
        assert violations(person.page) == []
    if touch:
        view(person).get_by_role("button", name="List of files").click()
        expect(view(person).get_by_role("navigation", name="Changed files")).to_be_visible()
        assert person.page.evaluate(SIDEWAYS) == []
        assert person.page.evaluate(SMALL, [PRESSED, FINGER_PX]) == []
        # There is no room for its button.
        view(person).get_by_role("button", name="More about the changes").tap()
        person.page.get_by_role("menuitem", name="Commit", exact=True).tap()
        expect(person.page.get_by_role("dialog", name="Commit")).to_be_visible()


def test_lines_are_chosen_by_dragging_over_their_numbers(person: Person, tmp_path: Path) -> None:
    root = make_repository(tmp_path / "site", {"a.py": TOKENS})
    session = person.server.create(workdir=str(root))
    with working(person.server, session):
        (root / "a.py").write_text(CHANGED_TOKENS)
    opened(person, session)
    numbers = part(person, "a.py").locator(".number[data-side=new]")
    first, last = numbers.filter(has_text=re.compile("^6$")), numbers.filter(has_text=re.compile("^8$"))
    first.hover()
    person.page.mouse.down()
    last.hover()
    person.page.mouse.up()
    form = diffs(person).get_by_role("form", name="Comment on lines 6 to 8")
    expect(form.get_by_role("textbox")).to_be_focused()
    expect(diffs(person).locator(".chosen")).to_have_count(3)
    # Nothing was written, so another choice moves it.
    numbers.filter(has_text=re.compile("^10$")).click()
    expect(diffs(person).get_by_role("form")).to_have_count(1)
    expect(diffs(person).get_by_role("form", name="Comment on line 10")).to_be_visible()
    presses(person, "Escape")
    expect(diffs(person).get_by_role("form")).to_have_count(0)
    expect(diffs(person)).to_be_focused()


def test_unchanged_lines_are_shown_on_request(person: Person, tmp_path: Path) -> None:
    lines = [f"line {number}\n" for number in range(1, 201)]
    root = make_repository(tmp_path / "site", {"a.txt": "".join(lines)})
    session = person.server.create(workdir=str(root))
    with working(person.server, session):
        lines[99] = "changed\n"
        (root / "a.txt").write_text("".join(lines))
    opened(person, session)
    shown = part(person, "a.txt")
    shown.get_by_role("button", name="Show 20 more lines before the change below").click()
    expect(shown.get_by_text("line 77", exact=True)).to_be_visible()
    shown.get_by_role("button", name="76 unchanged lines").click()
    expect(shown.get_by_text("line 1", exact=True)).to_be_visible()
    # The button that was pressed is gone, but the keys still work.
    expect(diffs(person)).to_be_focused()
    presses(person, "End")
    # Now the end of the file is known.
    shown.get_by_role("button", name="97 unchanged lines").click()
    expect(diffs(person)).to_be_focused()
    presses(person, "End")
    expect(shown.get_by_text("line 200", exact=True)).to_be_visible()
    expect(shown.get_by_role("button", name="unchanged line")).to_have_count(0)


def test_a_tool_leads_to_its_change_and_back(person: Person, tmp_path: Path) -> None:
    root = make_repository(tmp_path / "site", {"a.txt": "one\n", "b.txt": "one\n"})
    session = person.server.create(workdir=str(root))
    person.server.turn(session, "say Both.\nedit a.txt\nedit b.txt\ntool Bash ls\ntool Bash pwd")
    recorded(person.server, session)
    person.open(session)
    expect(person.log.get_by_role("link", name="2 files changed")).to_be_visible()
    person.log.get_by_role("button", name="4 tools").click()
    person.log.get_by_role("link", name="Show b.txt in the changes of turn 1").click()
    expect(person.page).to_have_url(re.compile("/changes/1"))
    expect(at_cursor(person)).to_contain_text("b.txt")
    # Closed again, the tool is found from the other side.
    person.log.get_by_role("button", name="4 tools").click()
    expect(person.log.get_by_role("button", name="Edited b.txt")).to_have_count(0)
    diffs(person).focus()
    presses(person, "t")
    expect(person.log.locator("[aria-current=location]")).to_contain_text("Edited b.txt")
    expect(view(person)).to_be_visible()


def test_without_a_repository_the_agents_own_edits_are_shown(person: Person, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    session = person.server.create(workdir=str(folder))
    person.server.send(session, "edit a.txt\nedit a.txt\npropose denied.txt")
    prompt = person.server.prompt(session)["prompt_id"]
    person.server.post(f"/api/sessions/{session}/prompts/{prompt}", {"option_id": "reject_once"}, expect=200)
    person.server.wait_idle(session)
    opened(person, session)
    expect(view(person).get_by_role("list", name="Notes")).to_contain_text("not in a git repository")
    expect(view(person)).to_contain_text("1 file")
    expect(part(person, "a.txt")).to_contain_text("rehearsed 2")
    expect(diffs(person)).not_to_contain_text("denied.txt")
    # Nothing is offered that can't be done.
    expect(view(person).get_by_role("button", name="Commit")).to_have_count(0)
    expect(view(person).get_by_role("button", name="Discard")).to_have_count(0)
    presses(person, "Escape d")
    files = person.page.get_by_role("complementary").get_by_role("link", name="a.txt")
    expect(files.first).to_contain_text("+2")


def test_a_session_that_changed_nothing_says_so(person: Person, tmp_path: Path) -> None:
    session = person.server.create(workdir=str(make_repository(tmp_path / "site")))
    person.server.turn(session, "say Hello")
    recorded(person.server, session)
    person.go(f"/s/{session}/changes")
    expect(view(person)).to_contain_text("In this session, no files changed.")
    expect(view(person)).not_to_contain_text(re.compile(r"\+\d"))


def test_what_an_agent_changes_appears_while_it_works(person: Person, tmp_path: Path) -> None:
    server, root = person.server, make_repository(tmp_path / "site")
    session = server.create(workdir=str(root))
    server.turn(session, "edit a.txt")
    recorded(server, session)
    opened(person, session)
    server.send(session, "permit First\nedit b.txt\npermit Second")
    first = server.prompt(session)["prompt_id"]
    expect(view(person).get_by_role("list", name="Notes")).to_contain_text("running")
    expect(view(person).get_by_role("button", name="Commit")).to_be_disabled()
    expect(view(person)).to_contain_text("1 file")
    presses(person, "n x")
    expect(person.page.get_by_text("Changes can't be discarded now. A turn is running.")).to_be_visible()
    answer = f"/api/sessions/{session}/prompts/"
    server.post(answer + first, {"option_id": "allow_once"}, expect=200)
    expect(part(person, "b.txt")).to_contain_text("rehearsed 1")
    expect(view(person)).to_contain_text("2 files")
    # The turn still waits for its second answer.
    assert server.session(session)["state"] != "idle"
    expect(view(person).get_by_role("list", name="Notes")).to_contain_text("running")
    eventually(lambda: server.prompt(session)["prompt_id"] != first, "the second question is asked")
    server.post(answer + server.prompt(session)["prompt_id"], {"option_id": "allow_once"}, expect=200)
    expect(view(person).get_by_role("button", name="Commit")).to_be_enabled()
    expect(view(person).get_by_role("list", name="Notes")).to_have_count(0)


# Speed ----------------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_twenty_thousand_lines_open_in_a_second_and_scroll_smoothly(
    server: LiveServer, browser: Browser, make_person: Callable[..., Person], tmp_path: Path
) -> None:
    lines = [f"def function_{number}(a, b):  # {'x' * (number % 70)}\n" for number in range(MANY_LINES)]
    root = make_repository(tmp_path / "big", {"big.py": "".join(lines)})
    session = server.create(workdir=str(root))
    with working(server, session):
        (root / "big.py").write_text("".join(line.replace("a, b", "a, c") for line in lines))
    person = make_person(server)
    slowed = person.context.new_cdp_session(person.page)
    best = Opening(math.inf, math.inf, math.inf)
    for _ in range(ATTEMPTS):
        best = Opening(*map(min, best, attempt_to_open(browser, person, session, slowed)))
        if best.took_ms < OPENS_MS and best.longest_ms < LONGEST_TASK_MS and best.blank <= MOST_BLANK:
            break
    assert best.took_ms < OPENS_MS
    assert best.longest_ms < LONGEST_TASK_MS
    assert best.blank <= MOST_BLANK
    expect(part(person, "big.py").get_by_text(str(MANY_LINES), exact=True).first).to_be_attached()


class Opening(NamedTuple):
    took_ms: float
    """Until lines are shown, at full speed."""
    longest_ms: float
    """The longest task while a slow computer opens the diff and scrolls through it."""
    blank: float
    """Frames without a line, while scrolling."""


def attempt_to_open(browser: Browser, person: Person, session: str, slowed: CDPSession) -> Opening:
    took: list[float] = []
    for slowdown in (1, SLOWDOWN):
        person.open(session)
        expect(person.log.get_by_role("link", name="1 file changed")).to_be_visible()
        person.press("Escape")
        if slowdown > 1:
            browser.start_tracing(page=person.page, categories=["toplevel"])
        slowed.send("Emulation.setCPUThrottlingRate", {"rate": slowdown})
        took.append(person.page.evaluate(OPENED))
    blank: int = person.page.evaluate(SCROLLED)
    slowed.send("Emulation.setCPUThrottlingRate", {"rate": 1})
    longest = longest_task_ms(browser.stop_tracing())
    print(f"opened in {took[0]:.0f} ms; {SLOWDOWN}x slower: longest task {longest:.0f} ms, {blank} blank frames")
    assert diffs(person).locator(".line").count() < 400, "only what is in sight is drawn"
    return Opening(took[0], longest, blank)


def longest_task_ms(trace: bytes) -> float:
    """The CPU time of the longest task on a page's main thread."""
    events = json.loads(trace)["traceEvents"]
    names = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    pages = {thread for thread, name in names.items() if name == "CrRendererMain"}
    tasks = [one["tdur"] / 1000 for one in events if "tdur" in one and (one["pid"], one["tid"]) in pages]
    assert len(tasks) > 100, "the trace has the page's tasks"
    return float(max(tasks))


def test_a_rewritten_file_is_counted_fast_and_correctly(person: Person, tmp_path: Path) -> None:
    """Without a repository, the page compares the texts."""
    session = person.server.create(workdir=str(tmp_path))
    person.server.turn(session, "edit one.txt")
    person.server.turn(session, "say Done")
    found: dict[str, Any] = {}

    def rewritten(route: Any) -> None:
        found.update(route.fetch().json())
        old = "".join(f"a{number}\n" for number in range(20_000))
        new = "".join(f"{'b' if number % 3 else 'a'}{number}\n" for number in range(20_000))
        for turn in found["turns"]:
            for each in turn["parts"]:
                if each["type"] == "tool":
                    each["diff"] = [{"path": "one.txt", "old_text": old, "new_text": new}]
        route.fulfill(json=found)

    person.page.route(re.compile("/transcript"), rewritten)
    person.open(session)
    expect(person.log.get_by_role("link", name="Show one.txt")).to_have_text(re.compile("^.13,333 .13,333$"))
