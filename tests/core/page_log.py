"""A log with every type of event, and the server's snapshot and transcript at several points. The page's own fold must
give the same (ui/test/golden.test.ts). `python -m tests.core.page_log` rewrites the file."""

import json
from pathlib import Path
from typing import Any

from perdure.core import events as ev
from perdure.core.evolve import created, evolve
from perdure.core.state import Session
from perdure.core.transcript import History
from perdure.core.view import TurnView, public_turn, snapshot, visible_turns

FILE = Path(__file__).parents[2] / "ui" / "test" / "golden.json"

SESSION = {"project": None, "agent": "one", "workdir": "/w", "model": "m1"}
OPTIONS: list[dict[str, Any]] = [{"id": "effort", "name": "Effort", "currentValue": "low"}]
MODELS = {"currentModelId": "m1", "availableModels": [{"modelId": "m1", "name": "M1"}]}
MODES = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}]}
LOOK = None
"""A marker between events: record here what the server shows."""


def message(turn: int, text: str, agent: str = "one", **fields: Any) -> ev.UserMessage:
    return ev.UserMessage(turn=turn, message_id=f"m{turn}", text=text, agent=agent, **fields)


def start(turn: int, agent: str = "one", context: ev.Context = "fresh", **fields: Any) -> ev.TurnStart:
    return ev.TurnStart(
        turn=turn,
        run_id=f"s.{turn}",
        message_id=f"m{turn}",
        agent=agent,
        context=context,
        context_reason="because",
        **fields,
    )


def launched(agent: str, native: str | None = None) -> ev.AgentLaunched:
    return ev.AgentLaunched(launch_id=f"l-{agent}", agent=agent, driver="acp", native_session_id=native)


def ready(agent: str, **fields: Any) -> ev.AgentAttached:
    return ev.AgentAttached(
        launch_id=f"l-{agent}", agent=agent, pid=7, native_session_id=f"n-{agent}", reason="message", **fields
    )


def gone(agent: str) -> ev.AgentDetached:
    return ev.AgentDetached(
        launch_id=f"l-{agent}", agent=agent, pid=7, native_session_id=f"n-{agent}", reason="agent_switched"
    )


def permission(prompt_id: str) -> ev.PendingPrompt:
    option = ev.PromptOption(option_id="no", name="No", kind="reject_once")
    return ev.PendingPrompt(
        turn=1,
        prompt_id=prompt_id,
        kind="permission",
        title="rm x",
        tool_id="t1",
        tool="Bash",
        asked_at="then",
        options=[option],
    )


def question(prompt_id: str) -> ev.PendingPrompt:
    asked = ev.Question(question_id="q", question="Which?", options=[ev.Choice(label="this")])
    return ev.PendingPrompt(turn=1, prompt_id=prompt_id, kind="question", title="", asked_at="then", questions=[asked])


def first_turn() -> list[ev.Event | None]:
    """A turn with every kind of content."""
    return [
        message(1, "hello", attachments=[{"name": "a.txt", "mime_type": "text/plain"}]),
        start(1),
        ev.Title(title="hello", by="message"),
        launched("one"),
        LOOK,
        ready("one", models=MODELS, modes=MODES, config_options=OPTIONS),
        ev.Config(config_id="available_commands", value=[{"name": "compact"}]),
        ev.Config(config_id="background_tasks", value=1),
        ev.Config(config_id="effort", value="high"),
        ev.AssistantThinking(turn=1, block=0, delta="so "),
        ev.AssistantThinking(turn=1, block=0, delta="what"),
        ev.AssistantText(turn=1, block=1, delta="I "),
        ev.AssistantText(turn=1, block=1, delta="look."),
        ev.ToolUse(turn=1, tool_id="t1", name="Bash", kind="execute", title="ls", input={"command": "ls"}),
        ev.ToolUpdate(turn=1, tool_id="t1", content="a", locations=[{"path": "a"}], title="ls -l"),
        permission("p1"),
        LOOK,
        ev.PromptResolved(
            turn=1,
            prompt_id="p1",
            by="person",
            outcome="denied",
            delivered=True,
            answer={"option_id": "no", "kind": "reject_once", "reason": "not that one"},
        ),
        question("p2"),
        ev.PromptResolved(
            turn=1, prompt_id="p2", by="person", outcome="answered", delivered=True, answer={"answers": {"q": "this"}}
        ),
        ev.ToolResult(turn=1, tool_id="t1", content="a b", diff=[{"path": "a", "old_text": None, "new_text": "b"}]),
        ev.ToolUse(turn=1, tool_id="t2", name="Edit", kind="edit", title="a", input={"path": "a"}),
        ev.ToolResult(turn=1, tool_id="t2", status="failed", is_error=True, outcome="denied", waited_ms=40),
        ev.Image(turn=1, mime_type="image/png", size=3, data="AAAA", tool_id="t1"),
        ev.Plan(turn=1, entries=[ev.PlanEntry(content="look")]),
        ev.Plan(turn=1, entries=[ev.PlanEntry(content="look", status="completed")]),
        ev.Usage(turn=1, input_tokens=10, output_tokens=2, cost_usd=0.5, context_used=12, context_size=100),
        ev.System(turn=1, code="note", message="A note."),
        ev.Unrecognised(turn=1, reason="not known", raw="{}"),
        ev.MessageQueued(message_id="q1", text="later"),
        ev.MessageQueued(message_id="q2", text="now", first=True),
        ev.MessageQueued(message_id="q3", text="now too", first=True, agent="two"),
        ev.QueuedMessageEdited(message_id="q1", text="later, and better"),
        LOOK,
        ev.AbortRequested(turn=1, reason="interrupt"),
        ev.TurnEnd(turn=1, stop_reason="cancelled", duration_ms=5, usage={"input_tokens": 10, "cost_usd": 0.5}),
        ev.MessageUnqueued(message_id="q1", text="later, and better", reason="removed"),
        ev.MessageUnqueued(message_id="q2", text="now", reason="sent"),
        LOOK,
    ]


