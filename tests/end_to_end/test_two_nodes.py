"""Two nodes on one PostgreSQL: every change on one of them is visible on the other."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from tests.cluster import Cluster, NodeProcess
from tests.harness import NO_LIMITS, LiveServer, eventually, no_holes

pytestmark = pytest.mark.needs("postgresql")

PAGE_KEY = "perdure-page-key"


@pytest.fixture
def cluster(tmp_path: Path, postgres_url: str) -> Iterator[Cluster]:
    """Two nodes that see the same directories."""
    made = Cluster(tmp_path / "cluster", database=postgres_url, takeover_s=60).start()
    yield made
    made.finish()


@pytest.fixture
def make_nodes(tmp_path: Path, postgres_url: str) -> Iterator[Callable[..., list[NodeProcess]]]:
    """`make_nodes("slots = 1")`: two nodes, each with its own directories."""
    made: list[NodeProcess] = []

    def make(more: str = "", sections: str = "", slots: int = 0) -> list[NodeProcess]:
        server = NO_LIMITS.replace("slots = 0", f"slots = {slots}", 1)
        for name in "ab":
            settings = f"{server}node_name = '{name}'\n{more}\n{sections}"
            made.append(NodeProcess(tmp_path / name, settings, postgres_url).start())
        return made

    yield make
    for node in made:
        node.finish()


def words(count: int) -> str:
    return "".join(f"w{number} " for number in range(count))


def ids_of(server: LiveServer) -> list[str]:
    return [session["id"] for session in server.get("/api/sessions")["sessions"]]


@pytest.mark.smoke
def test_a_message_accepted_by_one_node_is_shown_by_the_other(cluster: Cluster) -> None:
    a, b = cluster.nodes
    session = a.create()
    with b.watch(session) as viewer:
        b.send(session, "stream 30 5")
        seen = viewer.until("turn_end")
    assert a.wait_idle(session)["turn_count"] == b.session(session)["turn_count"] == 1
    assert a.text(session, 1) == b.text(session, 1) == words(30)
    said = "".join(data["delta"] for _, kind, data in seen if kind == "assistant_text")
    assert said == words(30)
    no_holes(a.log(session))
    # The finished turn's deltas may be joined between two reads.
    eventually(lambda: a.log(session) == b.log(session), "both have the same log")
    assert {node["state"] for node in b.get("/api/nodes")["nodes"]} == {"alive"}


def test_a_viewer_that_switches_nodes_mid_stream_sees_no_gap_and_no_duplicate(cluster: Cluster) -> None:
    session = cluster.create()
    cluster.send(session, "stream 300 5")
    seen: list[int] = []
    position: str | None = "0"
    is_over = False
    number = 0
    while not is_over:
        with cluster.nodes[number % 2].watch(session, position) as viewer:
            for count, (at, kind, data) in enumerate(viewer.frames(), 1):
                position = at
                assert kind != "snapshot", "it gets the few events that it missed"
                seen += range(data.get("first_seq", data["seq"]), data["seq"] + 1)
                is_over = kind == "turn_end"
                if is_over or count >= 20:
                    break
        number += 1
    assert number > 5
    assert seen == list(range(1, len(seen) + 1))


def test_a_login_link_of_one_node_works_on_the_other_and_a_sign_out_applies_to_both(cluster: Cluster) -> None:
    a, b = cluster.nodes
    code = a.post("/api/login-links", expect=201)["path"].partition("=")[2]
    with httpx2.Client(base_url=b.url, trust_env=False, verify=False) as browser:
        answer = browser.post("/api/login", json={"code": code})
        assert answer.status_code == 200, answer.text
        browser.headers[PAGE_KEY] = answer.json()["page_key"]
        for node in (a, b):
            cookies = {cookie.name: str(cookie.value) for cookie in browser.cookies.jar}
            assert httpx2.get(
                f"{node.url}/api/sessions", headers=browser.headers, cookies=cookies, verify=False
            ).is_success
        assert browser.post("/api/login", json={"code": code}).status_code == 401
        again = httpx2.post(f"{a.url}/api/login", json={"code": code}, verify=False)
        assert again.status_code == 401, "a link signs in one browser, on either node"
        assert browser.post("/api/logout").status_code == 204
        refused = httpx2.get(f"{a.url}/api/sessions", headers=browser.headers, cookies=cookies, verify=False)
        assert refused.status_code == 401


def test_a_project_created_on_one_node_is_known_to_the_other_immediately(cluster: Cluster, tmp_path: Path) -> None:
    a, b = cluster.nodes
    for number in range(5):
        (tmp_path / f"site{number}").mkdir()
        made = a.post("/api/projects", {"name": f"Site {number}", "path": str(tmp_path / f"site{number}")}, expect=201)
        assert b.get(f"/api/projects/{made['id']}")["path"] == str(tmp_path / f"site{number}")
    assert b.http.delete(f"/api/projects/{made['id']}").is_success
    assert a.http.get(f"/api/projects/{made['id']}").status_code == 404


def test_a_session_erased_on_one_node_is_gone_on_the_other_with_its_files(cluster: Cluster) -> None:
    a, b = cluster.nodes
    session = a.create()
    a.turn(session, "say hello")
    assert ids_of(b) == [session]
    with b.stream("/api/events?all=true") as changes:
        assert b.http.delete(f"/api/sessions/{session}?purge=true").is_success
        assert changes.until("session_erased")[-1][2]["session_id"] == session
    for node in (a, b):
        assert node.http.get(f"/api/sessions/{session}").status_code == 404
        assert ids_of(node) == []
    eventually(lambda: not list((a.data / "launches").glob("*")), "nothing of it is left on the node that ran it")


def test_a_command_reaches_the_agent_through_either_node(cluster: Cluster) -> None:
    a, b = cluster.nodes
    session = a.create()
    a.send(session, "permit Bash\nsay done")
    prompt = b.prompt(session)
    allow = next(one for one in prompt["options"] if one["kind"] == "allow_once")
    b.post(f"/api/sessions/{session}/prompts/{prompt['prompt_id']}", {"option_id": allow["option_id"]}, expect=200)
    b.wait_idle(session)
    b.send(session, "hang")
    b.wait(session, lambda shown: shown["state"] == "processing")
    a.post(f"/api/sessions/{session}/abort", expect=202)
    assert b.wait_idle(session)["turns"][-1]["stop_reason"] == "cancelled"
    assert b.recalled(session) == ["permit Bash\nsay done", "hang"]


def test_an_attachment_sent_to_one_node_reaches_an_agent_on_the_other(cluster: Cluster) -> None:
    a, b = cluster.nodes
    session = a.create()
    a.turn(session, "say hello")
    attachment = {"name": "note.txt", "mime_type": "text/plain", "data": "aGVsbG8="}
    b.send(session, "say got it", attachments=[attachment])
    b.wait_idle(session)
    [kept] = a.transcript(session)[-1]["message"]["attachments"]
    for node in (a, b):
        assert node.http.get(f"/api/sessions/{session}/attachments/{kept['file']}").content == b"hello"


def test_after_a_failover_that_may_have_lost_events_viewers_get_a_snapshot(cluster: Cluster, postgres_url: str) -> None:
    """PostgreSQL shows such a failover by a new timeline. Here the epoch is raised as the store does it then."""
    session = cluster.create()
    cluster.turn(session, "say one")
    with cluster.watch(session) as viewer:
        frames = viewer.frames()
        position, kind, _ = next(frames)
        assert kind == "snapshot" and position.isdigit()
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("UPDATE meta SET epoch = epoch + 1")
        assert list(frames) == [], "the stream ends"
    for node in cluster.nodes:

        def sends_a_snapshot(node: NodeProcess = node) -> bool:
            with node.watch(session, position) as viewer:
                begun, kind, _ = next(viewer.frames(), ("", "", None))
            return kind == "snapshot" and begun == f"{position}-1"

        eventually(sends_a_snapshot, "each node knows the new epoch")


# Directories of one machine ------------------------------------------------------------------------------------------


def test_a_session_waits_for_the_node_that_has_its_directory(make_nodes: Callable[..., list[NodeProcess]]) -> None:
    a, b = make_nodes()
    session = a.create()
    a.turn(session, "say one")
    a.kill()
    answer = b.send(session, "say two", message_id="m2")
    assert answer["state"] == "accepted"
    shown = b.session(session)
    assert shown["waits_for"]["message"] == "Waiting for node a, which has its directory."
    assert shown["node_name"] == "a"
    a.restart()
    assert b.wait_idle(session)["turn_count"] == 2
    assert b.recalled(session) == ["say one", "say two"]


def test_a_restarted_node_continues_the_turn_that_was_sent_to_the_other_node(
    make_nodes: Callable[..., list[NodeProcess]],
) -> None:
    a, b = make_nodes()
    session = a.create()
    b.send(session, "stream 200 10")
    with b.watch(session) as viewer:
        viewer.until("assistant_text")
        a.kill()
        a.restart()
        viewer.until("turn_end")
    assert b.text(session, 1) == words(200)


def test_a_drained_node_starts_no_turn_and_a_moved_session_continues_elsewhere(
    make_nodes: Callable[..., list[NodeProcess]],
) -> None:
    a, b = make_nodes()
    session = a.create(workdir=str(a.data.parent))
    a.turn(session, "say one")
    b.post(f"/api/nodes/{a.id}/drain", expect=200)
    eventually(lambda: a.http.get("/api/ready").status_code == 503, "a load balancer sees that the node drains")
    assert b.send(session, "say two")["state"] == "accepted"
    b.post(f"/api/nodes/{b.id}/move", {"session_ids": [session]}, expect=200)
    assert b.wait_idle(session)["turn_count"] == 2
    assert b.session(session)["node"] == b.id
    assert b.recalled(session) == ["say one", "say two"]


def test_slots_of_a_project_are_counted_across_nodes(
    make_nodes: Callable[..., list[NodeProcess]], tmp_path: Path
) -> None:
    (tmp_path / "site").mkdir()
    a, b = make_nodes(sections=f"[projects.site]\npath = '{tmp_path / 'site'}'\n")
    for node in (a, b):
        settings = (node.data / "perdure.toml").read_text().replace("project_slots = 0", "project_slots = 1")
        node.stop()
        (node.data / "perdure.toml").write_text(settings)
        node.restart()
    first, second = a.create(project="site"), b.create(project="site")
    a.send(first, "hang")
    a.wait(first, lambda shown: shown["state"] == "processing")
    assert b.send(second, "say later")["state"] == "accepted"
    refused = b.http.post(
        f"/api/sessions/{b.create(project='site')}/messages", json={"text": "x", "when_full": "refuse"}
    )
    assert refused.status_code == 409 and refused.json()["taken_by"] == [first]
    a.post(f"/api/sessions/{first}/abort", expect=202)
    assert b.wait_idle(second)["turn_count"] == 1


def test_a_job_runs_once_however_many_nodes_there_are(make_nodes: Callable[..., list[NodeProcess]]) -> None:
    a, b = make_nodes()
    job: dict[str, Any] = {"name": "often", "every_s": 2, "message": "say tick"}
    made = a.post("/api/jobs", job, expect=201)

    def over() -> list[Any]:
        runs = b.get(f"/api/jobs/{made['id']}/runs")["runs"]
        return [run for run in runs if run.get("outcome") == "completed"]

    eventually(lambda: len(over()) >= 3, lambda: f"three runs: {b.get('/api/jobs/' + made['id'] + '/runs')}")
    runs = over()
    assert a.http.delete(f"/api/jobs/{made['id']}").is_success
    assert len({run["session_id"] for run in runs}) == len(runs)
    for run in runs:
        assert b.session(run["session_id"])["turn_count"] == 1


def test_a_removed_node_stops_and_its_sessions_move_to_other_nodes(
    make_nodes: Callable[..., list[NodeProcess]],
) -> None:
    a, b = make_nodes()
    session = a.create(workdir=str(a.data.parent))
    a.turn(session, "say one")
    assert b.http.delete(f"/api/nodes/{a.id}").status_code == 409, "it is alive"
    a.kill()
    eventually(lambda: b.http.delete(f"/api/nodes/{a.id}").is_success, "it is silent, and can be removed", 60)
    b.send(session, "say two")
    assert b.wait_idle(session)["turn_count"] == 2
    a.restart()
    assert {node["id"] for node in b.get("/api/nodes")["nodes"]} == {a.id, b.id}


def test_a_session_with_a_label_waits_for_a_node_with_that_label(make_nodes: Callable[..., list[NodeProcess]]) -> None:
    a, b = make_nodes()
    shared = str(a.data.parent)
    opening = {"labels": ["node:gpu"], "workdir": shared, "message": "say here"}
    session = a.post("/api/sessions", opening, expect=201)["id"]
    assert a.session(session)["state"] == "accepted"
    assert a.session(session)["waits_for"]["message"] == "Waiting for a node that can run this session."
    b.stop()
    settings = (b.data / "perdure.toml").read_text()
    (b.data / "perdure.toml").write_text(settings.replace("[server]\n", "[server]\nlabels = ['gpu']\n"))
    b.restart()
    assert a.wait_idle(session)["turn_count"] == 1
    assert a.session(session)["node"] == b.id


def test_a_draining_node_releases_its_sessions_to_another(cluster: Cluster) -> None:
    a, b = cluster.nodes
    session = a.create()
    a.turn(session, "say one")
    assert b.session(session)["node"] == a.id, "the other node has the session in memory from now on"
    b.post(f"/api/nodes/{a.id}/drain", expect=200)
    eventually(lambda: a.http.get("/api/ready").status_code == 503, "it drains")
    for number, node in ((2, b), (3, a)):
        node.send(session, f"say {number}")
        assert b.wait_idle(session)["turn_count"] == number
    assert b.session(session)["node"] == b.id
    assert b.recalled(session) == ["say one", "say 2", "say 3"]
    b.post(f"/api/nodes/{a.id}/resume", expect=200)


def test_the_turn_of_a_silent_node_ends_when_a_person_moves_its_session(
    make_nodes: Callable[..., list[NodeProcess]],
) -> None:
    a, b = make_nodes("takeover_after_s = 3")
    session = a.create(workdir=str(a.data.parent))
    a.send(session, "say half\nhang")
    eventually(lambda: b.text(session, 1) == "half", "the turn has started")
    b.send(session, "say next", when_busy="queue")
    a.kill()

    def moved() -> bool:
        return bool(b.http.post(f"/api/nodes/{b.id}/move", json={"session_ids": [session]}).is_success)

    eventually(moved, "the node is silent, so its session can be moved")
    shown = b.wait(session, lambda shown: shown["state"] == "idle" and shown["queue_length"] == 0)
    first, second = shown["turns"]
    assert first["stop_reason"] == "failed" and "node a" in first["error"]
    assert b.text(session, 1) == "half"
    assert second["stop_reason"] == "end_turn"


def test_a_session_moved_back_and_forth_remembers_everything_and_leaves_no_agent(
    make_nodes: Callable[..., list[NodeProcess]],
) -> None:
    a, b = make_nodes()
    session = a.create(workdir=str(a.data.parent))
    a.turn(session, "say one")
    assert list((a.data / "launches").glob("*")), "the agent waits for the next message"
    b.post(f"/api/nodes/{b.id}/move", {"session_ids": [session]}, expect=200)
    assert not list((a.data / "launches").glob("*")), "the first node has ended its agent"
    detached = [event["reason"] for event in b.log(session) if event["type"] == "agent_detached"]
    assert detached == ["moved"]
    b.post(f"/api/nodes/{a.id}/move", {"session_ids": [session]}, expect=200)
    assert b.recalled(session) == ["say one"]
    assert b.session(session)["node"] == a.id


def test_a_session_is_not_replaced_by_one_on_another_node(
    make_nodes: Callable[..., list[NodeProcess]],
) -> None:
    a, b = make_nodes(sections="[limits]\non_full = 'replace'\n", slots=1)
    first = a.create()
    a.turn(first, "say one")
    second = b.create()
    b.turn(second, "say two")
    assert [a.session(session)["status"] for session in (first, second)] == ["running", "running"]
    third = b.create()
    assert [a.session(session)["status"] for session in (first, second, third)] == ["running", "stopped", "running"]


def test_a_limit_set_later_applies_to_sessions_that_were_already_idle(
    make_nodes: Callable[..., list[NodeProcess]],
) -> None:
    """Like sessions migrated from SQLite: the store does not know yet when they are due."""
    a, b = make_nodes()
    session = a.create()
    a.turn(session, "say one")
    b.kill()
    a.kill()
    with (a.data / "perdure.toml").open("a") as config:
        config.write("\n[limits]\non_idle = 'end'\nidle_timeout_s = 1\n")
    a.restart()
    eventually(lambda: a.session(session)["status"] == "timed-out", "the timer fires")
