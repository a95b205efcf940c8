"""Signing in and out with a real browser: what it sends to other servers on the same host grants no access."""

from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import expect

from tests.harness import LiveServer
from tests.page.neighbour import neighbour
from tests.page.person import Person

KEPT = "() => localStorage.getItem('perdure.page-key')"


def sees_sign_in(person: Person) -> None:
    expect(person.page.get_by_role("button", name="Sign in")).to_be_visible()


def test_cookies_sent_to_another_port_grant_no_access(person: Person) -> None:
    session = person.start("say secret")
    with neighbour() as other:
        page = person.context.new_page()
        page.goto(other.url)
        expect(page).to_have_title("Neighbour")
    sent = "; ".join(other.cookies)
    assert "perdure_login" in sent, "a browser sends a host's cookies to all of its ports"
    assert page.evaluate(KEPT) is None, "what an origin keeps it reads alone"
    with httpx2.Client(base_url=person.server.url, headers={"cookie": sent}, trust_env=False) as thief:
        for path in ("/api/sessions", f"/api/sessions/{session}", "/api/events?all=true", "/api/logins"):
            assert thief.get(path).status_code == 401
        assert thief.post("/api/login-links").status_code == 401


def test_a_browser_without_its_key_signs_in_again_and_continues(person: Person) -> None:
    """Like a browser that signed in before keys existed."""
    session = person.start("say hello")
    person.is_idle()
    person.page.evaluate("() => localStorage.removeItem('perdure.page-key')")
    person.page.close()
    person.page = person.new_tab(f"/s/{session}")
    sees_sign_in(person)
    expect(person.page.get_by_text("perdure login")).to_be_visible()
    person.page.get_by_label("Link or token").fill(person.server.token)
    person.page.get_by_role("button", name="Sign in").click()
    person.sees("hello")
    person.send("say again")
    person.sees("again")


def test_signing_out_or_in_applies_to_all_tabs(person: Person) -> None:
    session = person.start("say hello")
    other = person.new_tab(f"/s/{session}")
    expect(other.get_by_role("log", name="Conversation")).to_contain_text("hello")
    person.go("/settings")
    person.page.get_by_role("listitem").filter(has_text="This browser").get_by_role("button", name="Sign out").click()
    sees_sign_in(person)
    assert person.page.evaluate(KEPT) is None
    expect(other.get_by_role("button", name="Sign in")).to_be_visible()
    person.page.get_by_label("Link or token").fill(person.server.token)
    person.page.get_by_role("button", name="Sign in").click()
    expect(person.page.get_by_role("navigation", name="Sessions")).to_be_visible()
    expect(other.get_by_role("log", name="Conversation")).to_contain_text("hello")
    other.get_by_label("Message", exact=True).fill("say back")
    other.get_by_label("Message", exact=True).press("Enter")
    expect(other.get_by_role("log", name="Conversation")).to_contain_text("back")


@pytest.mark.parametrize("with_worker", [True, False], ids=["shared worker", "no worker"])
def test_a_signed_in_page_is_live(shared: LiveServer, make_person: Callable[..., Person], with_worker: bool) -> None:
    person = make_person(shared)
    if not with_worker:
        person.context.add_init_script("delete window.SharedWorker")
    session = shared.create()
    person.page.close()
    person.page = person.new_tab(f"/s/{session}")
    expect(person.log).to_be_visible()
    shared.turn(session, "say from elsewhere")
    person.sees("from elsewhere")


def test_attachments_and_logs_are_downloaded(person: Person, tmp_path: Path) -> None:
    note = tmp_path / "a note.txt"
    note.write_text("kept as it was")
    person.go("/new")
    person.attach(note)
    person.send("say hello")
    person.sees("hello")
    session = person.page.url.rsplit("/", 1)[-1]
    with person.page.expect_download() as started:
        person.log.get_by_role("button", name=note.name).click()
    assert started.value.suggested_filename == note.name
    assert Path(started.value.path()).read_text() == "kept as it was"
    person.is_idle()
    person.go(f"/s/{session}/events")
    with person.page.expect_download() as started:
        person.page.get_by_role("button", name="Download").click()
    assert started.value.suggested_filename == f"{session}.ndjson"
    assert (
        Path(started.value.path()).read_text()
        == person.server.http.get(f"/api/sessions/{session}/log?limit=100000000").text
    )


def test_the_api_documentation_opens_from_the_settings(person: Person) -> None:
    person.go("/settings")
    person.page.get_by_role("link", name="API documentation").click()
    expect(person.page.get_by_role("heading", name="Perdure API")).to_be_visible()