def other_agent() -> list[ev.Event | None]:
    """A switch to another agent, whose native session can't be resumed, and back."""
    return [
        gone("one"),
        message(2, "now", "two"),
        start(2, "two", "resumed", catch_up=1),
        LOOK,
        launched("two"),
        ev.ContextFallback(turn=2, reason="not_found", poisoned=True),
        ev.HistoryShortened(turn=2, digested=[1], left_out=[], tokens=3, message="Told in short form."),
        ready("two"),
        ev.Config(config_id="mode", value="plan"),
        ev.DriverFallback(agent="two", from_driver="a", to="b", reason="it exited"),
        ev.AssistantText(turn=2, block=0, delta="half"),
        ev.Error(turn=2, code="agent_error", message="It failed.", detail="stderr"),
        LOOK,
        ev.TurnEnd(turn=2, stop_reason="failed", exit_code=1, duration_ms=3, usage={"input_tokens": 4}, model="big"),
        ev.WaitingUntil(until="2030-01-01T00:00:00.000Z", reason="limit"),
        LOOK,
        ev.WaitingUntil(until=None, reason="message"),
        gone("two"),
        message(3, "again"),
        ev.WaitingToBegin(turn=3, code="slots_full", message="The server runs as many turns as it may."),
        LOOK,
        start(3, native_session_id="n-one", replayed=2),
        LOOK,
        ev.TurnEnd(turn=3, stop_reason="end_turn", input_bytes=9),
        ev.WaitingForInput(turn=3),
        ev.Config(config_id="model", value="m2", requested=True),
        ev.Config(config_id="effort", value="max", requested=True),
        ev.Config(config_id="effort", value="high", refused=True, options=OPTIONS),
        LOOK,
    ]


def changes() -> list[ev.Event | None]:
    """Changes to the history, and the end of the session."""
    return [
        ev.HistoryChanged(turn=1, change="edit", bumped=["one"], message_id="m1", text="hello there"),
        ev.Error(code="agent_exited", message="The agent is gone."),
        LOOK,
        ev.HistoryChanged(turn=3, change="rewind", bumped=["one"]),
        LOOK,
        ev.TurnChanges(turn=1, state="ready", files=2, added=3, removed=1, directory="/w"),
        ev.FilesRequested(operation_id="f1", action="restore", details={"turn": 1}),
        LOOK,
        ev.FilesChanged(operation_id="f1", action="restore", outcome="done", message="Restored 2 files.", for_turn=1),
        LOOK,
        ev.SessionUpdated(summary="all of it", labels=["x"]),
        message(4, "by itself", origin="agent"),
        start(4, context="live", origin="agent"),
        ev.TurnEnd(turn=4, stop_reason="end_turn"),
        ev.SessionUpdated(archived=True),
        ev.MessageUnqueued(message_id="q3", text="now too", reason="session_ended"),
        ev.SessionEnd(status="failed", reason="It could not go on."),
        LOOK,
    ]


class Writer:
    """Numbers events, and records what the server would show."""

    def __init__(self) -> None:
        first = ev.SessionCreated(session=SESSION)
        self.lines: list[dict[str, Any]] = []
        self.history = History()
        self._stamp(first)
        self.state: Session = created(first)
        self.turns: dict[int, dict[str, Any]] = {}

    def _stamp(self, event: ev.Event) -> None:
        seq = len(self.lines) + 1
        event.at, event.session_id = f"2026-01-01T00:00:00.{seq:03d}Z", "s"
        self.lines.append(json.loads(ev.with_seq(seq, ev.encode(event))))
        self.history.fold(event)

    def add(self, event: ev.Event) -> None:
        self._stamp(event)
        evolve(self.state, event)
        if self.state.turn is not None:
            self.turns[self.state.turn.turn] = public_turn(self.state.turn)

    def look(self) -> dict[str, Any]:
        seen = visible_turns(self.state)
        views = [(self.turns[turn], self.history.views[turn]) for turn in seen]
        view = views[-1][1] if views else TurnView(None)
        shown = snapshot(
            self.state, view, len(self.lines), [turn for turn, _ in views], self.lines[-1]["at"], self.lines[-1]["at"]
        )
        transcript = [{**turn, "message": view.message, "parts": view.show()} for turn, view in views]
        # Encoded and decoded, because the values in memory keep changing.
        found: dict[str, Any] = json.loads(json.dumps({"snapshot": shown, "transcript": transcript}))
        return found


def golden() -> dict[str, list[Any]]:
    """The events, and what the server shows at the start and at each marker."""
    writer = Writer()
    moments = [writer.look()]
    for event in [*first_turn(), *other_agent(), *changes()]:
        if event is None:
            moments.append(writer.look())
        else:
            writer.add(event)
    return {"events": writer.lines, "moments": moments}


def text() -> str:
    """One line for each event and marker, so that diffs are readable."""
    made = golden()
    parts = [
        f'"{name}": [\n' + ",\n".join(json.dumps(entry) for entry in entries) + "\n]" for name, entries in made.items()
    ]
    return "{" + ",\n".join(parts) + "}\n"


if __name__ == "__main__":
    FILE.write_text(text())
