"""Sessions in every phase, made by the machine itself, for tests of single steps.

Above: the tests of the core. Below: core. No clock, no store, no process: time is a counter.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import observations as ob
from perdure.core.clock import stamp
from perdure.core.decision import Decision, World
from perdure.core.evolve import created, evolve
from perdure.core.files import then_of
from perdure.core.observe import observe
from perdure.core.permissions import Rule
from perdure.core.resume import AgentFacts
from perdure.core.session import create, decide
from perdure.core.state import Session, WaitsFor, dump

START_S = 1_800_000_000.0
ALLOW = ev.PromptOption("yes", "Allow", "allow_once")
REJECT = ev.PromptOption("no", "Reject", "reject_once")


def facts(
    *,
    can_resume: bool = True,
    resume: Any = "auto",
    runtime: str = "bin",
    shares: bool = False,
    commands: tuple[str, ...] | None = None,
) -> AgentFacts:
    return AgentFacts(
        driver="acp",
        can_resume=can_resume,
        workdir_id="1:2",
        fingerprint=runtime,
        resume=resume,
        shares=shares,
        commands=commands,
    )


def world(
    at_s: float = 0.0, *, rules: Sequence[Rule] = (), known: AgentFacts | None = None, **more: AgentFacts
) -> World:
    return World(stamp(START_S + at_s), KnownAgents(more, known or facts()), tuple(rules))


class KnownAgents(Mapping[str, AgentFacts]):
    """Facts about every agent: those in the dictionary, otherwise a default."""

    def __init__(self, given: Mapping[str, AgentFacts], others: AgentFacts) -> None:
        self._given, self._others = given, others

    def __getitem__(self, agent: str) -> AgentFacts:
        return self._given.get(agent, self._others)

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


class Stage:
    """One session and its log. Every step checks that folding the log gives the same state."""

    def __init__(self, *, driver: str = "acp", **given: Any) -> None:
        values: dict[str, Any] = {"session_id": "s", "project": None, "agent": "alpha", "workdir": "/srv", **given}
        self.driver = driver
        self.at_s = 0.0
        self.rules: list[Rule] = []
        self.known = facts()
        self.waits_for: WaitsFor | None = None
        """Why no turn may begin."""
        self.knows_agents = True
        self.log: list[ev.Event] = []
        self.launches = 0
        self.messages = 0
        decision = create(cmd.CreateSession(**values), self.world())
        self.state = decision.state
        self.log += [ev.decode(ev.encode(event)) for event in decision.events]

    def world(self) -> World:
        made = world(self.at_s, rules=self.rules, known=self.known)
        known = made.facts if self.knows_agents else {}
        return msgspec.structs.replace(made, facts=known, waits_for=self.waits_for)

    # Steps -------------------------------------------------------------------------------------------------------

    def do(self, command: cmd.Command) -> list[ev.Event]:
        return self._take(decide(self.state, command, self.world()))

    def see(self, *seen: Any, launch: str | None = None) -> list[ev.Event]:
        launch_id = launch if launch is not None else self.launch_id
        return self._take(observe(self.state, launch_id, seen, self.world(), pid=7))

    def _take(self, decision: Decision) -> list[ev.Event]:
        before = dump(self.state)
        stored = [ev.decode(ev.encode(event)) for event in decision.events]
        assert stored == decision.events
        assert dump(self.state) == before
        self.state = decision.state
        self.log += stored
        assert replayed(self.log) == self.state
        return decision.events

    # Ways to get somewhere ---------------------------------------------------------------------------------------

    @property
    def launch_id(self) -> str:
        return self.state.attached.launch_id if self.state.attached else "none"

    @property
    def turn(self) -> int:
        assert self.state.turn is not None
        return self.state.turn.turn

    def send(self, text: str = "hello", **given: Any) -> str:
        self.messages += 1
        message_id = f"m{self.messages}"
        self.do(cmd.SubmitMessage(message_id=message_id, text=text, **given))
        return message_id

    def queue(self, text: str = "later") -> str:
        return self.send(text, when_busy="queue")

    def launch(self, native: str | None = None) -> str:
        self.launches += 1
        assert self.state.turn is not None
        launch_id = f"l{self.launches}"
        self.do(
            cmd.PrepareLaunch(
                turn=self.state.running_turn,
                launch_id=launch_id,
                agent=self.state.turn.agent,
                driver=self.driver,
                native_session_id=native,
                workdir_id="1:2",
                fingerprint="bin",
            )
        )
        return launch_id

    def open(self, native: str = "n1", *, resumed: bool = False) -> None:
        self.launch(native if resumed else None)
        self.see(ob.SessionOpened(native, resumed))

    def offer(self, *names: str) -> None:
        """The agent reports its slash commands."""
        commands = [{"name": name, "description": f"Does {name}"} for name in names]
        self.see(ev.Config(config_id="available_commands", value=commands))

    def limit(self) -> None:
        """The running turn hits a usage limit."""
        assert self.state.turn is not None
        self.see(
            ob.TurnFinished(
                self.state.turn.turn, "failed", "usage_limit", "Limit reached.", retry_at=int(START_S) + 600
            )
        )

    def ask(self, prompt_id: str = "p1", **given: Any) -> None:
        self.see(prompt(self.turn, prompt_id, **given))

    def finish(self, stop_reason: ev.StopReason = "end_turn", **given: Any) -> list[ev.Event]:
        return self.see(ob.TurnFinished(self.turn, stop_reason, **given))

    def a_turn(self, text: str = "hello", native: str = "n1", **given: Any) -> None:
        """A complete turn, with the attached process or a new one."""
        self.send(text, **given)
        if self.state.attached is None:
            self.open(native)
        elif not self.state.attached.opened:
            self.see(ob.SessionOpened(native, False))
        self.finish()


def prompt(turn: int, prompt_id: str = "p1", **given: Any) -> ev.PendingPrompt:
    values: dict[str, Any] = {"kind": "permission", "title": "Run it", "tool": "Bash", "options": [ALLOW, REJECT]}
    return ev.PendingPrompt(turn=turn, prompt_id=prompt_id, **{**values, **given})


def replayed(log: Sequence[ev.Event]) -> Session:
    """The state folded from the log alone."""
    first = log[0]
    assert isinstance(first, ev.SessionCreated)
    state = created(first)
    for event in log[1:]:
        evolve(state, ev.decode(ev.encode(event)))
    return state


def types(events: Sequence[ev.Event]) -> list[str]:
    return [ev.type_of(event) for event in events]


def last(events: Sequence[ev.Event], kind: type[Any]) -> Any:
    return [event for event in events if isinstance(event, kind)][-1]


# One stage per situation that a session can be in --------------------------------------------------------------------


def idle() -> Stage:
    return Stage()


def attached() -> Stage:
    stage = Stage()
    stage.a_turn()
    return stage


def starting() -> Stage:
    stage = Stage()
    stage.send()
    return stage


def working() -> Stage:
    stage = Stage()
    stage.send()
    stage.open()
    return stage


def busy() -> Stage:
    """Working, with a queued message."""
    stage = working()
    stage.queue()
    return stage


def asking() -> Stage:
    stage = working()
    stage.ask()
    return stage


def resuming() -> Stage:
    """A turn with context `resumed`, whose process has not opened its native session yet."""
    stage = attached()
    stage.do(cmd.DetachAgent("idle_timeout"))
    stage.send("again")
    stage.launch("n1")
    return stage


def resuming_command() -> Stage:
    """The same with a slash command, before its process starts."""
    stage = attached()
    stage.offer("compact")
    stage.do(cmd.DetachAgent("idle_timeout"))
    stage.send("/compact")
    return stage


def aborting() -> Stage:
    stage = working()
    stage.do(cmd.AbortTurn())
    return stage


def aborting_busy() -> Stage:
    stage = busy()
    stage.do(cmd.AbortTurn())
    return stage


NO_SLOT = WaitsFor("slots_full", "All slots of the server are taken.")


def accepted() -> Stage:
    """An accepted message whose turn waits for a slot."""
    stage = Stage()
    stage.waits_for = NO_SLOT
    stage.send()
    return stage


def accepted_attached() -> Stage:
    """The same, in a session with an attached process."""
    stage = without_a_slot(attached())
    stage.send("again")
    return stage


def accepted_busy() -> Stage:
    stage = accepted()
    stage.queue()
    return stage


def accepted_single_run() -> Stage:
    stage = without_a_slot(Stage(single_shot=True))
    stage.send()
    return stage


def accepted_unknown() -> Stage:
    """A single-shot session with an agent that is unknown on this machine."""
    stage = Stage(single_shot=True)
    stage.knows_agents = False
    stage.send()
    return stage


def accepted_command() -> Stage:
    """An accepted slash command that can't be sent any more: a change of the history made a replay necessary."""
    stage = attached()
    stage.offer("compact")
    without_a_slot(stage).send("/compact")
    stage.do(cmd.EditMessage(turn=1, message_id="m1", text="other"))
    return with_a_slot(stage)


