"""The tools, called by the official MCP client over real pipes, against a real server and the rehearsal agent."""

import asyncio
import json
import os
import select
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.surfaces import cli
from perdure.surfaces.client import Address, Client
from perdure.surfaces.mcp import answers
from tests.harness import NO_LIMITS, SOURCE, WAIT_S, LiveServer, SharedServers
from tests.surfaces.mcp_client import Caller, command, said, structured, talking, text

PARAMETERS: dict[str, tuple[list[str], list[str]]] = {
    "agent_session_start": (["agent", "workdir", "title"], ["agent"]),
    "agent_session_prompt": (["session_id", "prompt", "agent", "fresh", "message_id"], ["session_id", "prompt"]),
    "agent_session_list": (["agent", "status"], []),
    "agent_session_close": (["session_id"], ["session_id"]),
    "job_list": ([], []),
    "job_run": (["job_id", "run_id"], ["job_id"]),
}


@pytest.fixture
def server(servers: SharedServers) -> Iterator[LiveServer]:
    with servers.borrowed(LiveServer, NO_LIMITS) as live:
        yield live


@asynccontextmanager
async def calling(caller: Caller, name: str, **arguments: Any) -> AsyncIterator[asyncio.Task[Any]]:
    """A call in the background."""
    task = asyncio.create_task(caller.call(name, **arguments))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_tools_have_the_names_and_parameters_that_callers_rely_on(server: LiveServer) -> None:
    async with talking(server.data) as caller:
        listed = (await caller.client.list_tools()).tools
    found = {
        tool.name: (list(tool.input_schema["properties"]), tool.input_schema.get("required", [])) for tool in listed
    }
    assert found == PARAMETERS
    for tool in listed:
        assert tool.description and tool.input_schema["type"] == "object"
        assert all(part["description"].endswith(".") for part in tool.input_schema["properties"].values())
        assert tool.output_schema is not None and tool.output_schema["type"] == "object"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_session_is_started_prompted_listed_and_closed_by_new_and_old_clients(
    server: LiveServer, mode: str, tmp_path: Path
) -> None:
    async with talking(server.data, mode) as caller:
        session = await caller.done("start", agent="rehearsal", workdir=str(tmp_path), title="A child")
        assert session["session_id"] in {entry["id"] for entry in server.get("/api/sessions")["sessions"]}
        assert session["agent_key"] == f"rehearsal@{tmp_path}"
        assert (session["status"], session["turn_count"], session["title"]) == ("active", 0, "A child")
        where = {"session_id": session["session_id"]}
        first = await caller.done("prompt", **where, prompt="say one")
        assert (first["status"], first["turn_number"], text(first)) == ("completed", 1, "one")
        assert first["output"] == [{"role": "agent", "parts": [{"content_type": "text/plain", "content": "one"}]}]
        second = await caller.done("prompt", **where, prompt="recall")
        assert second["turn_number"] == 2 and "say one" in text(second)
        assert second["run_id"] != first["run_id"] and second["finished_at"] >= second["created_at"]
        (listed,) = (await caller.done("list"))["sessions"]
        assert (listed["session_id"], listed["turn_count"]) == (session["session_id"], 2)
        closed = {**where, "status": "closed"}
        assert await caller.done("close", **where) == closed
        assert await caller.done("close", **where) == closed
        assert await caller.done("list") == {"sessions": [], "more": False}
        (ended,) = (await caller.done("list", status="closed"))["sessions"]
        assert ended["status"] == "closed" and ended["state"] == "ended"


async def test_a_session_started_by_a_session_has_it_as_parent_on_the_same_server(server: LiveServer) -> None:
    parent = server.create()
    async with talking(server.data, PERDURE_SESSION=parent) as caller:
        assert server.session(await caller.start())["parent"] == parent
    async with talking(server.data, PERDURE_SESSION="s_elsewhere") as caller:
        assert server.session(await caller.start())["parent"] is None
        assert "no agent" in await caller.refused("start", agent="nobody")


async def test_sessions_are_listed_by_agent_and_by_status(server: LiveServer) -> None:
    async with talking(server.data) as caller:
        acp, stream = await caller.start(), await caller.start(agent="rehearsal-stream")
        await caller.done("prompt", session_id=acp, prompt="say one")

        async def found(**filters: str) -> list[str]:
            return [entry["session_id"] for entry in (await caller.done("list", **filters))["sessions"]]

        assert await found() == [acp, stream]
        assert await found(agent="rehearsal-stream") == [stream]
        assert await found(status="active") == [acp, stream]
        assert await found(status="idle") == await found(status="disconnected") == await found(status="closed") == []


