"""The chat's status line: derived from the session's events, and shortened to fit the terminal.

Above: conversation.py, which feeds events and draws the line. Below: the API's events. Pure.
"""

from collections.abc import Sequence
from typing import Any

from perdure.surfaces.cli.config_options import current, role
from perdure.surfaces.cli.output import duration
from perdure.surfaces.cli.terms import as_typed, names_url, to_copy
from perdure.surfaces.short_text import one_line, safe

Json = dict[str, Any]

FOLLOWED = (
    "snapshot",
    "session_created",
    "waiting_to_begin",
    "turn_start",
    "turn_end",
    "agent_attached",
    "config",
    "usage",
    "message_queued",
    "message_unqueued",
    "queued_message_edited",
    "session_end",
)
SEPARATOR = " · "
NAME_COLUMNS = 24
QUEUE_LINES = 3
RESTART_S = 5.0
"""A server that is unreachable for longer than this is probably not restarting."""


class Situation:
    def __init__(self) -> None:
        self.agent = self.workdir = ""
        self.is_ended = False
        self.waits_for = ""
        """The code of what the accepted message is waiting for."""
        self.model: str | None = None
        self.mode: str | None = None
        self._options: list[Json] | None = None
        self.commands: list[Json] | None = None
        """The agent's slash commands; None if not reported yet."""
        self.queue: list[Json] = []
        self.context_used: int | None = None
        self.context_size: int | None = None
        self._cost_usd: float | None = None
        self._turn_cost_usd: float | None = None

    def follow(self, kind: str, data: Json) -> None:
        getattr(self, f"_on_{kind}")(data)

    @property
    def cost_usd(self) -> float | None:
        known = [cost for cost in (self._cost_usd, self._turn_cost_usd) if cost is not None]
        return sum(known) if known else None

    def _on_snapshot(self, data: Json) -> None:
        session = data["session"]
        self._on_session_created(data)
        self.waits_for = (session.get("waits_for") or {}).get("code", "")
        self.queue = list(data["queue"])
        self._cost_usd, self._turn_cost_usd = (session.get("usage") or {}).get("cost_usd"), None
        turns = session.get("turns") or []
        for turn in turns:
            if turn.get("agent") in (None, self.agent):
                self._use(turn.get("usage") or {})
            # The session's cost already includes finished turns.
            if turn.get("stop_reason"):
                self._turn_cost_usd = None

    def _on_session_created(self, data: Json) -> None:
        session = data["session"]
        self.agent, self.workdir = session["agent"], session.get("workdir") or ""
        self.is_ended = session.get("state") == "ended"
        self.model, self.mode = current(session, "model"), current(session, "mode")
        self._options = session.get("config_options")
        self.commands = session.get("commands") or None

    def _on_waiting_to_begin(self, data: Json) -> None:
        self.waits_for = data["code"]

    def _on_turn_start(self, data: Json) -> None:
        self.waits_for = ""
        if data["agent"] != self.agent:
            self.agent, self.model, self.mode, self.commands = data["agent"], None, None, None
            self._options = None
            self.context_used = self.context_size = None
        self._turn_cost_usd = None

    def _on_turn_end(self, data: Json) -> None:
        self.waits_for = ""
        self._use(data.get("usage") or {})
        self._cost_usd, self._turn_cost_usd = self.cost_usd, None

    def _on_agent_attached(self, data: Json) -> None:
        self._options = data.get("config_options") or self._options
        self.model = self.model or current(data, "model")
        self.mode = self.mode or current(data, "mode")

    def _on_config(self, data: Json) -> None:
        self._options = data.get("options") or self._options
        kind, value = role(self._options, data["config_id"]), data.get("value")
        if kind == "available_commands":
            self.commands = [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
        elif kind in ("model", "mode"):
            setattr(self, kind, None if value is None else str(value))

    def _on_usage(self, data: Json) -> None:
        self._use(data)

    def _use(self, figures: Json) -> None:
        self.context_used = figures.get("context_used") or self.context_used
        self.context_size = figures.get("context_size") or self.context_size
        if figures.get("cost_usd") is not None:
            self._turn_cost_usd = figures["cost_usd"]

    def _on_message_queued(self, data: Json) -> None:
        ahead = sum(1 for one in self.queue if one.get("first")) if data.get("first") else len(self.queue)
        if all(one["message_id"] != data["message_id"] for one in self.queue):
            self.queue.insert(ahead, data)

    def _on_message_unqueued(self, data: Json) -> None:
        self.queue = [one for one in self.queue if one["message_id"] != data["message_id"]]

    def _on_session_end(self, data: Json) -> None:
        self.is_ended, self.queue, self.waits_for = True, [], ""

    def _on_queued_message_edited(self, data: Json) -> None:
        for one in self.queue:
            if one["message_id"] == data["message_id"]:
                one["text"] = data["text"]

    def context(self) -> str:
        """How full the agent's context is: a percentage if its size is known, else tokens."""
        if not self.context_used:
            return ""
        if self.context_size:
            return f"{min(100, round(100 * self.context_used / self.context_size))}% context"
        return f"{tokens(self.context_used)} tokens"

    def cost(self) -> str:
        cost = self.cost_usd
        return f"${cost:.2f}" if cost is not None and cost >= 0.005 else ""


def tokens(count: int) -> str:
    return str(count) if count < 1000 else f"{count / 1000:.0f}k" if count < 1_000_000 else f"{count / 1e6:.1f}M"


def status_line(doing: Sequence[str], situation: Situation, columns: int) -> str:
    """The longest variant that fits; the least important parts are omitted first. `doing`: see doing_now."""
    model, mode = (one_line(safe(name or ""), NAME_COLUMNS) for name in (situation.model, situation.mode))
    queued = f"{len(situation.queue)} queued" if situation.queue else ""
    context = situation.context()
    labelled = [f"model {model}" if model else "", f"mode {mode}" if mode else ""]
    # Omit the name "default" if there is little room.
    plain = ["" if name == "default" else name for name in (model, mode)]
    short = context.removesuffix(" context").removesuffix(" tokens")
    ways = [
        (doing[0], queued, *labelled, context, situation.cost()),
        (doing[0], queued, *plain, short, situation.cost()),
        (doing[-1], queued, *plain, short, situation.cost()),
        (doing[-1], queued, plain[0], short, situation.cost()),
        (doing[-1], queued, plain[0], short),
        (doing[-1], queued, short),
        (doing[-1], queued),
    ]
    lines = [SEPARATOR.join(part for part in way if part) for way in ways]
    return next((line for line in lines if len(line) < columns), lines[-1][: max(0, columns - 1)])


def doing_now(
    situation: Situation, agent: str, session_id: str | None, working_s: float | None, is_asking: bool
) -> list[str]:
    """What the session is doing, from the longest text to the shortest. `agent` gets the next message."""
    name = f" {agent}" if situation.agent in ("", agent) else f" {situation.agent}, next {agent}"
    name = name if agent else ""
    if is_asking:
        return [f"Waiting for you{name}", "Waiting for you"]
    if situation.waits_for:
        what = "Waiting for a slot" if situation.waits_for == "slots_full" else "Waiting to start"
        stop = "Esc unqueues" if situation.queue else "Esc cancels"
        return [f"{what}{name}, {stop}", what]
    if working_s is not None:
        spent = duration(working_s // 1 * 1000).replace(".0", "")
        stop = "Esc unqueues" if situation.queue else "Esc interrupts"
        return [f"Working{name} {spent}, {stop}", f"Working {spent}"]
    if situation.is_ended:
        return ["Ended. /new starts another session", "Ended"]
    return [f"Idle{name}", "Idle"] if session_id else [f"New session{name}", f"New{name}"]


def lost_line(lost_s: float, columns: int) -> str:
    """The status line while the server is unreachable. After RESTART_S it also shows how to start a server."""
    ways = ["Reconnecting ... your draft is safe."]
    if lost_s >= RESTART_S:
        start = "" if names_url() else as_typed(" Start one in another terminal: perdure serve")
        ways = [f"Reconnecting ... your draft is safe. No server responds.{start}", f"Reconnecting ...{start}", *ways]
    return next((way for way in ways if len(way) < columns), ways[-1][: max(0, columns - 1)])


def farewell(session_id: str | None, is_working: bool, queued: int, *, is_waiting: bool = False) -> str:
    """What the user should know when leaving the chat, and how to return."""
    if session_id is None:
        return ""
    waits = f" {queued} queued message{'s' if queued > 1 else ''} will be sent after this turn." if queued else ""
    goes_on = f"The agent continues.{waits}\n" if is_working else ""
    if is_waiting:
        goes_on = f"The message is still waiting; its turn starts when a slot is free.{waits}\n"
    return f"{goes_on}To come back: {to_copy(f'chat {session_id}')}\n"


def queue_lines(queue: Sequence[Json], sending: Sequence[str], columns: int) -> list[str]:
    """Queued messages and messages being sent, one line each, shown below the stream."""
    shown = [f"Queued: {safe(one['text'])}" for one in queue] + [f"Sending: {safe(text)}" for text in sending]
    lines = [one_line(text, max(20, columns - 1)) for text in shown[:QUEUE_LINES]]
    return [*lines, f"... and {len(shown) - QUEUE_LINES} more"] if len(shown) > QUEUE_LINES else lines
