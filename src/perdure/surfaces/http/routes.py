"""The table of endpoints: method, path, handler, what it takes and answers. The OpenAPI document is read from it.

Ids that people or agents choose may have slashes in them (`:path`); a session's never has.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from perdure.surfaces.http import bodies, diane, handlers, runs, streams
from perdure.surfaces.http import diane_shapes as ds
from perdure.surfaces.http import shapes as sh

POSITION = "The id of the last event that was seen. The Last-Event-ID header wins."


class Endpoint(NamedTuple):
    method: str
    path: str
    handler: Callable[..., Any]
    summary: str
    body: type | None = None
    query: dict[str, tuple[Any, str]] = {}
    answers: dict[int, Any] = {}
    """Status: a struct, a list of one, a media type, a tuple of these, or None for no body."""
    refusals: tuple[str, ...] = ()


LIST_QUERY: dict[str, tuple[Any, str]] = {
    "project": (str, "Only sessions of this project."),
    "agent": (str, "Only sessions of this agent."),
    "state": (str, "Only sessions in this state: idle, processing, ended."),
    "status": (str, "Only sessions with this status."),
    "label": (str, "Only sessions with this label."),
    "workdir": (str, "Only sessions in this working directory."),
    "parent": (str, "Only sessions that this session started."),
    "archived": (bool, "Only archived sessions, or only others."),
    "q": (str, "Words to find in titles and transcripts."),
    "limit": (int, "How many at the most (1 to 1,000; 50 by default)."),
    "cursor": (str, "Where the page before ended."),
}
DIANE_QUERY: dict[str, tuple[Any, str]] = {
    "status": (str, "Only sessions with this status: active, idle, disconnected, closed."),
    "limit": (int, "How many at the most (1 to 1,000; 1,000 by default)."),
}
S = "/api/sessions/{session_id}"
D = "/agents/{name:path}/sessions"
OF_A_MESSAGE = (
    "not_found",
    "turn_active",
    "session_ended",
    "slots_full",
    "queue_full",
    "conflict",
    "too_large",
    "agent_unavailable",
)

ENDPOINTS = [
    Endpoint("GET", "/api/health", handlers.health, "Whether the server is up", answers={200: sh.Health}),
    Endpoint("GET", "/api/agents", handlers.list_agents, "The agents of this server", answers={200: sh.AgentList}),
    Endpoint(
        "GET",
        "/api/agents/{name:path}",
        handlers.get_agent,
        "One agent",
        answers={200: sh.Agent},
        refusals=("not_found",),
    ),
    Endpoint(
        "POST",
        "/api/agents/reload",
        handlers.reload_agents,
        "Take the agents as perdure.toml names them now",
        answers={200: sh.AgentList},
        refusals=("invalid", "conflict"),
    ),
    Endpoint(
        "GET",
        "/api/catalogue",
        handlers.list_catalogue,
        "Agents that are known by name, to be added to perdure.toml",
        answers={200: sh.Catalogue},
    ),
    Endpoint("GET", "/api/projects", handlers.list_projects, "All projects", answers={200: sh.ProjectList}),
    Endpoint(
        "POST",
        "/api/projects",
        handlers.create_project,
        "Make a project",
        body=bodies.ProjectBody,
        answers={201: sh.Project},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        "/api/projects/{project_id:path}",
        handlers.get_project,
        "One project",
        answers={200: sh.Project},
        refusals=("not_found",),
    ),
    Endpoint(
        "PATCH",
        "/api/projects/{project_id:path}",
        handlers.change_project,
        "Change a project",
        body=bodies.ProjectChanges,
        answers={200: sh.Project},
        refusals=("not_found", "conflict"),
    ),
    Endpoint(
        "DELETE",
        "/api/projects/{project_id:path}",
        handlers.delete_project,
        "Remove a project; its sessions and files stay",
        answers={204: None},
        refusals=("not_found", "conflict"),
    ),
    Endpoint(
        "POST",
        "/api/sessions",
        handlers.create_session,
        "Make a session, with or without a first message",
        body=bodies.SessionBody,
        answers={201: sh.Session},
        refusals=("not_found", "slots_full", "too_large", "agent_unavailable"),
    ),
    Endpoint(
        "GET",
        "/api/sessions",
        handlers.list_sessions,
        "Sessions, newest activity first",
        query=LIST_QUERY,
        answers={200: sh.SessionList},
    ),
    Endpoint("GET", S, handlers.get_session, "One session", answers={200: sh.Session}, refusals=("not_found",)),
    Endpoint(
        "PATCH",
        S,
        handlers.change_session,
        "Change title, summary, labels or archive",
        body=bodies.SessionChanges,
        answers={200: sh.Session},
        refusals=("not_found",),
    ),
    Endpoint(
        "DELETE",
        S,
        handlers.delete_session,
        "Close a session; with purge also erase it",
        query={"purge": (bool, "Erase everything of the session.")},
        answers={200: sh.Session},
        refusals=("not_found",),
    ),
    Endpoint(
        "POST",
        "/api/messages",
        handlers.send_or_create,
        "Send a message to a session, or to a new one",
        body=bodies.AnyMessageBody,
        answers={202: sh.Accepted},
        refusals=OF_A_MESSAGE,
    ),
    Endpoint(
        "POST",
        f"{S}/messages",
        handlers.send_message,
        "Send a message",
        body=bodies.MessageBody,
        answers={202: sh.Accepted},
        refusals=OF_A_MESSAGE,
    ),
    Endpoint(
        "GET", f"{S}/queue", handlers.list_queue, "Waiting messages", answers={200: sh.Queue}, refusals=("not_found",)
    ),
    Endpoint(
        "DELETE",
        f"{S}/queue/{{message_id:path}}",
        handlers.unqueue,
        "Take a waiting message back",
        answers={200: sh.Queue},
        refusals=("not_found", "session_ended"),
    ),
    Endpoint(
        "POST",
        f"{S}/abort",
        handlers.abort,
        "Interrupt the running turn",
        answers={202: sh.Aborting},
        refusals=("not_found", "no_turn_active", "session_ended"),
    ),
    Endpoint("POST", f"{S}/stop", handlers.stop, "End the session", answers={200: sh.Session}, refusals=("not_found",)),
    Endpoint(
        "POST",
        f"{S}/config",
        handlers.configure,
        "Set the model, the mode or another option of the agent",
        body=bodies.ConfigBody,
        answers={200: sh.Configured},
        refusals=("not_found", "session_ended"),
    ),
    Endpoint(
        "GET",
        f"{S}/prompts",
        handlers.list_prompts,
        "Prompts that wait for a person",
        answers={200: sh.Prompts},
        refusals=("not_found",),
    ),
    Endpoint(
        "POST",
        f"{S}/prompts/{{prompt_id:path}}",
        handlers.answer_prompt,
        "Answer a prompt; the first answer wins",
        body=bodies.AnswerBody,
        answers={200: sh.Resolved},
        refusals=("not_found", "prompt_resolved", "session_ended"),
    ),
    Endpoint(
        "GET",
        f"{S}/events",
        streams.session_events,
        "Watch a session (server-sent events)",
        query={"offset": (str, POSITION)},
        answers={200: "text/event-stream", 204: None},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        "/api/events",
        streams.many_events,
        "Watch many sessions over one stream",
        query={
            "sessions": (str, "Their ids, with commas between them."),
            "all": (bool, "State changes of all sessions."),
            "offset": (str, POSITION),
        },
        answers={200: "text/event-stream", 204: None},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        f"{S}/log",
        handlers.get_log,
        "The session's events as lines of JSON",
        query={"offset": (int, "Events after this number."), "limit": (int, "How many at the most; 1,000 by default.")},
        answers={200: "application/x-ndjson"},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        f"{S}/transcript",
        handlers.get_transcript,
        "What was said and done, turn by turn",
        query={"format": (str, "json or markdown."), "from_turn": (int, "Leave out the turns before this one.")},
        answers={200: (sh.Transcript, "text/markdown")},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        f"{S}/explain",
        handlers.explain,
        "Why the session is in its state, and what comes next",
        answers={200: sh.Explanation},
        refusals=("not_found",),
    ),
    Endpoint(
        "POST",
        "/api/run",
        runs.run,
        "Run one prompt to its end, and close",
        body=runs.RunBody,
        query={"wait": (bool, "False: answer at once (202), and let the session's events tell the rest.")},
        answers={200: runs.SingleRun, 202: sh.Accepted},
        refusals=("not_found", "slots_full", "conflict", "turn_active", "too_large", "agent_unavailable"),
    ),
    Endpoint(
        "POST",
        "/api/login-links",
        handlers.new_login_link,
        "Make a one-time sign-in link",
        answers={201: sh.LoginLink},
        refusals=("rate_limited",),
    ),
    Endpoint(
        "POST",
        "/api/login",
        handlers.login,
        "Exchange the code of a sign-in link for a cookie",
        body=bodies.LoginBody,
        answers={204: None},
    ),
    Endpoint("POST", "/api/logout", handlers.logout, "Forget this browser's cookie", answers={204: None}),
    Endpoint(
        "POST",
        D,
        diane.diane_start,
        "Diane: start a session",
        body=ds.DianeSessionBody,
        answers={201: ds.DianeSession},
        refusals=("not_found", "slots_full", "too_large", "agent_unavailable"),
    ),
    Endpoint(
        "GET",
        D,
        diane.diane_list,
        "Diane: the sessions of an agent",
        query=DIANE_QUERY,
        answers={200: list[ds.DianeListed]},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        f"{D}/{{session_id}}",
        diane.diane_get,
        "Diane: one session",
        answers={200: ds.DianeSession},
        refusals=("not_found",),
    ),
    Endpoint(
        "POST",
        f"{D}/{{session_id}}/prompt",
        diane.diane_prompt,
        "Diane: send a prompt and get what came of it",
        body=ds.DianePromptBody,
        query={"stream": (bool, "True: server-sent events, the last of which is `done`.")},
        answers={200: (runs.Run, "text/event-stream")},
        refusals=("not_found", "turn_active", "session_ended", "slots_full", "too_large", "agent_unavailable"),
    ),
    Endpoint(
        "POST",
        f"{D}/{{session_id}}/cancel",
        diane.diane_cancel,
        "Diane: interrupt the running prompt; harmless while there is none",
        answers={200: ds.DianeStatus},
        refusals=("not_found",),
    ),
    Endpoint(
        "POST",
        f"{D}/{{session_id}}/config",
        diane.diane_configure,
        "Diane: set the model, the mode or another option of the agent",
        body=bodies.ConfigBody,
        answers={200: sh.Configured},
        refusals=("not_found", "session_ended"),
    ),
    Endpoint(
        "DELETE",
        f"{D}/{{session_id}}",
        diane.diane_close,
        "Diane: close a session",
        answers={200: ds.DianeClosed},
        refusals=("not_found",),
    ),
    Endpoint(
        "GET",
        "/sessions",
        diane.diane_list_all,
        "Diane: the sessions of all agents",
        query=DIANE_QUERY,
        answers={200: list[ds.DianeListed]},
    ),
]
