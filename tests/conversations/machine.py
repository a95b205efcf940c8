"""Plays a conversation in memory: the real machine, plan and transcript, with agents that only remember.

For each native session, an agent remembers every message it received and every answer it gave. A simple, slow model
lists the turns that people see. Whenever an agent receives a message, its memory must then equal what people see.
Nothing here knows about context versions, bindings or spans.

An agent stores its sessions by id and reads them back when it resumes one. It may issue the same id more than once
(`ids`: how many it has). It then stores only the newest session under that id, or mixes all of them.
"""

import random
from typing import Any, NamedTuple

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import observations as ob
from perdure.core.decision import Decision, World
from perdure.core.history import take_over
from perdure.core.scope import missing
from perdure.core.session import create
from perdure.core.state import IssuedNativeSession, dump, restore
from perdure.core.transcript import History, compose
from perdure.core.transcript_text import unwrap
from tests.conversations import script
from tests.core.stage import Stage, facts, world

Said = list[tuple[str, str]]


class Shown(NamedTuple):
    """One turn as people see it."""

    number: int
    agent: str
    message: str
    answer: str
    failed: bool


class Play:
    def __init__(self, *, scope: Any = "all", seed: int = 0, ids: int | None = None) -> None:
        self.scope = scope
        self.chance = random.Random(seed)
        self.ids = ids
        self.natives = _Natives()
        self.stage = _Stage(scope, self.natives, agent=script.AGENTS[0])
        self.shown: list[Shown] = []
        self.others = [(_Stage(scope, self.natives, agent=script.AGENTS[0]), list[Shown]())]
        self.held: dict[int, Said] = {}
        """By session: what its process remembers."""
        self.memories: dict[str, Said] = {}
        """By id: the stored native session."""
        self.refusing: set[str] = set()
        self.poisoned: set[str] = set()
        self.failed: set[str] = set()
        self.count = 0

    def play(self, steps: list[script.Step]) -> None:
        for step in steps:
            getattr(self, f"_{type(step).__name__.lower()}")(step)

    # Steps ---------------------------------------------------------------------------------------------------------

    def _say(self, step: script.Say) -> None:
        self.stage.send(self._new("say"), agent=step.agent, fresh=step.fresh)
        self._work(step.ending)

    def _edit(self, step: script.Edit) -> None:
        if (index := self._index(step.place)) is not None:
            before, text = self.shown[index], self._new("edited")
            known = self._relied_on()
            stale = {agent for agent, said in known.items() if ("user", before.message) in said}
            self.stage.do(cmd.EditMessage(turn=before.number, message_id="m", text=text))
            self.shown[index] = before._replace(message=text)
            self._check_bumps(set(known), stale)

    def _rewind(self, step: script.Rewind) -> None:
        if (index := self._index(step.place)) is not None:
            dropped = self.shown[index:]
            known = self._relied_on()
            stale = {agent for agent, said in known.items() if any(("user", turn.message) in said for turn in dropped)}
            self.stage.do(cmd.Rewind(turn=self.shown[index].number))
            del self.shown[index:]
            self._check_bumps(set(known), stale)

    def _retry(self, step: script.Retry) -> None:
        if (index := self._index(step.place)) is not None:
            turn, message = self.shown[index], self._new("again")
            self.stage.do(cmd.RetryTurn(turn=turn.number, message_id=message, text=message, agent=step.agent))
            del self.shown[index:]
            assert self.stage.state.turn is not None and self.stage.state.turn.context == "fresh"
            self._work("well")

    def _suspend(self, _: script.Suspend) -> None:
        self.stage.do(cmd.DetachAgent("idle_timeout"))

    def _own(self, _: script.Own) -> None:
        attached = self.stage.state.attached
        if attached is None or not attached.opened or attached.native_session_id is None:
            return
        notice, answer = self._new("notice"), self._new("by itself")
        self.stage.see(ob.TurnBegun(notice), ev.AssistantText(turn=0, block=0, delta=answer))
        number = self.stage.turn
        self.stage.see(ob.TurnFinished(0, "end_turn"))
        self._remember(attached.native_session_id, ("user", notice), ("assistant", answer))
        self.shown.append(Shown(number, self.stage.state.agent, notice, answer, False))

    def _kill(self, _: script.Kill) -> None:
        if self.stage.state.attached is not None:
            self.stage.see(ob.AgentExited("signalled", signal=9))

    def _restart(self, _: script.Restart) -> None:
        self.stage.state = restore(dump(self.stage.state))

    def _fork(self, step: script.Fork) -> None:
        index = self._index(step.place)
        last = self.shown[index].number if index is not None else 0
        turns = {turn.number for turn in self.shown if turn.number <= last}
        forked = _Stage(self.scope, self.natives, agent=self.stage.state.agent)
        decision = create(
            cmd.CreateSession(session_id="s", project=None, agent=self.stage.state.agent, workdir="/srv"),
            forked.world(),
        )
        take_over(decision, [ev.decode(ev.encode(event)) for event in self.stage.log], turns)
        forked.log = [ev.decode(ev.encode(event)) for event in decision.events]
        forked.state, forked.launches, forked.messages = decision.state, 1000, self.stage.messages
        assert not forked.state.bindings
        self.stage = forked
        self.shown = [turn for turn in self.shown if turn.number <= last]

    def _switch(self, _: script.Switch) -> None:
        self.others.append((self.stage, self.shown))
        self.stage, self.shown = self.others.pop(0)

    # A turn --------------------------------------------------------------------------------------------------------

    def _work(self, ending: script.Ending) -> None:
        """Play the agent's part of a turn, to its end."""
        stage, asked = self.stage, self.stage.turn
        while stage.state.working:
            turn = stage.state.turn
            assert turn is not None and turn.turn == asked
            if not self._opened():
                continue
            attached = stage.state.attached
            assert attached is not None and attached.native_session_id is not None
            if self.chance.random() < 0.1 and turn.attempt == 1:
                stage.see(ob.AgentExited("signalled", signal=9, delivered=False))
                continue
            self._hear(attached.native_session_id)
            self._answer(attached.native_session_id, ending)

    def _opened(self) -> bool:
        """Open the native session; False if the turn continues in another way."""
        stage = self.stage
        turn, attached = stage.state.turn, stage.state.attached
        assert turn is not None
        if attached is None:
            stage.launch(turn.native_session_id if turn.context == "resumed" else None)
            attached = stage.state.attached
        assert attached is not None
        if attached.opened:
            return True
        native = turn.native_session_id if turn.context == "resumed" else None
        if native is None:
            stage.see(ob.SessionOpened(self._begun(), False))
            return True
        assert native not in self.failed, "a session that failed for good is opened again"
        if native in self.refusing:
            stage.see(ob.ResumeRefused("No such session.", reopens=self.chance.random() < 0.5))
            assert native not in [binding.native_session_id for binding in stage.state.bindings.values()]
            return False
        self.held[id(stage)] = list(self.memories[native])
        stage.see(ob.SessionOpened(native, True))
        return True

    def _begun(self) -> str:
        """Open a new native session, under an id that the agent may have issued before."""
        native = self._new("n") if self.ids is None else f"n {self.chance.randrange(self.ids)}"
        if self.chance.random() < 0.5:
            self.memories[native] = []
        self.memories.setdefault(native, [])
        for fate in (self.refusing, self.poisoned, self.failed):
            fate.discard(native)
        self.held[id(self.stage)] = []
        return native

    def _remember(self, native: str, *said: tuple[str, str]) -> None:
        self.held[id(self.stage)] += said
        self.memories[native] += said

    def _hear(self, native: str) -> None:
        """Send the message to the agent. Its memory must then equal what people see."""
        turn = self.stage.state.turn
        assert turn is not None
        history = History()
        for event in self.stage.log:
            history.fold(event)
        message = history.views[turn.turn].message
        assert message is not None and turn.context is not None
        untold = missing(self.stage.state.visible, turn.agent, turn.scope, turn.seen, before=turn.turn)
        entries, newest = unwrap(compose(turn.context, history, untold, message["text"]).text)
        self._remember(native, *((entry.role, entry.text) for entry in entries if entry.text), ("user", newest))
        memory = self.held[id(self.stage)]
        if self.scope == "all":
            assert memory == [*_told(self.shown), ("user", newest)], turn.context_reason
            return
        view = _told(self._view(turn.agent))
        if turn.context == "fresh":
            assert memory == [*view, ("user", newest)], turn.context_reason
        remaining = iter([*_told(self.shown), ("user", newest)])
        assert all(said in remaining for said in memory), "something is out of order, twice or no longer so"
        assert set(view) <= set(memory)

    def _view(self, agent: str) -> list[Shown]:
        for index in range(len(self.shown), 0, -1):
            if self.shown[index - 1].agent != agent and not self.shown[index - 1].failed:
                return self.shown[index:]
        return self.shown

    def _answer(self, native: str, ending: script.Ending) -> None:
        stage = self.stage
        turn = stage.state.turn
        assert turn is not None
        message = self.held[id(stage)][-1][1]
        if native in self.poisoned:
            self.failed.add(native)
            stage.finish("failed", error_code="context_too_long", error_message="Too long.", poisoned=True)
            self.shown.append(Shown(turn.turn, turn.agent, message, "", True))
            return
        answer = self._new("answer")
        stage.see(ev.AssistantText(turn=turn.turn, block=0, delta=answer))
        if ending == "crashed":
            stage.see(ob.AgentExited("exited", exit_code=1))
        elif ending == "failed":
            stage.finish("failed", error_message="Overloaded.")
        elif ending == "cancelled":
            stage.do(cmd.AbortTurn())
            stage.finish("cancelled", forgotten=self.chance.random() < 0.5)
        else:
            stage.finish()
        self._remember(native, ("assistant", answer))
        if ending == "refuse":
            self.refusing.add(native)
        elif ending == "poison":
            self.poisoned.add(native)
        self.shown.append(Shown(turn.turn, turn.agent, message, answer, ending in ("crashed", "failed")))

    # Looking -------------------------------------------------------------------------------------------------------

    def _index(self, place: int) -> int | None:
        return place % len(self.shown) if self.shown else None

    def _new(self, kind: str) -> str:
        self.count += 1
        return f"{kind} {self.count}"

    def _relied_on(self) -> dict[str, Said]:
        """The contents of native sessions in which a turn could still continue."""
        state = self.stage.state
        return {
            agent: self.memories[binding.native_session_id]
            for agent, binding in state.bindings.items()
            if binding.confirmed
            and binding.context_version == state.context_versions.get(agent, 0)
            and not self.natives.twice
        }

    def _check_bumps(self, relied_on: set[str], stale: set[str]) -> None:
        """Exactly those agents are marked as out of date whose native session holds outdated turns."""
        change = next(event for event in reversed(self.stage.log) if isinstance(event, ev.HistoryChanged))
        assert set(change.bumped) & relied_on == stale


class _Natives:
    """What the server knows about the ids that agents issued."""

    def __init__(self) -> None:
        self.once: set[tuple[str, str]] = set()
        self.twice: set[tuple[str, str]] = set()

    def note(self, issued: list[IssuedNativeSession]) -> None:
        for native in issued:
            key = (native.program, native.native_session_id)
            (self.twice if key in self.once else self.once).add(key)


class _Stage(Stage):
    def __init__(self, scope: Any, natives: _Natives, **given: Any) -> None:
        self.scope = scope
        self.natives = natives
        super().__init__(**given)

    def world(self) -> World:
        made = world(self.at_s, known=facts())
        return World(made.now, made.facts, made.rules, self.scope, self.natives.twice)

    def _take(self, decision: Decision) -> list[ev.Event]:
        self.natives.note(decision.issued)
        return super()._take(decision)


def _told(turns: list[Shown]) -> Said:
    said: Said = []
    for turn in turns:
        said.append(("user", turn.message))
        if turn.answer:
            said.append(("assistant", turn.answer))
    return said


def play(steps: list[script.Step], *, scope: Any = "all", seed: int = 0, ids: int | None = None) -> None:
    Play(scope=scope, seed=seed, ids=ids).play(steps)