async def test_a_prompt_never_waits_for_a_slot_because_its_caller_may_hold_the_last_one(servers: SharedServers) -> None:
    with servers.borrowed(LiveServer, NO_LIMITS.replace("\nslots = 0", "\nslots = 1")) as server:
        parent = server.create(title="parent")
        server.send(parent, "hang")
        async with talking(server.data, PERDURE_SESSION=parent) as caller:
            child = await caller.start()
            said = await caller.refused("prompt", session_id=child, prompt="say x")
            assert "slots = 1" in said and "slots_full" in said
            assert server.session(child)["state"] == "idle"
            # A session with a message that is waiting for a slot is listed as active.
            assert server.send(child, "say waited")["state"] == "accepted"
            listed = {one["session_id"]: one for one in (await caller.done("list", status="active"))["sessions"]}
            assert (listed[child]["state"], listed[child]["turn_count"]) == ("accepted", 0)


async def test_a_relative_directory_is_resolved_against_the_clients_directory(
    server: LiveServer, tmp_path: Path
) -> None:
    async with talking(server.data, cwd=tmp_path) as caller:
        assert (await caller.done("start", agent="rehearsal", workdir="."))["workdir"] == str(tmp_path)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("start", {}, "agent is missing"),
    ("start", {"agent": "nobody"}, "Known agents: "),
    ("start", {"agent": "rehearsal", "workdir": "/no/such/place"}, "is not a directory"),
    ("prompt", {"session_id": "s_none", "prompt": "say hi"}, "There is no session s_none"),
    ("prompt", {"session_id": "s_none", "prompt": 7}, "prompt must be text, not a whole number"),
    ("list", {"status": "asleep"}, "status can't be 'asleep': use "),
    ("close", {"session_id": "s_none"}, "There is no session s_none"),
    ("job_run", {}, "job_id is missing"),
    ("job_run", {"job_id": "nothing"}, "There is no job 'nothing'"),
]


async def test_a_refusal_is_a_tool_error_with_a_message(server: LiveServer) -> None:
    async with talking(server.data) as caller:
        for name, arguments, sentence in REFUSED:
            assert sentence in await caller.refused(name, **arguments)
        assert await caller.done("list") == {"sessions": [], "more": False}


async def test_jobs_are_listed_and_run_once_for_each_run_id(server: LiveServer) -> None:
    fields = {"name": "Greet", "message": "say hello " + "x" * 1000, "every_s": 3600, "time_zone": "UTC"}
    server.post("/api/jobs", fields, expect=201)
    async with talking(server.data) as caller:
        listed = await caller.done("job_list")
        (job,) = listed["jobs"]
        assert (job["job_id"], job["schedule"], job["state"], listed["more"]) == (
            "greet",
            "Every hour",
            "active",
            False,
        )
        assert len(job["message"]) < 600 and "last_run" not in job and "reason" not in job
        run = await caller.done("job_run", job_id="greet", run_id="mine")
        assert (run["job_id"], run["trigger"]) == ("greet", "manual")

        async with asyncio.timeout(WAIT_S):
            while (again := await caller.done("job_run", job_id="greet", run_id="mine"))["state"] != "ended":
                pass
        assert (again["id"], again["outcome"], again["session_id"]) == (run["id"], "completed", run["session_id"])
        assert len(server.get("/api/jobs/greet/runs")["runs"]) == 1
        server.post("/api/jobs/greet/pause", expect=200)
        (job,) = (await caller.done("job_list"))["jobs"]
        assert job["state"] == "paused" and job["last_run"]["outcome"] == "completed" and "next_run_at" not in job


async def test_an_empty_prompt_and_an_ended_session_are_refused(server: LiveServer) -> None:
    async with talking(server.data) as caller:
        session = await caller.start()
        assert "must not be empty" in await caller.refused("prompt", session_id=session, prompt=" ")
        await caller.done("close", session_id=session)
        assert "has ended" in await caller.refused("prompt", session_id=session, prompt="say hi")


async def test_an_unknown_tool_is_a_protocol_error(server: LiveServer) -> None:
    from mcp import MCPError

    async with talking(server.data) as caller:
        with pytest.raises(MCPError, match="Tools: agent_session_start"):
            await caller.call("fly")


async def test_null_counts_as_omitted(server: LiveServer) -> None:
    async with talking(server.data) as caller:
        session = await caller.start(workdir=None, title=None)
        run = await caller.done("prompt", session_id=session, prompt="say hi", message_id=None)
        assert text(run) == "hi"


