"""Text from agents, files and users is shown as text: nothing runs, and nothing is loaded from other servers."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.harness import NO_LIMITS, LiveServer, eventually
from tests.page.person import Person

ATTACKS = [
    "<img src=x onerror=window.hit=1>",
    "<script>window.hit=1</script>",
    "<svg/onload=window.hit=1>",
    "[link](javascript:window.hit=1)",
    '<a href="javascript:window.hit=1">press</a>',
    '<iframe srcdoc="<script>parent.hit=1</script>"></iframe>',
    "![picture](https://elsewhere.example/x.png)",
    '<style>*{background:url("https://elsewhere.example/x")}</style>',
    '<form action="https://elsewhere.example/"><button>send</button></form>',
    '"><img src=x onerror=window.hit=1>',
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=x onerror=window.hit=1&gt;'>",
]
# Opening one moves the others, and rows outside the viewport are not drawn.
OPEN_ALL = """async (log) => {
  for (let tries = 0; tries < 40; tries++) {
    const closed = log.querySelector('button[aria-expanded=false]:not([aria-haspopup])');
    if (!closed) return;
    closed.click();
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  }
}"""
NASTY_NAME = "<img src=x onerror=window.hit=1>"


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server whose agent, project and files have names that try to inject markup."""
    folder = tmp_path_factory.mktemp("nasty")
    command = json.dumps(["python3", "-m", "perdure.rehearsal", "--acp"])
    config = NO_LIMITS + f'[agents.{json.dumps(NASTY_NAME)}]\ndriver = "acp"\ncommand = {command}\n'
    server = LiveServer(folder / "data", config).start()
    place = folder / "<b>place"
    place.mkdir()
    server.post("/api/projects", {"name": NASTY_NAME, "path": str(place)}, expect=201)
    yield server
    server.finish()


def unhurt(person: Person, foreign: list[str]) -> None:
    assert person.page.evaluate("() => window.hit") is None
    assert foreign == []


def test_attacks_in_messages_tools_titles_diffs_and_names_do_nothing(
    nasty: LiveServer, make_person: Callable[..., Person]
) -> None:
    person = make_person(nasty)
    foreign: list[str] = []
    person.context.on(
        "request",
        lambda request: None if request.url.startswith((nasty.url, "data:", "blob:")) else foreign.append(request.url),
    )
    session = nasty.create(title=NASTY_NAME, labels=[NASTY_NAME])
    Path(nasty.session(session)["workdir"], "old.html").write_text("\n".join(ATTACKS))
    lines = [f"say {attack}\nthink {attack}\ntool Bash {attack}\nplan {attack}; b" for attack in ATTACKS]
    nasty.turn(session, "\n".join([*lines, "edit old.html", "edit <img src=x onerror=window.hit=1>.txt"]))
    nasty.send(session, f"ask {ATTACKS[0]} | {ATTACKS[1]} | {ATTACKS[9]}")
    nasty.prompt(session)
    person.open(session)
    expect(person.page.get_by_role("region", name="Question")).to_be_visible()
    person.log.evaluate(OPEN_ALL)
    unhurt(person, foreign)
    for path in (
        "/inbox",
        "/search?q=window.hit",
        "/settings/agents",
        "/settings/projects",
        "/",
        f"/s/{session}/events",
    ):
        person.go(path)
        expect(person.page.get_by_role("navigation", name="Sessions")).to_contain_text(NASTY_NAME)
        unhurt(person, foreign)
    links = person.page.evaluate("() => [...document.links].map((a) => a.protocol)")
    assert set(links) <= {"http:"}


def test_a_link_from_an_agent_opens_in_a_new_tab_without_an_opener(person: Person) -> None:
    person.start("say See [the docs](https://example.org/a)")
    link = person.log.get_by_role("link", name="the docs")
    expect(link).to_have_attribute("rel", "noopener noreferrer nofollow")
    expect(link).to_have_attribute("target", "_blank")


def test_the_content_policy_blocks_inline_scripts(person: Person) -> None:
    policy = person.page.request.get(person.server.url + "/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    person.page.evaluate(
        "() => document.head.append(Object.assign(document.createElement('script'), { textContent: 'window.hit = 1' }))"
    )
    assert person.page.evaluate("() => window.hit") is None
    refused = "Content Security Policy"
    # The browser reports violations separately, maybe after the responses.
    eventually(lambda: person.page.title() and any(refused in one for one in person.troubles), "the browser says so")
    person.troubles.clear()


def test_the_login_link_works_once_and_is_removed_from_the_address(
    shared: LiveServer, make_person: Callable[..., Person]
) -> None:
    person = make_person(shared)
    expect(person.page).not_to_have_url(re.compile("login"))
    shared.http.delete("/api/logins").raise_for_status()
    path = shared.post("/api/login-links", expect=201)["path"]
    person.go("/")
    expect(person.page.get_by_role("button", name="Sign in")).to_be_visible()
    person.page.get_by_label("Link or token").fill("wrong")
    person.page.get_by_role("button", name="Sign in").click()
    expect(person.page.get_by_role("alert")).to_contain_text("perdure login")
    person.page.get_by_label("Link or token").fill(shared.url + path)
    person.page.get_by_role("button", name="Sign in").click()
    expect(person.page.get_by_role("navigation", name="Sessions")).to_be_visible()


def test_the_servers_token_signs_in_too(shared: LiveServer, make_person: Callable[..., Person]) -> None:
    person = make_person(shared)
    shared.http.delete("/api/logins").raise_for_status()
    person.go("/inbox")
    person.page.get_by_label("Link or token").fill(shared.token)
    person.page.get_by_role("button", name="Sign in").click()
    expect(person.page.get_by_role("heading", name="Inbox")).to_be_visible()


def test_permission_requests_show_invisible_characters(person: Person) -> None:
    person.start("permit De\u202eploy")
    expect(person.page.get_by_role("region", name="Permission request")).to_contain_text("De\\u{202e}ploy")


def test_the_theme_is_the_systems_until_another_is_chosen(person: Person) -> None:
    light, dark = "rgb(252, 252, 251)", "rgb(21, 22, 24)"
    body = person.page.locator("body")
    person.go("/settings")
    expect(body).to_have_css("background-color", light)
    person.page.emulate_media(color_scheme="dark")
    expect(body).to_have_css("background-color", dark)
    person.page.get_by_role("radio", name="Light").check()
    expect(body).to_have_css("background-color", light)
    person.page.emulate_media(color_scheme="light")
    person.page.get_by_role("radio", name="Dark").check()
    expect(body).to_have_css("background-color", dark)
    person.page.get_by_role("radio", name="System").check()
    expect(body).to_have_css("background-color", light)


def test_a_saved_theme_applies_before_the_first_paint(person: Person) -> None:
    person.page.evaluate("() => localStorage.setItem('perdure.theme', 'dark')")
    person.page.route("**/page/page.js", lambda route: route.abort())
    person.page.reload()
    assert person.page.evaluate("() => document.documentElement.dataset.theme") == "dark"