def accepted_after_edit() -> Stage:
    """An accepted message after a change of the history: its agent will need a replay."""
    stage = attached()
    stage.offer("compact")
    without_a_slot(stage).send("plain")
    stage.do(cmd.EditMessage(turn=1, message_id="m1", text="other"))
    return with_a_slot(stage)


def without_a_slot(stage: Stage) -> Stage:
    stage.waits_for = NO_SLOT
    return stage


def with_a_slot(stage: Stage) -> Stage:
    stage.waits_for = None
    return stage


def ended() -> Stage:
    stage = attached()
    stage.do(cmd.EndSession("stopped", "person"))
    return stage


def changing_files(then: dict[str, Any] | None = None, stage: Stage | None = None) -> Stage:
    """Idle, while files are being restored."""
    stage = stage or attached()
    stage.do(cmd.RequestFiles(operation_id="f1", action="restore", details={"turn": 1}, then=then))
    return stage


def rewinding_files() -> Stage:
    return changing_files(then_of(cmd.Rewind(turn=1)))


def editing_files() -> Stage:
    return changing_files(then_of(cmd.EditMessage(turn=1, message_id="m1", text="other")))


def retrying_files() -> Stage:
    return changing_files(then_of(cmd.RetryTurn(turn=1, message_id="new", text="again")))


