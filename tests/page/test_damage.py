"""A damaged session: the page reports it, and shows all other sessions."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.harness import NO_LIMITS, LiveServer, eventually
from tests.page.person import Person


@pytest.fixture
def half_damaged(tmp_path: Path) -> Iterator[tuple[LiveServer, str, str]]:
    """A server with one damaged and one readable session."""
    server = LiveServer(tmp_path / "data", NO_LIMITS).start()
    broken, sound = server.create(title="the broken one"), server.create(title="the sound one")
    server.turn(sound, "say hello")
    server.kill()
    with closing(sqlite3.connect(server.data / "perdure.db", isolation_level=None)) as database:
        database.execute("UPDATE sessions SET machine_state = X'7B00' WHERE session_id = ?", (broken,))
    server.restart()
    eventually(lambda: server.get("/api/health")["damaged"] == 1, "the damage is found")
    yield server, broken, sound
    server.http.delete(f"/api/sessions/{broken}?purge=true").raise_for_status()
    server.finish()


def test_the_page_names_a_damaged_session_and_shows_the_others(
    half_damaged: tuple[LiveServer, str, str], make_person: Callable[..., Person]
) -> None:
    server, broken, sound = half_damaged
    person = make_person(server)
    expect(person.page.get_by_text("is damaged and was set aside")).to_be_visible()
    person.go(f"/s/{sound}")
    expect(person.log).to_contain_text("hello")
    person.go(f"/s/{broken}")
    expect(person.page.get_by_role("heading", name="This session is damaged")).to_be_visible()
    person.go("/settings")
    expect(person.page.get_by_text(f"session {broken}")).to_be_visible()