async def test_a_failed_turn_is_a_tool_error_with_the_output_so_far(server: LiveServer) -> None:
    async with talking(server.data) as caller:
        session = await caller.start()
        result = await caller.call("prompt", session_id=session, prompt="say partly\ncrash 3")
        run = structured(result)
        assert result.is_error and run["status"] == "failed"
        assert text(run).startswith("partly") and run["error"]["code"] and run["error"]["message"]
        assert json.loads(said(result)) == run
        assert text(await caller.done("prompt", session_id=session, prompt="say again")) == "again"


async def test_a_very_long_answer_keeps_its_end(server: LiveServer) -> None:
    async with talking(server.data) as caller:
        session = await caller.start()
        lines = f"say the beginning\nbig {2 * answers.OUTPUT_CHARS}\nsay the end"
        run = await caller.done("prompt", session_id=session, prompt=lines)
    assert run["truncated"] and len(text(run)) == answers.OUTPUT_CHARS
    assert text(run).endswith("the end") and "the beginning" not in text(run)


async def test_a_running_turn_reports_progress_and_refuses_another_prompt(server: LiveServer) -> None:
    async with talking(server.data) as caller:
        session = await caller.start()
        async with calling(caller, "prompt", session_id=session, prompt="say at work\nhang") as running:
            await caller.until_told("at work")
            assert "A turn is running" in await caller.refused("prompt", session_id=session, prompt="say hi")
            (listed,) = (await caller.done("list"))["sessions"]
            assert (listed["state"], listed["turn_count"]) == ("processing", 0)
            server.post(f"/api/sessions/{session}/abort", expect=202)
            run = structured(await running)
        assert (run["status"], run["stop_reason"]) == ("cancelled", "cancelled")
        assert caller.told[:2] == [
            "Starting the agent.",
            f"Turn 1 has started. Its message_id is {run['message_id']}.",
        ]


async def test_closing_a_session_ends_the_call_that_waits_for_it(server: LiveServer) -> None:
    async with talking(server.data) as caller:
        session = await caller.start()
        async with calling(caller, "prompt", session_id=session, prompt="say at work\nhang") as running:
            await caller.until_told("at work")
            await caller.done("close", session_id=session)
            assert structured(await running)["status"] == "cancelled"


@pytest.mark.parametrize(
    ("prompt", "kind", "answer", "rest"),
    [
        ("permit Deploy", "permission", {"option_id": "allow_once"}, "allow"),
        ("ask Which one? | A | B", "question", None, "B"),
    ],
)
async def test_a_turn_that_needs_an_answer_returns_immediately_and_finishes_on_the_next_call(
    server: LiveServer, prompt: str, kind: str, answer: dict[str, Any] | None, rest: str
) -> None:
    async with talking(server.data) as caller:
        session = await caller.start()
        run = await caller.done("prompt", session_id=session, prompt=prompt)
        (waiting,) = run["pending_prompts"]
        assert (run["status"], waiting["kind"]) == ("awaiting", kind) and "finished_at" not in run
        assert waiting["answer_with"] == f"perdure answer {session} {waiting['prompt_id']}"
        assert waiting["answer_with"] in run["next_step"] and run["message_id"] in run["next_step"]
        assert (await caller.done("list"))["sessions"][0]["pending_prompts"] == 1
        again = {"session_id": session, "prompt": prompt, "message_id": run["message_id"]}
        async with calling(caller, "prompt", **again) as call:
            await caller.until_told("Waiting for a person")
            if answer is None:
                answer = {"answers": {question["question_id"]: "B" for question in waiting["questions"]}}
            server.post(f"/api/sessions/{session}/prompts/{waiting['prompt_id']}", answer, expect=200)
            ended = structured(await call)
    assert (ended["status"], ended["run_id"]) == ("completed", run["run_id"])
    assert rest in text(ended) and len(server.transcript(session)) == 1


async def test_a_permission_granted_by_a_rule_is_not_reported(tmp_path: Path) -> None:
    rule = '[projects.here]\npath = "/"\npermissions = [{ tool = "*", action = "allow" }]\n'
    live = LiveServer(tmp_path / "data", NO_LIMITS + rule).start()
    try:
        session = live.create(project="here", agent="rehearsal")
        async with talking(live.data) as caller:
            run = await caller.done("prompt", session_id=session, prompt="permit Deploy")
        assert run["status"] == "completed", run
    finally:
        live.finish()