def retrying_files_without_a_slot() -> Stage:
    return without_a_slot(retrying_files())


def accepted_changing_files() -> Stage:
    """A message that came while files are being restored."""
    stage = changing_files()
    stage.send("again")
    return stage


def ended_changing_files() -> Stage:
    return changing_files(stage=ended())


def limited() -> Stage:
    """Idle until a usage limit resets."""
    stage = working()
    stage.limit()
    return stage


def limited_busy() -> Stage:
    """The same, with a queued message."""
    stage = busy()
    stage.limit()
    return stage


def single_run() -> Stage:
    """Working, in a single-shot session."""
    stage = Stage(single_shot=True)
    stage.send()
    stage.open()
    return stage


def single_run_resuming_command() -> Stage:
    """A queued slash command as the second turn of a single-shot session, before its process starts."""
    stage = single_run()
    stage.offer("compact")
    stage.queue("/compact")
    stage.finish(leaves=True)
    return stage


def single_run_aborting() -> Stage:
    stage = single_run()
    stage.do(cmd.AbortTurn())
    return stage


def _named(name: str, make: Callable[[], Stage]) -> Callable[[], Stage]:
    make.__name__ = name
    return make


def _resuming_command_busy() -> Stage:
    stage = resuming_command()
    stage.queue()
    return stage


WITH_A_SLOT = tuple(
    _named(f"{made.__name__}_with_a_slot", lambda made=made: with_a_slot(made()))  # type: ignore[misc]
    for made in (accepted, accepted_attached, accepted_busy, accepted_single_run)
)
WITHOUT_A_SLOT = tuple(
    _named(f"{made.__name__}_without_a_slot", lambda made=made: without_a_slot(made()))  # type: ignore[misc]
    for made in (idle, attached, limited, limited_busy, busy, aborting_busy, _resuming_command_busy)
)

SITUATIONS = (
    idle,
    attached,
    accepted,
    accepted_attached,
    accepted_busy,
    accepted_single_run,
    accepted_unknown,
    accepted_command,
    accepted_after_edit,
    *WITH_A_SLOT,
    *WITHOUT_A_SLOT,
    changing_files,
    rewinding_files,
    editing_files,
    retrying_files,
    retrying_files_without_a_slot,
    accepted_changing_files,
    ended_changing_files,
    limited,
    limited_busy,
    starting,
    working,
    busy,
    asking,
    resuming,
    resuming_command,
    aborting,
    aborting_busy,
    single_run,
    single_run_resuming_command,
    single_run_aborting,
    ended,
)
