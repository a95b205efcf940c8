"""Turns a session's events into pieces that can be shown one after the other.

Above: `watch`, `send --wait` and `chat`, each of which shows the pieces in its own way. Below: the API's events, and
wording.py for the texts.

The difficult case is a snapshot, which may replace missed events at any time. The narrator knows how much of the turn
it has told, so it tells only the rest. Turns that were missed completely are fetched. It deliberately knows nothing
about terminals.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

from perdure.surfaces.cli import tool_rows, wording
from perdure.surfaces.cli.output import size
from perdure.surfaces.cli.rows import Row
from perdure.surfaces.short_text import running_tool
from perdure.surfaces.stream import Event

Json = dict[str, Any]
Tone = Literal["user", "tool", "failed", "note", "error", "plan"]


class Said(NamedTuple):
    """Text of the answer, as it arrives."""

    text: str


class Thought(NamedTuple):
    text: str


class Line(NamedTuple):
    """Something that happened, in one or a few lines."""

    text: str
    tone: Tone


class Began(NamedTuple):
    turn: int
    message_id: str
    agent: str
    started_at: str | None = None
    """When the turn started, if it started before the chat opened."""


class Waits(NamedTuple):
    """The turn can't start yet; `why` says what it is waiting for."""

    why: str


class Starts(NamedTuple):
    """The waiting turn starts."""


class Busy(NamedTuple):
    """The tools that the agent is running; empty if none."""

    doing: tuple[str, ...]


class Details(NamedTuple):
    """Details of the preceding line: a change, or the output of a command. With `ends`, the last lines matter as much
    as the first."""

    rows: tuple[Row, ...]
    ends: bool


class Changed(NamedTuple):
    """A turn that has ended changed files; `words` has their number and that of lines."""

    session_id: str
    turn: int
    words: str


class Asked(NamedTuple):
    """An open prompt. `rows` is everything to decide on."""

    prompt: Json
    rows: tuple[Row, ...] = ()


class Answered(NamedTuple):
    prompt_id: str
    by: str
    outcome: str
    reason: str = ""


class Finished(NamedTuple):
    turn: int
    stop_reason: str
    duration_ms: int | None
    began: bool = True
    """False: it ended before it started."""


class Rested(NamedTuple):
    """The session is waiting for a message."""


class Ended(NamedTuple):
    status: str
    reason: str


Piece = (
    Said
    | Thought
    | Line
    | Details
    | Changed
    | Began
    | Waits
    | Starts
    | Busy
    | Asked
    | Answered
    | Finished
    | Rested
    | Ended
)