@pytest.mark.full
async def test_a_call_keeps_waiting_while_the_server_is_killed_and_restarted(server: LiveServer) -> None:
    async with talking(server.data) as caller:
        session = await caller.start()
        async with calling(caller, "prompt", session_id=session, prompt="stream 60 50") as call:
            await caller.until_told("w0 ")
            server.kill()
            await caller.until_told("The server is unreachable")
            server.restart()
            run = structured(await call)
    assert run["status"] == "completed"
    assert text(run).split() == [f"w{number}" for number in range(60)]


@pytest.mark.full
async def test_a_client_that_disconnects_leaves_its_turn_running_and_finds_it_again(server: LiveServer) -> None:
    async with talking(server.data) as caller:
        session = await caller.start()
        slow = {"session_id": session, "prompt": "stream 20 50\nsay done", "message_id": "mine"}
        async with calling(caller, "prompt", **slow):
            await caller.until_told("w0 ")
    async with talking(server.data) as caller:
        run = await caller.done("prompt", **slow)
        assert run["status"] == "completed" and text(run).endswith("done")
        assert await caller.done("prompt", **slow) == run
        assert "another text" in await caller.refused("prompt", **{**slow, "prompt": "say something else"})
    assert len(server.transcript(session)) == 1


@pytest.mark.full
async def test_an_abandoned_call_stops_nothing_and_the_connection_survives(server: LiveServer) -> None:
    async with talking(server.data) as caller:
        session = await caller.start()
        slow = {"session_id": session, "prompt": "stream 20 50\nsay done", "message_id": "mine"}
        async with calling(caller, "prompt", **slow):
            await caller.until_told("w0 ")
        assert (await caller.done("list"))["sessions"][0]["turn_count"] in (0, 1)
        assert text(await caller.done("prompt", **slow)).endswith("done")
    assert len(server.transcript(session)) == 1


@pytest.mark.full
def test_closing_stdin_ends_the_server_even_during_a_turn(server: LiveServer) -> None:
    session = server.create(agent="rehearsal")
    environment = {"PYTHONPATH": SOURCE, "HOME": str(server.data), "PATH": "/usr/bin:/bin"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command(server.data), stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        for line in _by_hand(session, "say at work\nhang"):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n")
        process.stdin.flush()
        lines = b""
        while b"notifications/progress" not in lines:
            assert select.select([process.stdout], [], [], WAIT_S)[0], lines
            lines += os.read(process.stdout.fileno(), 65536)
        process.stdin.close()
        assert process.wait(WAIT_S) == 0
        assert process.stderr.read() == b""
    assert server.session(session)["state"] == "processing"


def _by_hand(session: str, prompt: str) -> list[dict[str, Any]]:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "by hand", "version": "1"}}
    arguments = {"session_id": session, "prompt": prompt}
    call = {"name": "agent_session_prompt", "arguments": arguments, "_meta": {"progressToken": 1}}
    return [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ]


async def test_without_a_server_each_tool_says_how_to_start_one_and_works_once_it_runs(tmp_path: Path) -> None:
    live = LiveServer(tmp_path / "data", NO_LIMITS)
    async with talking(live.data) as caller:
        for name in ("list", "start"):
            arguments = {"agent": "rehearsal"} if name == "start" else {}
            assert "Start one with `perdure serve`." in await caller.refused(name, **arguments)
        live.start()
        try:
            assert await caller.start()
        finally:
            live.finish()


@pytest.mark.full
async def test_a_server_that_stays_unreachable_ends_the_call_with_the_message_id(server: LiveServer) -> None:
    session = server.create(agent="rehearsal")

    async def report(words: str) -> None:
        if words == "at work":
            server.kill()

    from perdure.surfaces.mcp.server import Delegate

    delegate = Delegate(lambda: Client(Address(server.url, "test-token-of-the-tests")), lost_limit_s=0.5)
    prompt = {"session_id": session, "prompt": "say at work\nhang", "message_id": "mine"}
    async with asyncio.timeout(WAIT_S):
        result = await delegate.call("agent_session_prompt", prompt, report)
    assert result.is_error and "message_id mine" in said(result)


def test_the_command_says_what_to_install_if_the_package_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "perdure.surfaces.mcp.server", raising=False)
    assert cli.main(["--data", str(tmp_path), "mcp"]) == 1
    assert "pip install 'perdure[mcp]'" in capsys.readouterr().err


def test_no_other_command_imports_the_package() -> None:
    code = "import sys; from perdure.surfaces.cli import main; main(['mcp', '--help']); print('mcp' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S)
    assert shown.stdout.splitlines()[-1] == "False"
