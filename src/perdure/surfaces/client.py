"""The synchronous client: what the command line, and programs in Python, reach a server with.

Above: cli/. Below: HTTP and sse.py. It knows the wire and nothing of the server's inside.

It stands on httpx2: its import takes 70 to 90 ms on the machine where `http.client` takes 25, which is below the
120 ms that a command may lose, and it brings pooled connections, timeouts for each phase, and TLS done right. It is
imported when the first request is made, so a command that needs no server does not pay for it.

Three promises. A send carries a `message_id`, so that it can be repeated after a broken connection and is taken once.
An event stream goes on after a disconnect or a server's restart at the position where it was, without a gap or a
double; where the server can't serve the position it sends a `snapshot`, which is passed on as such. What the server
refuses is a `Problem` with its code and sentence; no server is `Unreachable`.

It deliberately keeps no state of a session: what events mean is for the reader to say.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote, urlsplit

import msgspec

from perdure.surfaces.stream import EventStream

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 60.0
RETRY_FIRST_S = 0.1
RETRY_MAX_S = 2.0
PAGE_LIMIT = 200
LOG_PAGE_EVENTS = 5000
LOOPBACK = ("127.0.0.1", "localhost", "::1")

WhenBusy = Literal["reject", "queue", "interrupt"]
Json = dict[str, Any]


class Address(NamedTuple):
    """Where a server is, and what lets us in."""

    url: str
    token: str | None = None


class ClientError(Exception):
    """What can go wrong on the way to a server."""


class Unreachable(ClientError):
    """No server answers, or the connection broke before its answer came."""


class Problem(ClientError):
    """The server refused: a code, a sentence that says what to do, and facts that help."""

    def __init__(self, status: int, code: str, detail: str, facts: Json) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.facts = facts


class Client:
    """One server. `locate` is asked again after a lost connection, as a restarted server may listen elsewhere.

    With `patience_s` a request that can be repeated is, until it is answered or that time is over.
    """

    def __init__(self, locate: Address | Callable[[], Address], *, patience_s: float = 0.0) -> None:
        self._locate: Callable[[], Address] = (lambda: locate) if isinstance(locate, Address) else locate
        self.patience_s = patience_s
        self.answer_timeout_s = ANSWER_TIMEOUT_S
        self._lock = threading.Lock()
        self._http: httpx2.Client | None = None
        self._closed = threading.Event()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed.set()
        self._disconnect()

    @property
    def url(self) -> str:
        return self._locate().url

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
        project: str | None = None,
        workdir: str | None = None,
        kickoff: bool = False,
        parent: str | None = None,
    ) -> Json:
        """Send a message: to a session, or to a new one. It is taken once, however often it is sent. With `kickoff` the
        project's template is a new session's first message, with `text` in its place; `parent` is the session that
        starts the new one."""
        body: Json = {"text": text, "message_id": message_id or new_message_id(), "when_busy": when_busy}
        body |= {"fresh": True} if fresh else {}
        body |= {"agent": agent} if agent else {}
        if session_id is not None:
            return self._json("POST", _session(session_id, "messages"), body=body, repeatable=True)
        body |= {"project": project} if project else {}
        body |= {"workdir": workdir} if workdir else {}
        body |= {"kickoff": True} if kickoff else {}
        body |= {"parent": parent} if parent else {}
        # The server makes the new session's id from the message's, so that a repeat finds it.
        return self._json("POST", "/api/messages", body=body, repeatable=True)

    def begin_run(self, /, text: str, *, message_id: str | None = None, **fields: Any) -> Json:
        """Begin a single run: what `send` answers. Its session closes itself when the turn is over."""
        body = {"text": text, "message_id": message_id or new_message_id(), **fields}
        return self._json("POST", "/api/run", body=body, params={"wait": "false"}, repeatable=True)

    def run(self, /, text: str, *, message_id: str | None = None, **fields: Any) -> Json:
        """One prompt, worked to its end: the run. A lost connection or a restarted server doesn't cost it.

        `fields` are those of `POST /api/run`: agent, project, workdir, model, mode, timeout_s, permissions ..."""
        message_id = message_id or new_message_id()
        begun = self.begin_run(text, message_id=message_id, **fields)
        for event in self.events(begun["session_id"], begun["seq"] - 1):
            if event.type == "turn_end" and event.turn == begun["turn"]:
                break
        # The same message again is the same run: it is over, and is answered at once.
        body = {"text": text, "message_id": message_id, **fields}
        return self._json("POST", "/api/run", body=body, repeatable=True)

    def create_session(self, /, **fields: Any) -> Json:
        return self._json("POST", "/api/sessions", body=fields, repeatable=False)

    def import_session(self, session: Json) -> Json:
        """A session that was kept elsewhere. A second time it is refused as a conflict: it is there already."""
        return self._json("POST", "/api/import", body=session, repeatable=True)

    def start_session(self, /, agent: str, **fields: Any) -> Json:
        """A new session with its agent running, in Diane's words: with the models and modes that there are."""
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

    def session(self, session_id: str) -> Json:
        return self._json("GET", _session(session_id))

    def explain(self, session_id: str) -> Json:
        return self._json("GET", _session(session_id, "explain"))

    def abort(self, session_id: str) -> Json:
        return self._json("POST", _session(session_id, "abort"), repeatable=False)

    def stop(self, session_id: str) -> Json:
        return self._json("POST", _session(session_id, "stop"), repeatable=True)

    def close_session(self, session_id: str) -> Json:
        """End it as completed. Again: the same."""
        return self._json("DELETE", _session(session_id), repeatable=True)

    def erase(self, session_id: str) -> None:
        """End it, and leave nothing of it."""
        self._ask("DELETE", _session(session_id), params={"purge": "true"}, repeatable=False)

    def set_config(self, session_id: str, config_id: str, value: str | bool | float) -> Json:
        """Set the model, the mode or another option of the session's agent."""
        body = {"config_id": config_id, "value": value}
        return self._json("POST", _session(session_id, "config"), body=body)

    def prompts(self, session_id: str) -> list[Json]:
        found: list[Json] = self._json("GET", _session(session_id, "prompts"))["prompts"]
        return found

    def answer(self, session_id: str, prompt_id: str, answer: Json) -> Json:
        return self._json("POST", _session(session_id, "prompts", prompt_id), body=answer, repeatable=False)

    # What was said ---------------------------------------------------------------------------------------------------

    def edit_message(self, session_id: str, message_id: str, text: str, *, revision: int | None = None) -> Json:
        """Another text for a message of the visible history; the session as it is then. With `revision`, which a
        session and a transcript carry, only if nobody has changed the history since: else `conflict`."""
        path = _session(session_id, "messages", message_id)
        return self._json("PATCH", path, body=_given(text=text, revision=revision), repeatable=False)

    def rewind(self, session_id: str, turn: int, *, revision: int | None = None) -> Json:
        """Drop this turn and all after it from the visible history; the session as it is then."""
        body = _given(turn=turn, revision=revision)
        return self._json("POST", _session(session_id, "rewind"), body=body, repeatable=False)

    def retry(
        self,
        session_id: str,
        turn: int,
        *,
        text: str | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        revision: int | None = None,
    ) -> Json:
        """Drop this turn and all after it, and send its message again: what `send` answers. It is done once, however
        often it is sent, and the agent is always told the conversation anew."""
        message_id = message_id or new_message_id()
        body = _given(turn=turn, text=text, agent=agent, message_id=message_id, revision=revision)
        return self._json("POST", _session(session_id, "retry"), body=body, repeatable=True)

    def fork(self, session_id: str, turn: int | None = None, *, agent: str | None = None) -> Json:
        """A new session that begins with this history, up to and with `turn`."""
        body = _given(turn=turn, agent=agent)
        return self._json("POST", _session(session_id, "fork"), body=body, repeatable=False)

    def plan(self, session_id: str, *, agent: str | None = None, fresh: bool = False) -> Json:
        """What the next turn would do, and why. Nothing is done."""
        body = _given(agent=agent, fresh=fresh)
        return self._json("POST", _session(session_id, "plan"), body=body, repeatable=True)

    def usage(self, /, group_by: str = "day", **filters: str | None) -> Json:
        """What turns have cost: `{group_by, usage, total}`. Filters: since, until, agent, project, session."""
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
        """The session's events after `position` (none: a snapshot first), live, until the session ends."""
        return EventStream(self, _session(session_id, "events"), position, on_lost, on_back)

    def transcript(self, session_id: str, from_turn: int = 1, *, rewound: bool = False) -> Json:
        """The turns in full; with `rewound` also those that are no longer visible, marked as such."""
        params = {"from_turn": from_turn, "rewound": "true" if rewound else None}
        return self._json("GET", _session(session_id, "transcript"), params=params)

    def transcript_markdown(self, session_id: str) -> str:
        params = {"format": "markdown"}
        return self._ask("GET", _session(session_id, "transcript"), params=params).content.decode()

    def log(self, session_id: str) -> Iterator[bytes]:
        """The session's events as they are kept, a JSON line each."""
        position = 0
        while True:
            params = {"offset": position, "limit": LOG_PAGE_EVENTS}
            page = self._ask("GET", _session(session_id, "log"), params=params).content
            lines = [line for line in page.split(b"\n") if line]
            yield from lines
            if len(lines) < LOG_PAGE_EVENTS:
                return
            position = int(msgspec.json.decode(lines[-1])["seq"])

    def attachment(self, session_id: str, file: str) -> bytes:
        """A file that came with a message."""
        return self._ask("GET", _session(session_id, "attachments", file)).content

    # The rest --------------------------------------------------------------------------------------------------------

    def health(self) -> Json:
        return self._json("GET", "/api/health")

    def server(self) -> Json:
        """How the server is: what it runs and uses, and what is damaged and set aside."""
        return self._json("GET", "/api/server")

    def agents(self) -> list[Json]:
        found: list[Json] = self._json("GET", "/api/agents")["agents"]
        return found

    def agent(self, name: str) -> Json:
        return self._json("GET", f"/api/agents/{quote(name, safe='')}")

    def reload_agents(self) -> list[Json]:
        """Let the server take the agents as its perdure.toml names them now."""
        found: list[Json] = self._json("POST", "/api/agents/reload")["agents"]
        return found

    def catalogue(self) -> list[Json]:
        """Agents that are known by name."""
        found: list[Json] = self._json("GET", "/api/catalogue")["catalogue"]
        return found

    def projects(self) -> list[Json]:
        found: list[Json] = self._json("GET", "/api/projects")["projects"]
        return found

    def add_project(self, /, path: str, **fields: Any) -> Json:
        return self._json("POST", "/api/projects", body={"path": path, **fields}, repeatable=False)

    def remove_project(self, project_id: str) -> None:
        self._ask("DELETE", f"/api/projects/{quote(project_id, safe='')}", repeatable=False)

    def login_link(self) -> str:
        """A link that signs one browser in, once."""
        path = self._json("POST", "/api/login-links", repeatable=False)["path"]
        return self.url.rstrip("/") + str(path)

    def logins(self) -> list[Json]:
        """The browsers that are signed in."""
        found: list[Json] = self._json("GET", "/api/logins")["logins"]
        return found

    def end_login(self, login_id: str) -> None:
        """Sign a browser out."""
        self._ask("DELETE", f"/api/logins/{quote(login_id, safe='')}", repeatable=False)

    def end_logins(self) -> int:
        """Sign every browser out; how many there were."""
        return int(self._json("DELETE", "/api/logins", repeatable=False)["ended"])

    # The connection --------------------------------------------------------------------------------------------------

    def connect(self) -> "httpx2.Client":
        """A new connection to where the server is now."""
        import httpx2

        address = self._locate()
        parts = urlsplit(address.url)
        return httpx2.Client(
            base_url=address.url,
            headers={"authorization": f"Bearer {address.token}"} if address.token else {},
            timeout=httpx2.Timeout(self.answer_timeout_s, connect=CONNECT_TIMEOUT_S),
            # Making a TLS context takes longer than the request when there is no TLS.
            verify=parts.scheme == "https",
            # A proxy is never the way to this machine itself.
            trust_env=parts.hostname not in LOOPBACK,
        )

    def _shared(self) -> "httpx2.Client":
        with self._lock:
            if self._http is None:
                self._http = self.connect()
            return self._http

    def _disconnect(self) -> None:
        """The next request asks anew where the server is."""
        with self._lock:
            http, self._http = self._http, None
        if http is not None:
            http.close()

    def pause(self, delay_s: float) -> bool:
        """Wait between two tries; True if the client was closed meanwhile."""
        return self._closed.wait(delay_s)

    def _json(
        self, method: str, path: str, *, body: Json | None = None, params: Json | None = None, repeatable: bool = True
    ) -> Json:
        answer = self._ask(method, path, body=body, params=params, repeatable=repeatable)
        found: Json = msgspec.json.decode(answer.content) if answer.content else {}
        return found

    def _ask(
        self, method: str, path: str, *, body: Json | None = None, params: Json | None = None, repeatable: bool = True
    ) -> "httpx2.Response":
        deadline = time.monotonic() + self.patience_s
        delay_s = RETRY_FIRST_S
        while True:
            try:
                return self._ask_once(method, path, body, params)
            except Unreachable as error:
                never_sent = isinstance(error, NeverSent)
                if not (repeatable or never_sent) or time.monotonic() + delay_s > deadline or self.pause(delay_s):
                    raise
                delay_s = min(RETRY_MAX_S, delay_s * 2)

    def _ask_once(self, method: str, path: str, body: Json | None, params: Json | None) -> "httpx2.Response":
        import httpx2

        http = self._shared()
        given = {key: value for key, value in (params or {}).items() if value is not None}
        content = None if body is None else msgspec.json.encode(body)
        headers = {} if content is None else {"content-type": "application/json"}
        try:
            answer = http.request(method, path, params=given, content=content, headers=headers)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            self._disconnect()
            raise NeverSent(f"No server answers at {http.base_url}.") from error
        except httpx2.TransportError as error:
            self._disconnect()
            raise Unreachable(f"The connection to {http.base_url} broke: {error or type(error).__name__}.") from error
        if answer.status_code >= 400:
            raise problem_of(answer.status_code, answer.content)
        return answer


class NeverSent(Unreachable):
    """The request did not reach any server, so that it may be repeated whatever it does."""


def problem_of(status: int, content: bytes) -> Problem:
    """The refusal in an answer; of something that is not our server too."""
    try:
        body = msgspec.json.decode(content)
        detail = str(body.get("error") or body.get("detail") or "")
        code = str(body.get("code") or "unknown")
    except (msgspec.DecodeError, AttributeError, UnicodeDecodeError):
        return Problem(status, "unknown", f"The server answered {status} without saying why.", {})
    return Problem(status, code, detail or f"The server answered {status} without saying why.", body)


def new_message_id() -> str:
    return f"m_{int(time.time() * 1000):011x}{secrets.token_hex(5)}"


def _given(**fields: Any) -> Json:
    return {key: value for key, value in fields.items() if value is not None}


def _session(session_id: str, *rest: str) -> str:
    return "/".join(["/api/sessions", *(quote(part, safe="") for part in (session_id, *rest))])