class Narrator:
    """Feed it events in order. `fetch(turn)` returns the transcript's turns from that turn on.

    Paths are shown relative to `workdir`. A stream that starts at the first event, or with a snapshot, provides it.
    """

    def __init__(self, fetch: Callable[[int], list[Json]], workdir: str = "") -> None:
        self._fetch = fetch
        self.workdir = workdir
        self._turn: int | None = None
        self._told: dict[str, int] = {"text": 0, "thinking": 0}
        self._tools: dict[str, Json] = {}
        self._told_tools: set[str] = set()
        self._told_others = 0
        self._plan: list[Json] = []
        self._prompts: set[str] = set()
        self._asking: dict[str, str] = {}
        """Maps open prompts to the tools that wait for them."""
        self._proposed: dict[str, list[Json] | None] = {}
        """Changes for which the running turn's tools asked permission."""
        self._finished: set[int] = set()
        self._visible: list[int] = []
        """The known turns of the conversation."""
        self._told_context = False
        self._waits = ""
        """What the turn is waiting for, as last told."""
        self._began = True

    def recount(self, turns: Iterable[Json]) -> Iterator[Piece]:
        """Tell turns from before the first event."""
        for turn in turns:
            yield from self._retell(turn, 0)

    def tell(self, event: Event) -> Iterator[Piece]:
        if event.type in TOLD:
            yield from TOLD[event.type](self, event.data)

    # Events ----------------------------------------------------------------------------------------------------------

    def _on_session_created(self, data: Json) -> Iterator[Piece]:
        self.workdir = data["session"].get("workdir") or self.workdir
        yield from ()

    def _on_user_message(self, data: Json) -> Iterator[Piece]:
        yield from self._begin(data["turn"], data, data["agent"])

    def _on_waiting_to_begin(self, data: Json) -> Iterator[Piece]:
        if data["message"] != self._waits:
            self._waits = data["message"]
            yield Waits(self._waits)

    def _on_turn_start(self, data: Json) -> Iterator[Piece]:
        yield from self._start()
        yield from self._tell_context(data)

    def _on_assistant_text(self, data: Json) -> Iterator[Piece]:
        self._told["text"] += len(data["delta"])
        yield Said(data["delta"])

    def _on_assistant_thinking(self, data: Json) -> Iterator[Piece]:
        self._told["thinking"] += len(data["delta"])
        yield Thought(data["delta"])

    def _on_tool_use(self, data: Json) -> Iterator[Piece]:
        self._tools[data["tool_id"]] = {**data, "started_at": data["at"], "status": "pending"}
        yield self._busy()

    def _on_tool_update(self, data: Json) -> Iterator[Piece]:
        tool = self._tools.get(data["tool_id"])
        if tool is None:
            return
        tool.update({key: value for key, value in data.items() if value is not None and key not in ("at", "type")})
        yield self._busy()

    def _on_tool_result(self, data: Json) -> Iterator[Piece]:
        tool = self._tools.get(data["tool_id"])
        if tool is None:
            return
        tool.update({key: value for key, value in data.items() if value is not None and key not in ("at", "type")})
        tool["ended_at"] = data["at"]
        yield from self._tool(tool)
        yield self._busy()

    def _on_plan(self, data: Json) -> Iterator[Piece]:
        yield from self._tell_plan(data["entries"])

    def _on_pending_prompt(self, data: Json) -> Iterator[Piece]:
        if data["prompt_id"] not in self._prompts:
            self._prompts.add(data["prompt_id"])
            tool = self._tools.get(data.get("tool_id") or "", {})
            # Older servers send the change only with the tool.
            prompt = data if data.get("diff") or not tool.get("diff") else {**data, "diff": tool["diff"]}
            self._proposed[data.get("tool_id") or ""] = prompt.get("diff")
            self._asking[data["prompt_id"]] = data.get("tool_id") or ""
            yield Asked(data, tuple(tool_rows.about(prompt, self.workdir)))
            yield self._busy()

    def _on_prompt_resolved(self, data: Json) -> Iterator[Piece]:
        self._told_others += 1
        self._prompts.discard(data["prompt_id"])
        self._asking.pop(data["prompt_id"], None)
        yield Answered(data["prompt_id"], data["by"], data["outcome"], (data.get("answer") or {}).get("reason") or "")
        yield self._busy()

    def _on_message_queued(self, data: Json) -> Iterator[Piece]:
        yield Line(f"Queued: {wording.short(data['text'])}", "note")

    def _on_message_unqueued(self, data: Json) -> Iterator[Piece]:
        if data.get("reason") != "sent":
            yield Line(f"No longer queued: {wording.short(data['text'])}", "note")

    def _on_context_fallback(self, data: Json) -> Iterator[Piece]:
        self._told_others += 1
        yield Line(wording.context_fallback(data), "note")

    def _on_history_shortened(self, data: Json) -> Iterator[Piece]:
        self._told_others += 1
        yield Line(data["message"], "note")

    def _on_history_changed(self, data: Json) -> Iterator[Piece]:
        dropped = [turn for turn in self._visible if turn >= data["turn"]]
        if data["change"] != "edit":
            self._visible = [turn for turn in self._visible if turn < data["turn"]]
        yield Line(wording.history_changed(data, dropped), "note")

    def _on_driver_fallback(self, data: Json) -> Iterator[Piece]:
        yield Line(f"Switched to driver {data['to']}: {data['reason']}", "note")

    def _on_waiting_until(self, data: Json) -> Iterator[Piece]:
        if data.get("until"):
            yield Line(f"Waiting until {data['until']}: {data['reason']}", "note")

    def _on_image(self, data: Json) -> Iterator[Piece]:
        self._told_others += 1
        yield Line(f"Image: {data['mime_type']}, {size(data['size'])}.", "note")

    def _on_system(self, data: Json) -> Iterator[Piece]:
        self._told_others += 1
        yield Line(data["message"], "note")

    def _on_error(self, data: Json) -> Iterator[Piece]:
        self._told_others += 1
        yield Line(wording.error(data), "error")

    def _on_turn_changes(self, data: Json) -> Iterator[Piece]:
        if data["files"]:
            yield Changed(data["session_id"], data["turn"], wording.changed_files(data))
        elif data["state"] == "unavailable" and data["reason"]:
            yield Line(f"The changes of this turn are not known. {data['reason']}", "note")

    def _on_files_changed(self, data: Json) -> Iterator[Piece]:
        # After a conflict nothing has changed, and whoever asked for it got the message.
        if data["outcome"] != "conflict":
            yield Line(data["message"], "note" if data["outcome"] == "done" else "error")

    def _on_turn_end(self, data: Json) -> Iterator[Piece]:
        yield from self._finish(data["turn"], data["stop_reason"], data.get("duration_ms"))

    def _on_waiting_for_input(self, _: Json) -> Iterator[Piece]:
        yield Rested()

    def _on_session_end(self, data: Json) -> Iterator[Piece]:
        yield Ended(data["status"], data["reason"])

    # Snapshots -------------------------------------------------------------------------------------------------------

    def _on_snapshot(self, data: Json) -> Iterator[Piece]:
        session, turn = data["session"], data["turn"]
        self.workdir = session.get("workdir") or self.workdir
        yield from self._tell_missed(data.get("visible_turns", []), turn)
        if turn is not None:
            figures: Json = next((entry for entry in session.get("turns", []) if entry["turn"] == turn), {})
            shown = {**figures, "turn": turn, "message": data.get("message"), "parts": data["parts"]}
            yield from self._retell(shown, **_before_the_parts(data))
        open_now = {prompt["prompt_id"] for prompt in data["pending_prompts"]}
        for prompt_id in self._prompts - open_now:
            yield Answered(prompt_id, "server", "resolved")
        self._prompts &= open_now
        self._asking = {key: tool for key, tool in self._asking.items() if key in open_now}
        for prompt in data["pending_prompts"]:
            yield from self._on_pending_prompt(prompt)
        if session.get("waits_for"):
            yield from self._on_waiting_to_begin(session["waits_for"])
        if session["state"] == "ended":
            yield Ended(session["status"], "")
        elif session["state"] == "idle":
            yield Rested()

    def _tell_missed(self, visible: list[int], turn: int | None) -> Iterator[Piece]:
        """Yield rewound and missed turns. After a rewind there is no current turn, so yield the last one."""
        dropped = [number for number in self._visible if number not in visible] if visible or turn is None else []
        if dropped:
            yield Line(wording.dropped(dropped), "note")
        self._visible = list(visible)
        first = self._turn
        if turn is None and first is None and visible:
            first = visible[-1]
        if first is not None and first != turn:
            for missed in self._fetch(first):
                if turn is None or missed["turn"] < turn:
                    yield from self._retell(missed)

    def _retell(self, turn: Json, text: int = 0, thinking: int = 0, notices: int = 0) -> Iterator[Piece]:
        """Tell the rest of a turn. `text`, `thinking` and `notices` count what came before its parts."""
        message, agent = turn.get("message") or {}, turn.get("agent") or ""
        yield from self._begin(turn["turn"], message, agent, turn.get("started_at"))
        if turn.get("context", "") is not None:
            yield from self._start()
        yield from self._tell_context(turn)
        passed = {"text": text, "thinking": thinking}
        others = notices
        for part in turn["parts"]:
            kind = part["type"]
            if kind in passed:
                yield from self._retell_text(kind, part["text"], passed)
            elif kind == "tool":
                self._tools[part["tool_id"]] = part
                if part["status"] in ("completed", "failed"):
                    yield from self._tool(part)
            elif kind == "plan":
                yield from self._tell_plan(part["entries"])
            else:
                others += 1
                if others > self._told_others and kind != "prompt_resolved" and kind in TOLD:
                    yield from TOLD[kind](self, part)
        self._told_others = max(self._told_others, others)
        yield self._busy()
        if turn.get("stop_reason"):
            yield from self._finish(turn["turn"], turn["stop_reason"], turn.get("duration_ms"))

    def _retell_text(self, kind: str, text: str, passed: dict[str, int]) -> Iterator[Piece]:
        start = max(0, self._told[kind] - passed[kind])
        if passed[kind] > self._told[kind]:
            yield Line(f"{passed[kind] - self._told[kind]} earlier characters are only in the transcript.", "note")
        passed[kind] += len(text)
        self._told[kind] = max(self._told[kind], passed[kind])
        if start < len(text):
            yield Said(text[start:]) if kind == "text" else Thought(text[start:])

    # Telling ---------------------------------------------------------------------------------------------------------

    def _begin(self, turn: int, message: Json, agent: str, started_at: str | None = None) -> Iterator[Piece]:
        if turn == self._turn:
            return
        self._turn = turn
        self._told = {"text": 0, "thinking": 0}
        self._tools, self._told_tools, self._told_others, self._plan = {}, set(), 0, []
        self._proposed = {}
        self._told_context = False
        self._waits, self._began = "", False
        if turn not in self._visible:
            self._visible.append(turn)
        # A turn that the agent started has no message from a person.
        yield Line(message.get("text", "").rstrip(), "note" if message.get("origin") == "agent" else "user")
        yield Began(turn, message.get("message_id", ""), agent, started_at)

    def _start(self) -> Iterator[Piece]:
        waited, self._waits, self._began = self._waits, "", True
        if waited:
            yield Starts()

    def _tell_context(self, turn: Json) -> Iterator[Piece]:
        """Tell what context the agent got with the message, and why."""
        told, self._told_context = self._told_context, True
        if turn.get("catch_up") and not told:
            yield Line(wording.catch_up(turn["agent"], turn["catch_up"]), "note")
        elif turn.get("replayed") and not told:
            yield Line(wording.replayed(turn["agent"], turn["context_reason"]), "note")

    def _tool(self, tool: Json) -> Iterator[Piece]:
        if tool["tool_id"] not in self._told_tools:
            self._told_tools.add(tool["tool_id"])
            tone: Tone = "note" if tool.get("outcome") else "failed" if tool["status"] == "failed" else "tool"
            tool = self._with_lines(tool)
            yield Line(wording.tool(tool, self.workdir), tone)
            rows, ends = tool_rows.outcome(tool, self.workdir)
            if rows:
                yield Details(tuple(rows), ends)

    def _with_lines(self, tool: Json) -> Json:
        """If the tool's change lacks line numbers, or is missing, use the change from the permission request."""
        proposed = self._proposed.get(tool["tool_id"])
        known = any("line" in entry for entry in tool.get("diff") or [])
        return {**tool, "diff": proposed} if proposed and not known and tool.get("kind") == "edit" else tool

    def _busy(self) -> Busy:
        """The running tools, without those that wait for an answer."""
        passed = {*self._told_tools, *self._asking.values()}
        open_tools = [tool for key, tool in self._tools.items() if key not in passed]
        return Busy(tuple(running_tool(tool, self.workdir) for tool in open_tools))

    def _tell_plan(self, entries: list[Json]) -> Iterator[Piece]:
        """Tell the plan in full once, then only what changed."""
        before = {entry["content"]: entry["status"] for entry in self._plan}
        self._plan = entries
        if {entry["content"] for entry in entries} != set(before):
            yield Line(wording.plan(entries), "plan")
            return
        done = [entry for entry in entries if entry["status"] == "completed" != before[entry["content"]]]
        if done:
            yield Line(wording.plan(done), "plan")

    def _finish(self, turn: int, stop_reason: str, duration_ms: int | None) -> Iterator[Piece]:
        if turn not in self._finished:
            self._finished.add(turn)
            yield Busy(())
            self._waits = ""
            yield Finished(turn, stop_reason, duration_ms, self._began or turn != self._turn)


