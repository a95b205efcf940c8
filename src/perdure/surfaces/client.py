"""The synchronous client for the command line and for Python programs.

Above: cli/, mcp/, and programs. Below: changes_client.py for changes to files, transport.py and stream.py. It knows the
HTTP API, but nothing about the server's internals.

It makes three promises:
- Sending is idempotent. Each message carries a `message_id`, so it can be retried after a broken connection.
- An event stream resumes after a disconnect or a server restart, without gaps or duplicates. If the server can't resume
  at the position, it sends a `snapshot`, which the stream passes on.
- If the server refuses a request, the client raises `Problem` with the error code and message. If no server is
  reachable, it raises `Unreachable`.

It deliberately holds no session state: the caller interprets the events.
"""

import base64
import mimetypes
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from perdure.surfaces.api_paths import given, job_path, node_path, project_path, session_path
from perdure.surfaces.changes_client import OPERATION_TIMEOUT_S, ChangesClient, Outside, Point, Strategy, WhenBusy
from perdure.surfaces.idempotency import new_message_id, new_run_id
from perdure.surfaces.stream import EventStream
from perdure.surfaces.transport import (
    Address,
    ClientError,
    Json,
    NeverSent,
    Problem,
    Unreachable,
    problem_of,
)

__all__ = [
    "Address",
    "Client",
    "ClientError",
    "Files",
    "Json",
    "NeverSent",
    "Outside",
    "Point",
    "Problem",
    "Strategy",
    "Unreachable",
    "WhenBusy",
    "WhenFull",
    "Workspace",
    "attached",
    "new_message_id",
    "problem_of",
]

PAGE_LIMIT = 200
LOG_PAGE_EVENTS = 5000

WhenFull = Literal["wait", "refuse"]
Workspace = Literal["directory", "worktree"]
Files = Literal["keep", "restore"]


