"""Jobs on the page: created with the form, run, opened, paused, removed. The inbox has jobs paused after failures."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.harness import LiveServer, eventually
from tests.page.conftest import ARTEFACTS
from tests.page.person import Person
from tests.page.test_views import AXE, FINGER_PX, PRESSED, SIDEWAYS, SMALL, violations

PHONE_PX = 390


def job(server: LiveServer, **fields: Any) -> str:
    body = {"name": "Nightly tests", "message": "say hello {run}", "cron": "0 2 * * *", **fields}
    return str(server.post("/api/jobs", body, expect=201)["id"])


def stuck(server: LiveServer, name: str) -> str:
    """Create a job paused after too many failures."""
    made = job(server, name=name, message="say Reading\ncrash 2", agent="rehearsal-stream", max_failures=1)
    server.post(f"/api/jobs/{made}/run", expect=202)
    eventually(lambda: server.get(f"/api/jobs/{made}")["paused_by"] == "failures", "the job is paused")
    return made


def next_runs(person: Person) -> Locator:
    return person.page.get_by_role("list", name="Next five runs").get_by_role("listitem")


def history(person: Person) -> Locator:
    return person.page.get_by_role("list", name="History").get_by_role("listitem")


def pressed(person: Person, name: str) -> None:
    person.page.get_by_role("main").get_by_role("button", name=name, exact=True).click()


def described(person: Person, label: str, about: str) -> None:
    """The field is marked as invalid, and the sentence describes it."""
    field = person.page.get_by_label(label, exact=True)
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_have_accessible_description(re.compile(about))


def test_a_job_is_created_run_opened_paused_and_removed(server: LiveServer, make_person: Callable[..., Person]) -> None:
    person = make_person(server)
    page = person.page
    page.get_by_role("link", name="Jobs", exact=True).click()
    expect(page.get_by_text("A job sends a message to an agent on a schedule")).to_be_visible()
    pressed(person, "Create the first job")
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.type("Greeting")
    page.get_by_label("Message", exact=True).fill("say hello {run}")
    expect(next_runs(person)).to_have_count(5)
    page.get_by_label("At an interval").check()
    page.get_by_label("Every", exact=True).fill("2")
    page.get_by_label("Unit").select_option("seconds")
    expect(page.get_by_role("status", name="Preview")).to_contain_text("Every 2 seconds")
    expect(next_runs(person)).to_have_count(5)
    pressed(person, "Create job")
    expect(page).to_have_url(f"{server.url}/jobs/greeting")
    expect(page.get_by_role("list", name="Next runs").get_by_role("listitem")).to_have_count(5)
    first = history(person).filter(has_text="Completed").last
    expect(first).to_be_visible()
    sent = server.get("/api/jobs/greeting")
    zone = page.evaluate("() => Intl.DateTimeFormat().resolvedOptions().timeZone")
    assert (sent["every_s"], sent["time_zone"], sent["agent"], sent["missed"]) == (2, zone, None, "once")

    pressed(person, "Pause")
    expect(page.get_by_role("region", name="State")).to_contain_text("Paused")
    expect(page.get_by_text("None while the job is paused.")).to_be_visible()
    assert server.get("/api/jobs/greeting")["paused_by"] == "person"
    # Pause it, so that nothing moves under the pointer.
    first.get_by_role("link", name="Open session").click()
    expect(page).to_have_url(re.compile("/s/s_[0-9a-f]+/turn/1$"))
    person.sees("hello 1")
    page.go_back()
    expect(page).to_have_url(f"{server.url}/jobs/greeting")
    pressed(person, "Resume")
    expect(page.get_by_role("region", name="State")).to_contain_text("Active")
    expect(page.get_by_role("list", name="Next runs").get_by_role("listitem")).to_have_count(5)

    pressed(person, "Remove")
    dialog = page.get_by_role("dialog", name="Remove Greeting")
    expect(dialog).to_contain_text("Its sessions remain")
    dialog.get_by_role("button", name="Remove job").click()
    expect(page).to_have_url(f"{server.url}/jobs")
    expect(page.get_by_text("No jobs yet.")).to_be_visible()
    assert server.get("/api/jobs")["jobs"] == []
    person.go("/jobs/greeting")
    expect(page.get_by_role("heading", name="Job not found")).to_be_visible()


@pytest.mark.smoke
def test_presets_fill_in_the_cron_expression_and_a_bad_one_shows_the_servers_error(
    server: LiveServer, make_person: Callable[..., Person]
) -> None:
    person = make_person(server)
    page = person.page
    person.go("/jobs/new")
    cron, preview = page.get_by_label("Cron expression"), page.get_by_role("status", name="Preview")
    for name, expression in {"Every hour": "0 * * * *", "Weekdays": "0 9 * * 1-5", "Every month": "0 9 1 * *"}.items():
        pressed(person, name)
        expect(cron).to_have_value(expression)
        expect(page.get_by_role("button", name=name)).to_have_attribute("aria-pressed", "true")
    pressed(person, "Every week")
    page.get_by_label("Day of the week").select_option("Friday")
    page.get_by_label("Time of day").fill("18:05")
    expect(cron).to_have_value("5 18 * * 5")
    expect(preview).to_contain_text("Friday")
    expect(next_runs(person)).to_have_count(5)
    cron.fill("0 9 31 2 *")
    described(person, "Cron expression", "never fires: no month has that day")
    cron.fill("61 * * * *")
    described(person, "Cron expression", "the minute is wrong")
    page.get_by_label("Name", exact=True).fill("Bad")
    page.get_by_label("Message", exact=True).fill("say no")
    pressed(person, "Create job")
    expect(cron).to_be_focused()
    cron.fill("*/20 * * * *")
    expect(cron).not_to_have_attribute("aria-invalid", "true")
    page.get_by_label("Time zone").fill("Mars/Phobos")
    described(person, "Time zone", "There is no time zone 'Mars/Phobos'")
    page.get_by_label("Time zone").fill("Asia/Tokyo")
    expect(preview).to_contain_text("Asia/Tokyo")
    page.get_by_label("Directory on the server").fill("relative")
    pressed(person, "Create job")
    described(person, "Directory on the server", ".")
    expect(page.get_by_label("Directory on the server")).to_be_focused()
    page.get_by_label("Directory on the server").fill("")
    page.get_by_text("More: missed runs").click()
    page.get_by_label("Not after").fill("2020-01-01T00:00")
    pressed(person, "Create job")
    described(person, "Not after", "The job would never run")
    page.get_by_label("Not after").fill("")
    pressed(person, "Create job")
    expect(page).to_have_url(f"{server.url}/jobs/bad")
    assert server.get("/api/jobs/bad")["time_zone"] == "Asia/Tokyo"


def test_a_job_is_edited_and_run_manually(server: LiveServer, make_person: Callable[..., Person]) -> None:
    other = server.create(title="Standing session")
    made = job(server, labels=["backend"], until="2099-01-01T00:00:00Z")
    before = server.get(f"/api/jobs/{made}")
    person = make_person(server)
    page = person.page
    person.go(f"/jobs/{made}")
    pressed(person, "Edit")
    expect(page.get_by_label("Message", exact=True)).to_have_value("say hello {run}")
    expect(page.get_by_label("Labels, separated by commas")).to_have_value("backend")
    page.get_by_label("Message", exact=True).fill("say goodbye {run}")
    pressed(person, "Save")
    expect(page.get_by_role("group", name="Message")).to_have_text("say goodbye {run}")
    same = ("cron", "time_zone", "until", "labels", "max_failures", "created_at")
    after = server.get(f"/api/jobs/{made}")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    pressed(person, "Run now")
    expect(history(person).filter(has_text="Completed")).to_contain_text("manual")
    pressed(person, "Edit")
    page.get_by_label("Session", exact=True).select_option("An existing session")
    page.get_by_label("Which session").select_option(other)
    pressed(person, "Save")
    expect(page.get_by_role("link", name="Standing session").last).to_be_visible()
    pressed(person, "Run now")
    eventually(lambda: server.get(f"/api/jobs/{made}")["run_count"] == 2, "it ran in the other session")
    expect(history(person).filter(has_text="Completed")).to_have_count(2)
    assert server.get(f"/api/jobs/{made}")["labels"] == []
    assert server.text(other, 1) == "goodbye 2"


def test_a_job_named_new_has_its_own_page(server: LiveServer, make_person: Callable[..., Person]) -> None:
    made = job(server, name="New")
    person = make_person(server)
    person.go("/jobs")
    person.page.get_by_role("main").get_by_role("link", name="New", exact=True).click()
    expect(person.page).to_have_url(f"{server.url}/jobs/{made}")
    expect(person.page.get_by_role("region", name="State")).to_contain_text("Active")


def test_a_long_history_is_shown_in_pages(server: LiveServer, make_person: Callable[..., Person]) -> None:
    made = job(server, overlap="interrupt", message="say hello {run}")
    for _ in range(35):
        server.post(f"/api/jobs/{made}/run", expect=202)
    eventually(lambda: server.get(f"/api/jobs/{made}")["last_run"]["state"] == "ended", "all have ended")
    person = make_person(server)
    person.go(f"/jobs/{made}")
    expect(history(person)).to_have_count(30)
    pressed(person, "Show more")
    expect(history(person)).to_have_count(35)
    expect(person.page.get_by_role("button", name="Show more")).to_have_count(0)
    server.post(f"/api/jobs/{made}/run", expect=202)
    expect(history(person)).to_have_count(36)


def test_a_job_paused_after_failures_is_in_the_inbox(server: LiveServer, make_person: Callable[..., Person]) -> None:
    person = make_person(server)
    page = person.page
    badge = page.get_by_label("1 waiting")
    expect(page.get_by_role("link", name="Jobs", exact=True)).to_be_visible()
    expect(badge).to_have_count(0)
    made = stuck(server, "Import of the news")
    # The page notices when a turn in the job's session ends, without a reload.
    expect(badge).to_be_visible()
    page.get_by_role("link", name="Inbox").click()
    jobs = page.get_by_role("region", name="Jobs paused after failures")
    expect(jobs).to_contain_text("Paused after a failed run.")
    jobs.get_by_role("button", name="Open").click()
    expect(page).to_have_url(f"{server.url}/jobs/{made}")
    expect(page.get_by_role("region", name="State")).to_contain_text("Paused after failures")
    expect(history(person)).to_contain_text("Failed")
    page.go_back()
    jobs.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("Nothing is waiting for you.")).to_be_visible()
    expect(badge).to_have_count(0)
    assert server.get(f"/api/jobs/{made}")["state"] == "active"


def test_a_job_paused_after_failures_can_be_left_paused(server: LiveServer, make_person: Callable[..., Person]) -> None:
    made = stuck(server, "Import of the news")
    person = make_person(server)
    person.go("/inbox")
    person.page.get_by_role("button", name="Leave paused").click()
    expect(person.page.get_by_text("Nothing is waiting for you.")).to_be_visible()
    found = server.get(f"/api/jobs/{made}")
    assert (found["state"], found["paused_by"]) == ("paused", "person")


def test_jobs_are_reached_by_keyboard_and_by_name(server: LiveServer, make_person: Callable[..., Person]) -> None:
    job(server)
    person = make_person(server)
    person.press_both("g j", person.page.get_by_role("heading", name="Jobs", exact=True))
    person.page.keyboard.press("Control+k")
    person.page.keyboard.type("new job")
    person.page.keyboard.press("Enter")
    expect(person.page.get_by_label("Name", exact=True)).to_be_focused()
    person.page.keyboard.type("By keyboard")
    person.page.keyboard.press("Tab")
    person.page.keyboard.type("say hello")
    person.page.get_by_label("Name", exact=True).press("Enter")
    expect(person.page).to_have_url(f"{server.url}/jobs/by-keyboard")


def test_jobs_that_fail_to_load_say_why(server: LiveServer, make_person: Callable[..., Person]) -> None:
    made = job(server)
    person = make_person(server)
    asked = re.compile(r"/api/jobs")
    person.page.route(asked, lambda route: route.abort())
    person.go(f"/jobs/{made}")
    expect(person.page.get_by_role("alert")).to_have_text("Can't reach the server.")
    person.page.unroute(asked)
    person.page.reload()
    expect(person.page.get_by_role("heading", name="Nightly tests")).to_be_visible()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, PHONE_PX])
def test_the_views_of_jobs_are_accessible_and_fit(
    server: LiveServer, make_person: Callable[..., Person], width: int, dark: bool
) -> None:
    phone = width == PHONE_PX
    person = make_person(server, width=width, height=844 if phone else 800, dark=dark, touch=phone)
    page, bad = person.page, {}

    def look(view: str) -> None:
        ARTEFACTS.mkdir(exist_ok=True)
        page.screenshot(path=ARTEFACTS / f"{view}-{width}-{'dark' if dark else 'light'}.png", animations="disabled")
        found = violations(page) if AXE.exists() else []
        found += page.evaluate(SIDEWAYS) if phone else []
        found += page.evaluate(SMALL, [PRESSED, FINGER_PX]) if phone else []
        if found or page.evaluate("() => document.documentElement.scrollWidth") > width:
            bad[view] = found

    person.go("/jobs")
    expect(page.get_by_text("No jobs yet.")).to_be_visible()
    look("jobs-empty")
    made = job(server, labels=["backend"], max_runs=40, keep_sessions=20)
    failed = stuck(server, "Import of the news from a place with a rather long name")
    job(server, name="Weekly report", cron="30 9 * * 1", time_zone="Asia/Tokyo")
    server.post("/api/jobs/weekly-report/pause", expect=200)
    server.post(f"/api/jobs/{made}/run", expect=202)
    eventually(lambda: server.get(f"/api/jobs/{made}")["last_run"]["outcome"] == "completed", "it has run")
    person.go("/jobs")
    expect(page.get_by_text("Completed")).to_be_visible()
    look("jobs-list")
    for name in (made, failed):
        person.go(f"/jobs/{name}")
        expect(history(person)).to_have_count(1)
        look(f"jobs-{name[:8]}")
    pressed(person, "Remove")
    expect(page.get_by_role("dialog")).to_be_visible()
    look("jobs-remove")
    person.go("/inbox")
    expect(page.get_by_role("region", name="Jobs paused after failures")).to_be_visible()
    look("jobs-inbox")
    person.go("/jobs/new")
    expect(next_runs(person)).to_have_count(5)
    look("jobs-form")
    page.get_by_label("Cron expression").fill("bad")
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_text("More: missed runs").click()
    page.get_by_role("button", name="Create job").scroll_into_view_if_needed()
    look("jobs-form-more")
    assert not bad, bad