TOLD: dict[str, Callable[[Narrator, Json], Iterator[Piece]]] = {
    "session_created": Narrator._on_session_created,
    "user_message": Narrator._on_user_message,
    "waiting_to_begin": Narrator._on_waiting_to_begin,
    "turn_start": Narrator._on_turn_start,
    "assistant_text": Narrator._on_assistant_text,
    "assistant_thinking": Narrator._on_assistant_thinking,
    "tool_use": Narrator._on_tool_use,
    "tool_update": Narrator._on_tool_update,
    "tool_result": Narrator._on_tool_result,
    "plan": Narrator._on_plan,
    "pending_prompt": Narrator._on_pending_prompt,
    "prompt_resolved": Narrator._on_prompt_resolved,
    "message_queued": Narrator._on_message_queued,
    "message_unqueued": Narrator._on_message_unqueued,
    "context_fallback": Narrator._on_context_fallback,
    "history_shortened": Narrator._on_history_shortened,
    "history_changed": Narrator._on_history_changed,
    "driver_fallback": Narrator._on_driver_fallback,
    "waiting_until": Narrator._on_waiting_until,
    "image": Narrator._on_image,
    "system": Narrator._on_system,
    "error": Narrator._on_error,
    "turn_end": Narrator._on_turn_end,
    "turn_changes": Narrator._on_turn_changes,
    "files_changed": Narrator._on_files_changed,
    "waiting_for_input": Narrator._on_waiting_for_input,
    "session_end": Narrator._on_session_end,
    "snapshot": Narrator._on_snapshot,
}
"""What the narrator does with each event. A snapshot is only in streams, not in logs."""
NOT_TOLD = (
    # The chat shows these in its status line.
    "usage",
    "config",
    "queued_message_edited",
    "agent_attached",
    # Not worth telling: the user did it, or doesn't need to know.
    "abort_requested",
    "files_requested",
    "session_updated",
    "title",
    "agent_launched",
    "agent_detached",
    "unrecognised",
)


def _before_the_parts(snapshot: Json) -> dict[str, int]:
    """How much came before the parts in a snapshot. Its text may start earlier than its parts."""
    shown = sum(len(part["text"]) for part in snapshot["parts"] if part["type"] == "text")
    return {
        "text": snapshot["text_offset"] + len(snapshot["text"]) - shown,
        "thinking": snapshot.get("thinking_offset", 0),
        "notices": snapshot.get("notices_offset", 0),
    }