class Client(ChangesClient):
    """A client for one server, with a method for each operation of the API.

    `locate` is called again after a lost connection, because a restarted server may listen elsewhere. Idempotent
    requests are retried for `patience_s` seconds.
    """

    # Messages and sessions -------------------------------------------------------------------------------------------

    def send(
        self,
        text: str,
        session_id: str | None = None,
        *,
        message_id: str | None = None,
        agent: str | None = None,
        fresh: bool = False,
        when_busy: WhenBusy = "reject",
        when_full: WhenFull = "wait",
        project: str | None = None,
        workdir: str | None = None,
        kickoff: bool = False,
        parent: str | None = None,
        attachments: Sequence[Json] = (),
        model: str | None = None,
        mode: str | None = None,
        workspace: Workspace | None = None,
    ) -> Json:
        """Send a message to a session, or to a new one. Idempotent for a given `message_id`.

        For a new session: `kickoff` uses the project's template as the first message, with `text` inserted; `parent` is
        the parent session; `model` and `mode` apply to it; with `workspace="worktree"` it works in its own worktree of
        the repository. `attached(path)` turns a file into an attachment.

        If no slot is free, the result's `state` is `accepted` and `waits_for` says what the message is waiting for. The
        turn starts when there is a slot. With `when_full="refuse"`, the server refuses the message with `slots_full`
        instead."""
        body: Json = {"text": text, "message_id": message_id or new_message_id(), "when_busy": when_busy}
        body |= {"fresh": True} if fresh else {}
        body |= {"when_full": when_full} if when_full != "wait" else {}
        body |= {"agent": agent} if agent else {}
        body |= {"attachments": list(attachments)} if attachments else {}
        if session_id is not None:
            return self._json("POST", session_path(session_id, "messages"), body=body, repeatable=True)
        body |= {"project": project} if project else {}
        body |= {"workdir": workdir} if workdir else {}
        body |= {"kickoff": True} if kickoff else {}
        body |= {"parent": parent} if parent else {}
        body |= given(model=model, mode=mode, workspace=workspace)
        # The server derives the new session's id from the message id, so a retry finds the session.
        return self._json("POST", "/api/messages", body=body, repeatable=True)

    def begin_run(self, /, text: str, *, message_id: str | None = None, **fields: Any) -> Json:
        """Start a single-shot run. Returns what `send` returns. The session ends with the turn."""
        body = {"text": text, "message_id": message_id or new_message_id(), **fields}
        return self._json("POST", "/api/run", body=body, params={"wait": "false"}, repeatable=True)

    def run(self, /, text: str, *, message_id: str | None = None, **fields: Any) -> Json:
        """Run one prompt to its end and return the run. Survives a lost connection and a server restart.

        `fields` are those of `POST /api/run`: agent, project, workdir, model, mode, timeout_s, permissions, when_full
        and others."""
        message_id = message_id or new_message_id()
        begun = self.begin_run(text, message_id=message_id, **fields)
        for event in self.events(begun["session_id"], begun["seq"] - 1):
            if event.type == "turn_end" and event.turn == begun["turn"]:
                break
        # Sending the same message id again returns the finished run immediately.
        body = {"text": text, "message_id": message_id, **fields}
        return self._json("POST", "/api/run", body=body, repeatable=True)

    def create_session(self, /, **fields: Any) -> Json:
        return self._json("POST", "/api/sessions", body=fields, repeatable=False)

    def import_session(self, session: Json) -> Json:
        """Import a session. Raises a Problem with the code `conflict` if it exists already."""
        return self._json("POST", "/api/import", body=session, repeatable=True)

    def start_session(self, /, agent: str, **fields: Any) -> Json:
        """Start a session and its agent. Returns it in Diane's format, with the available models and modes."""
        return self._json("POST", f"/agents/{quote(agent, safe='')}/sessions", body=fields, repeatable=False)

    def sessions(self, /, **filters: Any) -> Json:
        """One page: `{sessions, next_cursor}`."""
        return self._json("GET", "/api/sessions", params=filters)

    def all_sessions(self, /, **filters: Any) -> Iterator[Json]:
        cursor: str | None = None
        while True:
            page = self.sessions(**{"limit": PAGE_LIMIT, **filters}, cursor=cursor)
            yield from page["sessions"]
            cursor = page.get("next_cursor")
            if not cursor:
                return

    def session(self, session_id: str, *, limit: int | None = None, cursor: str | None = None) -> Json:
        """The session with its newest turns, or with those before `cursor`. `next_cursor` leads to older turns."""
        return self._json("GET", session_path(session_id), params={"limit": limit, "cursor": cursor})

    def whole_session(self, session_id: str) -> Json:
        """The session with all its turns."""
        session = page = self.session(session_id, limit=PAGE_LIMIT)
        turns = [page["turns"]]
        while cursor := page.get("next_cursor"):
            page = self.session(session_id, limit=PAGE_LIMIT, cursor=cursor)
            turns.append(page["turns"])
        return {**session, "turns": [turn for older in reversed(turns) for turn in older], "next_cursor": None}

    def explain(self, session_id: str) -> Json:
        return self._json("GET", session_path(session_id, "explain"))

    def abort(self, session_id: str) -> Json:
        return self._json("POST", session_path(session_id, "abort"), repeatable=False)

    def stop(self, session_id: str) -> Json:
        return self._json("POST", session_path(session_id, "stop"), repeatable=True)

    def close_session(self, session_id: str) -> Json:
        """End a session as completed. Idempotent."""
        return self._json("DELETE", session_path(session_id), repeatable=True)

    def erase(self, session_id: str) -> None:
        """End a session and delete it permanently."""
        self._ask("DELETE", session_path(session_id), params={"purge": "true"}, repeatable=False)

    def set_config(self, session_id: str, config_id: str, value: str | bool | float) -> Json:
        """Set the model, mode or another option of the session's agent."""
        body = {"config_id": config_id, "value": value}
        return self._json("POST", session_path(session_id, "config"), body=body)

    def change_session(self, session_id: str, /, **changes: Any) -> Json:
        """Change the title, summary, labels (the whole list) or archived flag. Returns the changed session."""
        return self._json("PATCH", session_path(session_id), body=changes)

    def queue(self, session_id: str) -> list[Json]:
        """The messages that are waiting for the running turn to end, in order."""
        return _queue(self._json("GET", session_path(session_id, "queue")))

    def edit_queued(self, session_id: str, message_id: str, text: str) -> list[Json]:
        """Change the text of a queued message. Returns the queue."""
        return _queue(self._json("PATCH", session_path(session_id, "queue", message_id), body={"text": text}))

    def unqueue(self, session_id: str, message_id: str) -> list[Json]:
        """Withdraw a queued message. Returns the queue."""
        return _queue(self._json("DELETE", session_path(session_id, "queue", message_id), repeatable=False))

    def files(self, session_id: str, letters: str = "", *, limit: int | None = None) -> list[str]:
        """Files in the session's working directory whose paths contain these letters."""
        params = {"q": letters, "limit": limit}
        found: list[str] = self._json("GET", session_path(session_id, "files"), params=params)["files"]
        return found

    def prompts(self, session_id: str) -> list[Json]:
        found: list[Json] = self._json("GET", session_path(session_id, "prompts"))["prompts"]
        return found

    def answer(self, session_id: str, prompt_id: str, answer: Json) -> Json:
        return self._json("POST", session_path(session_id, "prompts", prompt_id), body=answer, repeatable=False)

    # History ---------------------------------------------------------------------------------------------------------

    def edit_message(
        self,
        session_id: str,
        message_id: str,
        text: str,
        *,
        revision: int | None = None,
        files: Files = "keep",
        outside: Outside | None = None,
    ) -> Json:
        """Change the text of a message in the visible history. Returns the changed session. With `revision` (a field of
        sessions and transcripts), fails with `conflict` if the history has changed since.

        With `files="restore"`, the files go back to before the message's turn in the same step; `outside` is as in
        `restore`."""
        path = session_path(session_id, "messages", message_id)
        body = given(text=text, revision=revision) | _files(files, outside)
        return self._json("PATCH", path, body=body, repeatable=False, timeout_s=_patience(files))

    def rewind(
        self,
        session_id: str,
        turn: int,
        *,
        revision: int | None = None,
        files: Files = "keep",
        outside: Outside | None = None,
    ) -> Json:
        """Remove this turn and all later turns from the visible history. Returns the changed session. `files` and
        `outside` are as in `edit_message`."""
        body = given(turn=turn, revision=revision) | _files(files, outside)
        path = session_path(session_id, "rewind")
        return self._json("POST", path, body=body, repeatable=False, timeout_s=_patience(files))

    def retry(
        self,
        session_id: str,
        turn: int,
        *,
        text: str | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        revision: int | None = None,
        when_full: WhenFull = "wait",
        files: Files = "keep",
        outside: Outside | None = None,
    ) -> Json:
        """Remove this turn and all later turns, and send its message again. Returns what `send` returns. Idempotent for
        a given `message_id`. Always restarts the agent's context. `files` and `outside` are as in `edit_message`."""
        message_id = message_id or new_message_id()
        body = given(turn=turn, text=text, agent=agent, message_id=message_id, revision=revision)
        body |= {"when_full": when_full} if when_full != "wait" else {}
        body |= _files(files, outside)
        path = session_path(session_id, "retry")
        return self._json("POST", path, body=body, repeatable=True, timeout_s=_patience(files))

    def fork(self, session_id: str, turn: int | None = None, *, agent: str | None = None) -> Json:
        """Start a session with this history, up to and including `turn`."""
        body = given(turn=turn, agent=agent)
        return self._json("POST", session_path(session_id, "fork"), body=body, repeatable=False)

    def plan(self, session_id: str, *, agent: str | None = None, fresh: bool = False) -> Json:
        """The context that the next turn would get, and why. Changes nothing."""
        body = given(agent=agent, fresh=fresh)
        return self._json("POST", session_path(session_id, "plan"), body=body, repeatable=True)

    def usage(self, /, group_by: str = "day", **filters: str | None) -> Json:
        """Tokens, cost and time of turns: `{group_by, usage, total}`. Filters: since, until, agent, project,
        session."""
        return self._json("GET", "/api/usage", params={"group_by": group_by, **filters})

    # Reading ---------------------------------------------------------------------------------------------------------

    def events(
        self,
        session_id: str,
        position: int | str | None = None,
        *,
        on_lost: Callable[[str], None] | None = None,
        on_back: Callable[[], None] | None = None,
    ) -> EventStream:
        """The session's events after `position`, live, until the session ends. Without a position, starts with a
        snapshot."""
        return EventStream(self, session_path(session_id, "events"), position, on_lost, on_back)

    def changes(
        self, *, on_lost: Callable[[str], None] | None = None, on_back: Callable[[], None] | None = None
    ) -> EventStream:
        """Changes in all sessions from now on, live and without end: turns, prompts, titles, ends. For text and tools,
        use `events` of one session."""
        return EventStream(self, "/api/events", None, on_lost, on_back, all_sessions=True)

    def transcript(self, session_id: str, from_turn: int = 1, *, rewound: bool = False) -> Json:
        """The turns in full. With `rewound`, includes rewound turns, which are marked."""
        params = {"from_turn": from_turn, "rewound": "true" if rewound else None}
        return self._json("GET", session_path(session_id, "transcript"), params=params)

    def transcript_markdown(self, session_id: str) -> str:
        params = {"format": "markdown"}
        return self._ask("GET", session_path(session_id, "transcript"), params=params).content.decode()

    def log(self, session_id: str) -> Iterator[bytes]:
        """The session's stored events, one JSON line each."""
        position = 0
        while True:
            params = {"offset": position, "limit": LOG_PAGE_EVENTS}
            page = self._ask("GET", session_path(session_id, "log"), params=params).content
            lines = [line for line in page.split(b"\n") if line]
            yield from lines
            if len(lines) < LOG_PAGE_EVENTS:
                return
            position = int(msgspec.json.decode(lines[-1])["seq"])

    def attachments(self, session_id: str) -> list[Json]:
        """The attachments of all messages, oldest first, each with `message_id` and `turn` (None while the message is
        queued). An attachment without `file` is only a reference and can't be fetched."""
        turns = self.transcript(session_id, rewound=True)["turns"]
        messages = [{**turn["message"], "turn": turn["turn"]} for turn in turns if turn["message"]]
        messages += [{**waiting, "turn": None} for waiting in self.queue(session_id)]
        return [
            {"turn": message["turn"], "message_id": message["message_id"], **attachment}
            for message in messages
            for attachment in message["attachments"]
        ]

    def attachment(self, session_id: str, file: str) -> bytes:
        """The content of an attachment."""
        return self._ask("GET", session_path(session_id, "attachments", file)).content

    # Server, agents and projects -------------------------------------------------------------------------------------

    def health(self) -> Json:
        return self._json("GET", "/api/health")

    def server(self) -> Json:
        """The server's state: what it runs and uses, and what is damaged."""
        return self._json("GET", "/api/server")

    def directory(self, path: str) -> Json:
        """What the server knows about a directory: its identity, the projects that contain it, and the state of its git
        repository."""
        return self._json("GET", "/api/directory", params={"path": path})

    def directories(self, path: str | None = None, *, limit: int | None = None, recent: bool = True) -> Json:
        """Directories on the server whose path starts with `path`; with `recent`, also recent ones and projects."""
        params = {"path": path, "limit": limit, "recent": None if recent else "false"}
        return self._json("GET", "/api/directories", params=params)

    def default_agent(self) -> str:
        return str(self._json("GET", "/api/agents")["default"])

    def agents(self) -> list[Json]:
        found: list[Json] = self._json("GET", "/api/agents")["agents"]
        return found

    def agent(self, name: str) -> Json:
        return self._json("GET", f"/api/agents/{quote(name, safe='')}")

    def reload_agents(self) -> list[Json]:
        """Reload the agents from the server's perdure.toml. Returns them."""
        found: list[Json] = self._json("POST", "/api/agents/reload")["agents"]
        return found

    def catalogue(self) -> list[Json]:
        """The catalogue of agents."""
        found: list[Json] = self._json("GET", "/api/catalogue")["catalogue"]
        return found

    def projects(self) -> list[Json]:
        found: list[Json] = self._json("GET", "/api/projects")["projects"]
        return found

    def project(self, project_id: str) -> Json:
        """One project, by id or name."""
        return self._json("GET", project_path(project_id))

    def add_project(self, /, path: str, **fields: Any) -> Json:
        return self._json("POST", "/api/projects", body={"path": path, **fields}, repeatable=False)

    def change_project(self, project_id: str, /, **changes: Any) -> Json:
        """Change a project. Omitted settings stay; None resets a setting. Returns the changed project."""
        return self._json("PATCH", project_path(project_id), body=changes)

    def remove_project(self, project_id: str) -> None:
        self._ask("DELETE", project_path(project_id), repeatable=False)

    # Scheduled jobs --------------------------------------------------------------------------------------------------

    def jobs(self) -> list[Json]:
        found: list[Json] = self._json("GET", "/api/jobs")["jobs"]
        return found

    def job(self, job_id: str) -> Json:
        """One job: its settings, its state, the next five due times and its last run."""
        return self._json("GET", job_path(job_id))

    def add_job(self, /, name: str, message: str, **fields: Any) -> Json:
        """Schedule a message. Give `cron` or `every_s`; the other fields are those of `POST /api/jobs`. `time_zone`
        defaults to the server's."""
        return self._json("POST", "/api/jobs", body={"name": name, "message": message, **fields}, repeatable=False)

    def change_job(self, job_id: str, /, **changes: Any) -> Json:
        """Change a job. Omitted settings stay; None resets a setting. Returns the changed job."""
        return self._json("PATCH", job_path(job_id), body=changes)

    def remove_job(self, job_id: str) -> None:
        """Remove a job and its history. Its sessions stay."""
        self._ask("DELETE", job_path(job_id), repeatable=False)

    def pause_job(self, job_id: str) -> Json:
        return self._json("POST", job_path(job_id, "pause"), repeatable=True)

    def resume_job(self, job_id: str) -> Json:
        return self._json("POST", job_path(job_id, "resume"), repeatable=True)

    def run_job(self, job_id: str, run_id: str | None = None) -> Json:
        """Run a job now. Returns the run, which has started or is waiting for the previous one. Idempotent for a given
        `run_id`."""
        return self._json("POST", job_path(job_id, "run"), body={"run_id": run_id or new_run_id()}, repeatable=True)

    def job_runs(self, job_id: str, *, limit: int | None = None, cursor: str | None = None) -> Json:
        """One page of a job's runs, newest first: `{runs, next_cursor}`."""
        return self._json("GET", job_path(job_id, "runs"), params={"limit": limit, "cursor": cursor})

    def preview_schedule(self, /, **fields: Any) -> Json:
        """Describe a schedule and its next runs: `{schedule, time_zone, next_runs}`. Stores nothing. The fields are
        cron or every_s, time_zone, starts_at and until."""
        return self._json("POST", "/api/jobs/preview", body=fields, repeatable=True)

    # Nodes -----------------------------------------------------------------------------------------------------------

    def nodes(self) -> list[Json]:
        """All nodes; with SQLite, only this server."""
        found: list[Json] = self._json("GET", "/api/nodes")["nodes"]
        return found

    def drain_node(self, node: str) -> Json:
        """Stop starting new turns on a node, given by id or name. Returns the node."""
        return self._json("POST", node_path(node, "drain"), repeatable=True)

    def resume_node(self, node: str) -> Json:
        """Resume a draining node."""
        return self._json("POST", node_path(node, "resume"), repeatable=True)

    def remove_node(self, node: str) -> Json:
        """Remove a node that will not return. `sessions` is the number of sessions that now have no node."""
        return self._json("DELETE", node_path(node), repeatable=False)

    def move_sessions(self, to: str, session_ids: Sequence[str] = (), *, from_node: str | None = None) -> Json:
        """Move these sessions, or all sessions of `from_node`, to a node: `{to, moved, failed}`. Raises a Problem if
        you give only one session and it can't be moved."""
        body: Json = {"session_ids": list(session_ids)} | given(**{"from": from_node})
        return self._json("POST", node_path(to, "move"), body=body, repeatable=True)

    def ready(self) -> Json:
        """Check that the server accepts requests. Raises a Problem with the code `unavailable` if it does not."""
        return self._json("GET", "/api/ready")

    # Signing in ------------------------------------------------------------------------------------------------------

    def login_link(self) -> str:
        """A one-time link that signs in a browser."""
        path = self._json("POST", "/api/login-links", repeatable=False)["path"]
        return self.url.rstrip("/") + str(path)

    def logins(self) -> list[Json]:
        """The signed-in browsers."""
        found: list[Json] = self._json("GET", "/api/logins")["logins"]
        return found

    def end_login(self, login_id: str) -> None:
        """Sign out a browser."""
        self._ask("DELETE", f"/api/logins/{quote(login_id, safe='')}", repeatable=False)

    def end_logins(self) -> int:
        """Sign out all browsers. Returns their number."""
        return int(self._json("DELETE", "/api/logins", repeatable=False)["ended"])


def attached(path: str | os.PathLike[str]) -> Json:
    """An attachment for a message, with the content of this file."""
    file = Path(path)
    mime_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return {"name": file.name, "mime_type": mime_type, "data": base64.b64encode(file.read_bytes()).decode()}


def _files(files: Files, outside: Outside | None) -> Json:
    return given(files=files if files != "keep" else None, outside=outside)


def _patience(files: Files) -> float | None:
    return None if files == "keep" else OPERATION_TIMEOUT_S


def _queue(answer: Json) -> list[Json]:
    found: list[Json] = answer["queue"]
    return found
