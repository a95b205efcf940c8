"""A new session in a project with a kickoff starts with it, and the page previews what will be sent."""

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, expect

from tests.page.conftest import ARTEFACTS
from tests.page.person import Person


def make_project(person: Person, folder: Path, name: str, kickoff: str | None) -> str:
    path = folder / name
    path.mkdir()
    body: dict[str, Any] = {"name": name, "path": str(path), "agent": "rehearsal", "kickoff": kickoff}
    return str(person.server.post("/api/projects", body, expect=201)["id"])


def started(person: Person) -> str:
    """The text of the new session's first message."""
    expect(person.page).to_have_url(re.compile("/s/"))
    session = person.page.url.rsplit("/", 1)[-1]
    person.server.wait_idle(session)
    return str(person.server.transcript(session)[0]["message"]["text"])


def send(person: Person) -> Locator:
    return person.page.get_by_role("button", name="Send")


def note(person: Person) -> Locator:
    return person.page.get_by_role("note", name="Kickoff")


def test_a_kickoff_is_sent_without_any_text(person: Person, tmp_path: Path) -> None:
    project = make_project(person, tmp_path, "alone", "say Kickoff of {project}")
    person.go(f"/new?project={project}")
    expect(note(person)).to_contain_text("say Kickoff of {project}")
    send(person).click()
    assert started(person) == "say Kickoff of alone"
    person.sees("Kickoff of alone")


def test_the_text_is_inserted_into_the_kickoff(person: Person, tmp_path: Path) -> None:
    project = make_project(person, tmp_path, "placed", "say In {project}: {message}")
    person.go(f"/new?project={project}")
    expect(note(person)).to_contain_text("{message}")
    ARTEFACTS.mkdir(exist_ok=True)
    person.page.screenshot(path=ARTEFACTS / "new-session-kickoff.png")
    person.send("add tests")
    assert started(person) == "say In placed: add tests"


def test_text_is_sent_instead_of_a_kickoff_without_placeholder(person: Person, tmp_path: Path) -> None:
    project = make_project(person, tmp_path, "instead", "say always the same")
    person.go(f"/new?project={project}")
    expect(note(person)).to_contain_text("say always the same")
    person.composer.fill("say mine")
    expect(note(person)).to_contain_text("instead of")
    person.composer.press("Enter")
    assert started(person) == "say mine"


def test_the_kickoff_can_be_left_out(person: Person, tmp_path: Path) -> None:
    project = make_project(person, tmp_path, "without", "say In {project}: {message}")
    person.go(f"/new?project={project}")
    note(person).get_by_role("checkbox", name="Start with the project's kickoff").uncheck()
    expect(send(person)).to_be_disabled()
    person.send("say plain")
    assert started(person) == "say plain"


def test_a_project_without_a_kickoff_needs_a_message(person: Person, tmp_path: Path) -> None:
    project = make_project(person, tmp_path, "none", None)
    person.go(f"/new?project={project}")
    expect(person.composer).to_be_visible()
    expect(note(person)).to_have_count(0)
    expect(send(person)).to_be_disabled()
