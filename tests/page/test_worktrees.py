"""Sessions with their own worktree: what the header shows, merging, conflicts, and archiving."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Route, expect

from tests.harness import LiveServer, eventually
from tests.page.conftest import ARTEFACTS
from tests.page.person import Person
from tests.page.repositories import git, make_repository, recorded
from tests.page.test_views import AXE, violations

pytestmark = pytest.mark.needs("git")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "site", {"a.txt": "one\n", "b.txt": "one\n"})


@pytest.fixture
def session(shared: LiveServer, site: Path) -> str:
    return shared.create(workdir=str(site), workspace="worktree", title="Fix the form")


def own_folder(person: Person, session: str) -> Path:
    return Path(person.server.session(session)["worktree"]["path"])


def commit(folder: Path, name: str, text: str, subject: str) -> None:
    (folder / name).write_text(text)
    git(folder, "add", name)
    git(folder, "commit", "-q", "-m", subject)


def chip(person: Person) -> Locator:
    return person.header.get_by_role("button", name=re.compile(r"^Merge\."))


def merge_dialog(person: Person, session: str) -> Locator:
    """The dialog, once it shows what would be merged."""
    person.open(session)
    chip(person).click()
    dialog = person.page.get_by_role("dialog")
    expect(dialog.get_by_text(re.compile(r"has \d+ commits? that trunk does not have"))).to_be_visible()
    return dialog


def test_the_header_shows_branch_commits_and_uncommitted_files(person: Person, session: str, site: Path) -> None:
    own = own_folder(person, session)
    commit(own, "a.txt", "two\n", "Second")
    commit(site, "b.txt", "two\n", "Other")
    commit(site, "b.txt", "three\n", "Another")
    person.server.turn(session, "edit notes.md")
    recorded(person.server, session)
    person.open(session)
    expect(chip(person)).to_contain_text(re.compile(r"fix.*→ trunk.*↑1.*↓2.*±1"))
    said = r"from trunk\. 1 commit that trunk does not have\. 2 commits behind\. 1 file not committed\."
    expect(chip(person)).to_have_accessible_name(re.compile(said))
    expect(person.header).to_contain_text("site")


def test_commits_are_merged_into_the_branch_that_they_came_from(person: Person, session: str, site: Path) -> None:
    commit(own_folder(person, session), "a.txt", "two\n", "Check the token once")
    commit(site, "b.txt", "two\n", "Other")
    dialog = merge_dialog(person, session)
    expect(chip(person)).to_contain_text("↑1")
    expect(dialog.get_by_role("list", name="1 commit")).to_contain_text("Check the token once")
    expect(dialog.get_by_role("list", name="1 changed file")).to_contain_text("a.txt")
    dialog.get_by_role("button", name="Merge into trunk").click()
    expect(person.page.get_by_role("dialog", name="Merged")).to_be_visible()
    assert (site / "a.txt").read_text() == "two\n"
    assert len(git(site, "rev-list", "--parents", "-1", "HEAD").split()) == 3, "a merge commit"
    person.page.get_by_role("dialog").get_by_role("button", name="Close").last.click()
    expect(chip(person)).not_to_contain_text("↑")


def test_commits_are_rebased_so_that_the_history_stays_a_line(person: Person, session: str, site: Path) -> None:
    commit(own_folder(person, session), "a.txt", "two\n", "Second")
    commit(site, "b.txt", "two\n", "Other")
    dialog = merge_dialog(person, session)
    dialog.get_by_role("radio", name="Rebase").check()
    dialog.get_by_role("button", name="Rebase into trunk").click()
    expect(person.page.get_by_role("dialog", name="Merged")).to_be_visible()
    assert git(site, "log", "--format=%s").splitlines() == ["Second", "Other", "First"]


def test_uncommitted_files_are_committed_first(person: Person, session: str, site: Path) -> None:
    person.server.turn(session, "edit notes.md\nedit a.txt")
    recorded(person.server, session)
    dialog = merge_dialog(person, session)
    message = dialog.get_by_label(re.compile("2 files are not committed. Commit them first"))
    expect(message).to_have_value("Fix the form")
    expect(dialog.get_by_role("list", name="Not committed")).to_contain_text("notes.md")
    message.fill("Write notes\n\nAnd a line.")
    dialog.get_by_role("button", name="Commit and merge into trunk").click()
    expect(person.page.get_by_role("dialog", name="Merged")).to_be_visible()
    assert (site / "notes.md").exists()
    assert "Write notes" in git(site, "log", "--format=%s").splitlines()


def test_a_conflict_changes_nothing_and_the_agent_can_be_asked_to_resolve_it(
    person: Person, session: str, site: Path
) -> None:
    own = own_folder(person, session)
    commit(own, "a.txt", "theirs\n", "Theirs")
    commit(site, "a.txt", "ours\n", "Ours")
    dialog = merge_dialog(person, session)
    alert = dialog.get_by_role("alert")
    expect(alert).to_contain_text("trunk and the session changed the same lines of 1 file. Nothing was changed.")
    expect(alert.get_by_role("list", name="In conflict")).to_have_text("a.txt")
    expect(dialog.get_by_role("button", name="Merge into trunk")).to_be_disabled()
    alert.get_by_role("button", name="Write this message to the agent").click()
    expect(person.composer).to_have_value(re.compile("^Merge trunk into .* and resolve the conflicts in a.txt."))
    assert (site / "a.txt").read_text() == "ours\n"
    git(own, "merge", "-q", "-X", "ours", "trunk")
    dialog = merge_dialog(person, session)
    expect(dialog.get_by_role("alert")).to_have_count(0)
    dialog.get_by_role("button", name="Merge into trunk").click()
    expect(person.page.get_by_role("dialog", name="Merged")).to_be_visible()
    assert (site / "a.txt").read_text() == "theirs\n"


def test_the_preview_has_the_conflicts_of_files_that_are_not_committed(
    person: Person, session: str, site: Path
) -> None:
    own = own_folder(person, session)
    (own / "a.txt").write_text("theirs\n")
    commit(site, "a.txt", "ours\n", "Ours")
    dialog = merge_dialog(person, session)
    expect(dialog.get_by_role("alert").get_by_role("list", name="In conflict")).to_have_text("a.txt")
    expect(dialog.get_by_role("button", name="Commit and merge into trunk")).to_be_disabled()
    # The commit that would be made is shown with its message.
    expect(dialog.get_by_role("list", name="1 commit")).to_contain_text("Fix the form")
    dialog.get_by_role("textbox").fill("Theirs")
    dialog.get_by_role("textbox").blur()
    expect(dialog.get_by_role("list", name="1 commit")).to_contain_text("Theirs")
    assert git(own, "log", "-1", "--format=%s") == "First" and (site / "a.txt").read_text() == "ours\n"


def test_local_changes_in_the_way_stop_it_and_stay(person: Person, session: str, site: Path) -> None:
    commit(own_folder(person, session), "a.txt", "two\n", "Second")
    (site / "a.txt").write_text("mine\n")
    dialog = merge_dialog(person, session)
    expect(dialog.get_by_text(re.compile("has local changes in files that the merge changes"))).to_be_visible()
    expect(dialog.get_by_role("button", name="Merge into trunk")).to_be_disabled()
    assert (site / "a.txt").read_text() == "mine\n"
    assert git(site, "log", "--format=%s") == "First"


def test_why_a_merge_was_refused_stays_until_another_way_is_chosen(person: Person, session: str) -> None:
    commit(own_folder(person, session), "a.txt", "two\n", "Second")
    dialog = merge_dialog(person, session)
    refusal = {"error": "Session s2 is working in the repository. Wait for its turn to end.", "code": "turn_active"}
    previews: list[Route] = []

    def refuse(route: Route) -> None:
        if (route.request.post_data_json or {}).get("preview"):
            previews.append(route)
            route.continue_()
        else:
            route.fulfill(status=409, json=refusal)

    person.page.route("**/merge", refuse)
    with person.page.expect_response(lambda answer: answer.url.endswith("/merge") and answer.ok):
        dialog.get_by_role("button", name="Merge into trunk").click()
    expect(dialog.get_by_role("button", name="Merge into trunk")).to_be_enabled()
    assert len(previews) == 1, "it was looked at again"
    expect(dialog.get_by_role("alert")).to_have_text(refusal["error"])
    dialog.get_by_role("radio", name="Rebase").check()
    expect(dialog.get_by_role("alert")).to_have_count(0)


def test_nothing_to_merge_is_said(person: Person, session: str) -> None:
    dialog = merge_dialog(person, session)
    expect(dialog).to_contain_text("There is nothing to merge: trunk has everything.")
    expect(dialog.get_by_role("button", name="Merge into trunk")).to_be_disabled()
    person.page.keyboard.press("Escape")
    person.menu("Merge into trunk")
    expect(person.page.get_by_role("dialog")).to_be_visible()


def test_archiving_removes_the_worktree_unless_work_would_be_lost(
    server: LiveServer, make_person: Callable[..., Person], tmp_path: Path
) -> None:
    person = make_person(server)
    site = make_repository(tmp_path / "site")
    merged, unmerged = (server.create(workdir=str(site), workspace="worktree", title=one) for one in ("one", "two"))
    commit(own_folder(person, merged), "a.txt", "two\n", "Second")
    commit(own_folder(person, unmerged), "c.txt", "three\n", "Third")
    dialog = merge_dialog(person, merged)
    dialog.get_by_role("button", name="Merge into trunk").click()
    folder = own_folder(person, merged)
    person.page.get_by_role("dialog", name="Merged").get_by_role("button", name="Archive the session").click()
    expect(person.page.get_by_text(re.compile("^Removed the worktree"))).to_be_visible()
    eventually(lambda: not folder.exists(), "the worktree is removed")
    person.open(unmerged)
    person.menu("Archive")
    expect(person.page.get_by_text(re.compile("was kept"))).to_be_visible()
    assert (own_folder(person, unmerged) / "c.txt").exists()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_header_and_dialog_are_accessible_and_fit(
    shared: LiveServer, site: Path, make_person: Callable[..., Person], width: int, dark: bool
) -> None:
    title = "Rework how the form checks what people write into its many fields"
    session = shared.create(workdir=str(site), workspace="worktree", title=title)
    person = make_person(shared, width=width, height=844, dark=dark, touch=width < 1000)
    own = own_folder(person, session)
    for number in range(8):
        commit(own, "a.txt", f"{number}\n", f"Change the line for the {number}th time, and explain why at some length")
    commit(site, "a.txt", "ours\n", "Ours")
    shared.turn(session, "edit notes.md")
    recorded(shared, session)
    suffix = f"{width}-{'dark' if dark else 'light'}"
    dialog = merge_dialog(person, session)
    expect(dialog.get_by_role("alert")).to_be_visible()
    assert person.page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert not AXE.exists() or not violations(person.page)
    ARTEFACTS.mkdir(exist_ok=True)
    person.page.screenshot(path=ARTEFACTS / f"merge-{suffix}.png")
    person.page.keyboard.press("Escape")
    expect(chip(person)).to_be_focused()
    assert not AXE.exists() or not violations(person.page)
    person.page.screenshot(path=ARTEFACTS / f"worktree-{suffix}.png")
