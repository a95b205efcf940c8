"""Choosing a folder for a new session: completion, recent folders and projects, branch and changes, worktrees."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Route, expect

from tests.harness import LiveServer
from tests.page.conftest import ARTEFACTS
from tests.page.person import Person, hold
from tests.page.repositories import make_repository
from tests.page.test_views import AXE, FINGER_PX, violations

pytestmark = pytest.mark.needs("git")


def field(person: Person) -> Locator:
    return person.page.get_by_role("combobox", name="Folder")


def options(person: Person) -> Locator:
    return person.page.get_by_role("option")


def state(person: Person) -> Locator:
    return person.page.locator("#folder-state")


def started(person: Person) -> dict[str, Any]:
    """The session that the page shows."""
    expect(person.page).to_have_url(re.compile("/s/"))
    session: dict[str, Any] = person.server.session(person.page.url.rsplit("/", 1)[-1])
    return session


def test_a_path_is_completed_with_tab_like_in_a_shell(person: Person, tmp_path: Path) -> None:
    for name in ("sources/site", "sources/shop", "other", ".hidden"):
        (tmp_path / name).mkdir(parents=True)
    person.go("/new")
    field(person).press_sequentially(f"{tmp_path}/s")
    field(person).press("Tab")
    expect(field(person)).to_have_value(f"{tmp_path}/sources/")
    expect(options(person)).to_have_text(["shop", "site"])
    field(person).press("ArrowDown")
    expect(options(person).first).to_have_attribute("aria-selected", "true")
    field(person).press("ArrowUp")
    expect(options(person).last).to_have_attribute("aria-selected", "true")
    field(person).press("Enter")
    expect(field(person)).to_have_value(f"{tmp_path}/sources/site/")
    expect(field(person)).to_have_attribute("aria-expanded", "false")
    field(person).press("Tab")
    expect(field(person)).not_to_be_focused()
    expect(field(person)).to_have_value(f"{tmp_path}/sources/site")
    person.send("say hi")
    assert started(person)["workdir"] == str(tmp_path / "sources" / "site")


def test_tab_waits_for_a_slow_server(person: Person, tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    person.go("/new")
    held = hold(person, re.compile(r"/api/directories\?.*slo&"))
    with person.page.expect_request(re.compile(r"path=.*slo&")):
        field(person).fill(f"{tmp_path}/slo")
    field(person).press("Tab")
    expect(field(person)).to_be_focused()
    held[0].continue_()
    expect(field(person)).to_have_value(f"{tmp_path}/slow/")


def test_escape_closes_the_list_and_keeps_the_typed_path(person: Person, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    person.go("/new")
    field(person).press_sequentially(f"{tmp_path}/")
    expect(options(person)).to_have_text(["site"])
    field(person).press("Escape")
    expect(field(person)).to_have_attribute("aria-expanded", "false")
    expect(field(person)).to_have_value(str(tmp_path))
    expect(field(person)).to_be_focused()
    field(person).press("ArrowDown")
    expect(field(person)).to_have_attribute("aria-expanded", "true")


def test_projects_and_recent_folders_come_first_with_branch_and_changes(
    server: LiveServer, make_person: Callable[..., Person], tmp_path: Path
) -> None:
    site = make_repository(tmp_path / "site")
    (site / "new.txt").write_text("new\n")
    (tmp_path / "notes").mkdir()
    server.post("/api/projects", {"name": "The Site", "path": str(site)}, expect=201)
    server.turn(server.create(workdir=str(tmp_path / "notes")), "say hi")
    person = make_person(server)
    person.go("/new")
    field(person).click()
    expect(options(person).nth(0)).to_contain_text(re.compile(r"The Site.*trunk.*1 changed file"))
    expect(options(person).nth(1)).to_contain_text(re.compile(r"notes.*1 session"))
    expect(options(person).nth(1)).not_to_contain_text("changed")
    ARTEFACTS.mkdir(exist_ok=True)
    person.page.screenshot(path=ARTEFACTS / "folders-1280-light.png")
    assert not AXE.exists() or not violations(person.page)
    field(person).press_sequentially("SITE")
    expect(options(person)).to_have_count(1)
    options(person).click()
    expect(person.page.get_by_role("button", name="Project: The Site")).to_be_visible()
    expect(state(person)).to_contain_text("1 changed file")
    person.send("say hi")
    session = started(person)
    assert (session["project"], session["workdir"], session["worktree"]) == ("the-site", str(site), None)
    person.go("/new")
    expect(field(person)).to_have_value(str(site))


def test_a_folder_in_a_project_belongs_to_it_unless_another_choice_is_made(person: Person, tmp_path: Path) -> None:
    (tmp_path / "shop" / "src").mkdir(parents=True)
    project = person.server.post("/api/projects", {"name": "Shop", "path": str(tmp_path / "shop")}, expect=201)["id"]
    person.go("/new")
    field(person).fill(str(tmp_path / "shop" / "src"))
    expect(person.page.get_by_role("button", name="Project: Shop")).to_be_visible()
    person.send("say inside")
    session = started(person)
    assert (session["project"], session["workdir"]) == (project, str(tmp_path / "shop" / "src"))
    person.go("/new")
    field(person).fill(str(tmp_path / "shop" / "src"))
    person.page.get_by_role("button", name="Project: Shop").click()
    person.page.get_by_role("menuitemradio", name="No project").click()
    person.send("say alone")
    session = started(person)
    assert (session["project"], session["workdir"]) == (None, str(tmp_path / "shop" / "src"))
    person.go("/new")
    expect(person.page.get_by_role("button", name="Project: Shop")).to_be_visible()
    expect(state(person)).to_contain_text("Not a git repository")
    person.page.get_by_role("button", name="Clear").click()
    expect(person.page.get_by_role("button", name="Project: No project")).to_be_visible()
    person.send("say anywhere")
    assert "/workspaces/" in started(person)["workdir"]


def test_a_folder_belongs_to_its_project_before_the_server_has_described_it(person: Person, tmp_path: Path) -> None:
    for name in ("shop", "other"):
        (tmp_path / name).mkdir()
    body = {"name": "Shop", "path": str(tmp_path / "shop"), "workspace": "directory"}
    project = person.server.post("/api/projects", body, expect=201)["id"]
    person.go("/new")
    field(person).fill(str(tmp_path / "shop"))
    expect(state(person)).to_contain_text("Not a git repository")
    person.page.route("**/api/directory?*", lambda route: None)
    field(person).fill(str(tmp_path / "other"))
    person.send("say outside")
    session = started(person)
    assert (session["project"], session["workdir"]) == (None, str(tmp_path / "other"))
    person.go("/new")
    field(person).fill(str(tmp_path / "shop"))
    person.send("say inside")
    session = started(person)
    assert (session["project"], session["workdir"]) == (project, str(tmp_path / "shop"))


def test_the_state_of_a_folder_is_described_and_nothing_unknown_is_shown(person: Person, tmp_path: Path) -> None:
    site = make_repository(tmp_path / "site")
    person.go("/new")
    for path, words in (
        (site, "No uncommitted changes"),
        (tmp_path, "Not a git repository"),
        (tmp_path / "none", "There is no such folder on the server."),
        (person.server.data, "This is Perdure's own data."),
    ):
        field(person).fill(str(path))
        expect(state(person)).to_contain_text(words)

    def without_figures(route: Route) -> None:
        answer = route.fetch().json()
        answer["git"] = {**answer["git"], "dirty": None, "reason": "git did not answer in time."}
        route.fulfill(json=answer)

    person.page.route("**/api/directory?*", without_figures)
    field(person).fill(str(site))
    expect(state(person)).to_contain_text("git did not answer in time.")
    expect(state(person)).to_contain_text("trunk")
    expect(state(person)).not_to_contain_text(re.compile("changed|uncommitted"))


def test_a_session_can_get_its_own_worktree(person: Person, tmp_path: Path) -> None:
    site = make_repository(tmp_path / "site")
    (site / "a.txt").write_text("changed\n")
    person.go("/new")
    field(person).fill(str(site))
    expect(person.page.get_by_role("radio", name="Work in this folder")).to_be_checked()
    own = person.page.get_by_role("radio", name="Own worktree and branch")
    expect(own).to_have_accessible_name(re.compile("from the last commit on trunk, without the 1 changed file"))
    own.check()
    person.send("edit notes.md")
    session = started(person)
    person.is_idle()
    assert session["worktree"]["repository"] == str(site)
    assert session["worktree"]["base"] == "trunk"
    assert not (site / "notes.md").exists()
    expect(person.header).to_contain_text("site")
    field_less = tmp_path / "plain"
    field_less.mkdir()
    person.go("/new")
    field(person).fill(str(field_less))
    expect(state(person)).to_contain_text("Not a git repository")
    expect(person.page.get_by_role("radio")).to_have_count(0)


def test_a_project_decides_where_its_sessions_work(person: Person, tmp_path: Path) -> None:
    site = make_repository(tmp_path / "garden")
    person.server.post("/api/projects", {"name": "Garden", "path": str(site)}, expect=201)
    person.go("/settings/projects")
    row = person.page.get_by_role("listitem").filter(has_text=str(site))
    row.get_by_role("button", name="Edit").click()
    row.get_by_label("Sessions work in").select_option("A git worktree and branch of their own")
    row.get_by_role("button", name="Save").click()
    expect(person.page.get_by_text("Saved.")).to_be_visible()
    row.get_by_role("link", name="New session").click()
    expect(person.page.get_by_role("radio", name="Own worktree and branch")).to_be_checked()
    person.send("say hi")
    assert started(person)["worktree"]["repository"] == str(site)
    person.go("/new?project=garden")
    person.page.get_by_role("radio", name="Work in this folder").check()
    person.send("say hi")
    assert started(person)["worktree"] is None


def test_a_new_project_shows_the_state_of_its_folder(person: Person, tmp_path: Path) -> None:
    site = make_repository(tmp_path / "site")
    person.go("/settings/projects")
    person.page.get_by_role("button", name="New project").click()
    person.page.get_by_label("Name").fill("Meadow")
    person.page.get_by_label("Directory on the server").fill(str(site))
    expect(state(person)).to_contain_text("trunk")
    person.page.get_by_role("button", name="Create project").click()
    expect(person.page.get_by_role("heading", name="Meadow")).to_be_visible()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_folders_are_chosen_by_touch_on_a_phone(
    shared: LiveServer, make_person: Callable[..., Person], tmp_path: Path, dark: bool
) -> None:
    make_repository(tmp_path / "code" / "site")
    (tmp_path / "code" / "a-folder-with-a-long-name-that-does-not-fit-on-the-screen-of-a-phone").mkdir()
    person = make_person(shared, width=390, height=844, touch=True, dark=dark)
    person.go("/new")
    field(person).tap()
    field(person).fill(f"{tmp_path}/")
    options(person).filter(has_text="code").tap()
    expect(field(person)).to_have_value(f"{tmp_path}/code/")
    # Until the server answers, the list still has the folders beside it.
    expect(options(person)).to_have_text([re.compile("a-folder-with-a-long-name"), re.compile("site")])
    expect(field(person)).to_have_attribute("aria-expanded", "true")
    for box in options(person).evaluate_all("(all) => all.map((one) => one.getBoundingClientRect().toJSON())"):
        assert box["height"] >= FINGER_PX and box["right"] <= 390
    assert not AXE.exists() or not violations(person.page)
    person.page.screenshot(path=ARTEFACTS / f"folders-390-{'dark' if dark else 'light'}.png")
    options(person).filter(has_text="site").tap()
    expect(field(person)).to_have_attribute("aria-expanded", "false")
    person.page.get_by_role("radio", name="Own worktree and branch").tap()
    expect(state(person)).to_contain_text("trunk")
    assert not AXE.exists() or not violations(person.page)
    person.page.screenshot(path=ARTEFACTS / f"folder-chosen-390-{'dark' if dark else 'light'}.png")
