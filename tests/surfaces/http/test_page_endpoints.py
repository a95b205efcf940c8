"""What the page needs besides sessions: the server's vitals, files to mention, signed-in browsers, its own files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.runtime.data.filesystem import directory_identity
from perdure.surfaces.http import page_files
from perdure.surfaces.http.directories import Directory
from perdure.surfaces.http.logins import Logins
from perdure.surfaces.http.server import Vitals
from tests.harness import eventually
from tests.signing import signed_in
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_access import is_problem
from tests.surfaces.http.test_contract import fits


@pytest.mark.one_server
def test_the_server_reports_its_vitals(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "say one")
    before = fits(server.get("/api/server"), Vitals)
    assert before.processes >= 1
    assert before.memory_bytes > 1_000_000
    server.send(session, "permit Deploy")
    server.prompt(session)
    after = fits(server.get("/api/server"), Vitals)
    assert after.events > before.events
    assert (after.sessions.working, after.sessions.waiting) == (1, 1)
    server.post(f"/api/sessions/{session}/stop")


@pytest.mark.one_server
def test_the_server_describes_a_directory_as_it_sees_it(server: LocalServer, tmp_path: Path) -> None:
    (tmp_path / "site" / "src").mkdir(parents=True)
    (tmp_path / "link").symlink_to("site")
    project = server.post("/api/projects", {"name": "site", "path": str(tmp_path / "link")}, expect=201)["id"]
    for path in (tmp_path / "site", tmp_path / "link", tmp_path / "site" / "src"):
        seen = fits(server.http.get("/api/directory", params={"path": str(path)}).json(), Directory)
        assert (seen.path, seen.identity) == (str(path.resolve()), directory_identity(str(path)))
        assert (seen.private, seen.projects) == (False, [project])
    assert server.http.get("/api/directory", params={"path": str(server.data)}).json()["private"]
    assert server.get("/api/directory")["path"] == "/"
    missing = server.http.get("/api/directory", params={"path": str(tmp_path / "none")})
    assert is_problem(missing, 404, "not_found")
    assert is_problem(server.http.get("/api/directory", params={"path": "site"}), 400, "invalid")
    inside = server.create(project=project, workdir=str(tmp_path / "site" / "src"))
    assert server.session(inside)["workdir"] == str((tmp_path / "site" / "src").resolve())
    for outside in (str(tmp_path), str(tmp_path / "site" / ".."), "relative"):
        refused = server.http.post("/api/sessions", json={"project": project, "workdir": outside})
        assert is_problem(refused, 400, "invalid"), outside
    server.http.delete(f"/api/projects/{project}").raise_for_status()


def test_files_of_the_working_directory_are_found_by_part_of_their_path(server: LocalServer, tmp_path: Path) -> None:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("notes.md", "src/Notes.py", "src/deep/my-notes.txt", "node_modules/notes.js", ".git/notes"):
        (tmp_path / name).write_text("")
    session = server.create(workdir=str(tmp_path))
    path = f"/api/sessions/{session}/files"
    assert server.get(f"{path}?q=notes")["files"] == ["notes.md", "src/Notes.py", "src/deep/my-notes.txt"]
    assert server.get(f"{path}?q=deep/my")["files"] == ["src/deep/my-notes.txt"]
    assert server.get(f"{path}?limit=1")["files"] == ["notes.md"]
    assert server.http.get("/api/sessions/s_none/files").status_code == 404


def test_a_file_whose_name_is_not_valid_text_is_left_out(server: LocalServer, tmp_path: Path) -> None:
    Path(str(tmp_path).encode().decode() + "/good.txt").write_text("")
    with open(bytes(tmp_path) + b"/bad\xff.txt", "w"):
        pass
    session = server.create(workdir=str(tmp_path))
    assert server.get(f"/api/sessions/{session}/files")["files"] == ["good.txt"]


def test_browsers_are_listed_and_signed_out(server: LocalServer) -> None:
    with signed_in(server) as browser:
        mine = [login for login in fits(browser.get("/api/logins").json(), Logins).logins if login.this]
        assert len(mine) == 1
        assert not any(login["this"] for login in server.get("/api/logins")["logins"])
        assert server.http.delete(f"/api/logins/{mine[0].id}").status_code == 204
        assert browser.get("/api/sessions").status_code == 401
        assert server.http.delete(f"/api/logins/{mine[0].id}").status_code == 404


def test_the_list_shows_the_last_line_of_the_last_answer(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "say first words\nsay and the last line")
    assert of_list(server, session)["last_line"] == "and the last line"


def test_the_last_line_in_the_list_comes_from_one_block_of_one_turn(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "say one")
    server.turn(session, "say two")
    fork = server.post(f"/api/sessions/{session}/fork", {}, expect=201)["id"]
    assert of_list(server, fork)["last_line"] == "two"


def test_the_list_shows_no_text_of_a_rewound_turn(server: LocalServer) -> None:
    session = server.create()
    server.turn(session, "say one")
    server.turn(session, "say two")
    server.post(f"/api/sessions/{session}/rewind", {"turn": 2}, expect=200)
    assert of_list(server, session)["last_line"] == ""
    server.turn(session, "say three")
    assert of_list(server, session)["last_line"] == "three"


def test_the_list_shows_what_a_session_waits_for(server: LocalServer) -> None:
    session = server.create()
    server.send(session, "permit Deploy\nsay done")
    prompt = server.prompt(session)
    assert of_list(server, session)["waiting_for"] == prompt["title"] == "Run Deploy"
    server.post(f"/api/sessions/{session}/prompts/{prompt['prompt_id']}", {"cancel": True}, expect=200)
    server.wait_idle(session)
    assert of_list(server, session)["waiting_for"] == ""


def of_list(server: LocalServer, session: str) -> Any:
    listed = server.get("/api/sessions?limit=1000")["sessions"]
    return next(one for one in listed if one["id"] == session)


def test_the_commands_that_an_agent_offers_are_part_of_its_session(server: LocalServer) -> None:
    session = server.create(agent="rehearsal-stream")
    server.turn(session, "say one")

    def told() -> list[Any]:
        return [event["value"] for event in server.log(session) if event.get("config_id") == "available_commands"]

    eventually(lambda: server.session(session)["commands"] == [[], *told()][-1], lambda: f"they are known: {told()}")


def test_a_partial_transcript_has_the_number_of_the_last_event(server: LocalServer) -> None:
    session = server.create()
    for number in range(3):
        server.turn(session, f"say {number}")
    found = server.get(f"/api/sessions/{session}/transcript?from_turn=2&to_turn=2")
    assert [turn["turn"] for turn in found["turns"]] == [2]
    assert found["seq"] == server.log(session)[-1]["seq"]


@pytest.mark.parametrize("path", [*page_files.VIEWS, "/s/s_any", "/s/s_any/events"])
def test_every_view_has_its_own_path_and_needs_no_token(server: LocalServer, path: str) -> None:
    with server.client() as client:
        answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "/page/page.js" in answer.text


def test_for_an_unknown_path_a_browser_gets_the_page_and_a_program_gets_a_problem(server: LocalServer) -> None:
    for path in ("/nowhere", "/api/nowhere"):
        answer = server.http.get(path, headers={"accept": "text/html,*/*;q=0.8"})
        assert answer.status_code == 404 and "/page/page.js" in answer.text and "etag" not in answer.headers
        assert is_problem(server.http.get(path), 404, "not_found")
        assert is_problem(server.http.post(path, headers={"accept": "text/html"}), 404, "not_found")


def test_the_pages_files_are_compressed_and_cached_until_they_change(server: LocalServer) -> None:
    with server.client() as client:
        for path in page_files.paths():
            answer = client.get(path, headers={"accept-encoding": "gzip"})
            assert (answer.status_code, answer.headers["content-encoding"]) == (200, "gzip"), path
            plain = client.get(path, headers={"accept-encoding": "identity"})
            assert plain.content == answer.content
            again = client.get(path, headers={"if-none-match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")


def test_no_path_of_the_page_collides_with_the_api(make_server: Callable[..., LocalServer]) -> None:
    for path in (*page_files.VIEWS, *page_files.paths()):
        assert not path.startswith(("/api", "/agents", "/sessions")), path
