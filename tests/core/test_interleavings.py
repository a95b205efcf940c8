"""Commands and facts in random order: the machine's invariants always hold."""

import copy
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import observations as ob
from perdure.core.decision import Decision, World
from perdure.core.errors import STATUS_OF_CODE, Refused
from perdure.core.evolve import evolve
from perdure.core.observe import OBSERVED, observe
from perdure.core.permissions import Rule
from perdure.core.scope import turns_of
from perdure.core.session import ALLOWED, create, decide
from perdure.core.state import Session, dump, restore
from tests.core.stage import START_S, facts, prompt, replayed, world
from tests.sizes import size

AGENTS = ("alpha", "beta")
# Refusals that don't depend on the phase alone.
MAY_REFUSE = {
    "SubmitMessage": {"turn_active"},
    "EditMessage": {"not_found", "conflict"},
    "Rewind": {"not_found", "conflict"},
    "RetryTurn": {"not_found", "conflict"},
    "EditQueuedMessage": {"not_found"},
    "UnqueueMessage": {"not_found"},
    "AbortTurn": {"no_turn_active"},
    "AnswerPrompt": {"not_found", "prompt_resolved", "invalid"},
    "SetConfig": {"invalid"},
}
STOP_REASONS = ("end_turn", "cancelled", "failed", "max_turns", "refusal")
WAYS_TO_END = ("exited", "signalled", "lost", "spawn_failed", "orphaned", "memory", "start_timeout", "stuck")
agents = st.sampled_from(AGENTS)
natives = st.sampled_from(("n1", "n2", "n3"))
small = st.integers(0, 3)


class Sessions(RuleBasedStateMachine):
    state: Session

    @initialize(title=st.sampled_from(("", "Named")), single_shot=st.sampled_from((False, False, True)))
    def begin(self, title: str, single_shot: bool) -> None:
        self.log: list[ev.Event] = []
        self.count = 0
        self.at_s = 0.0
        self.answering: tuple[Rule, ...] = ()
        self.able = True
        self.runtime = "bin"
        self.launches: list[str] = ["older"]
        self.prompt_ids: list[str] = ["none"]
        self.waiting: list[str] = []
        self.interrupting: list[str] = []
        own = (Rule("Bash", "own *", "allow"),) if single_shot else ()
        command = cmd.CreateSession(
            session_id="s",
            project=None,
            agent="alpha",
            workdir="/srv",
            title=title,
            permissions=own,
            single_shot=single_shot,
        )
        self._keep(create(command, self._world()))

    # The world ---------------------------------------------------------------------------------------------------

    def _world(self) -> World:
        return world(self.at_s, rules=self.answering, known=facts(can_resume=self.able, runtime=self.runtime))

    def _new(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    @property
    def _turn(self) -> int:
        return self.state.last_turn

    @rule(seconds=st.floats(-5, 500), able=st.booleans(), runtime=st.sampled_from(("bin", "other")))
    def time_passes_and_the_machine_changes(self, seconds: float, able: bool, runtime: str) -> None:
        self.at_s = max(-START_S, self.at_s + seconds)
        self.able, self.runtime = able, runtime

    @rule(action=st.sampled_from(("allow", "ask", "deny", None)))
    def rules_change(self, action: Any) -> None:
        self.answering = (Rule("Bash", "*", action),) if action else ()

    # Keeping -----------------------------------------------------------------------------------------------------

    def _keep(self, decision: Decision) -> None:
        before: Session | None = restore(dump(self.state)) if self.log else None
        for event in decision.events:
            stored = ev.decode(ev.encode(event))
            assert stored == event
            self._check_place(stored)
            if before is not None:
                self._check_plan(before, stored)
                evolve(before, stored)
            self.log.append(stored)
        self.state = decision.state

    def _check_plan(self, before: Session, event: ev.Event) -> None:
        """A turn gets either its context or the transcript, and never a native session that is not confirmed."""
        if isinstance(event, ev.TurnStart):
            assert (event.context == "fresh") is (event.native_session_id is None)
            if event.context != "fresh" and event.origin == "person":
                binding = before.bindings[event.agent]
                assert binding.confirmed
                assert binding.native_session_id == event.native_session_id
                assert event.native_session_id not in before.poisoned
            if event.context == "live":
                assert before.attached is not None
                assert before.attached.native_session_id == event.native_session_id

    def _check_place(self, event: ev.Event) -> None:
        """Every event with a turn's number lies between the start and the end of that turn."""
        starts = [past.turn for past in self.log if isinstance(past, ev.TurnStart)]
        ends = [past.turn for past in self.log if isinstance(past, ev.TurnEnd)]
        running = starts[-1] if len(starts) > len(ends) else None
        assert not any(isinstance(past, ev.SessionEnd) for past in self.log) or isinstance(
            event, ev.Title | ev.SessionUpdated
        )
        if isinstance(event, ev.UserMessage | ev.TurnStart):
            assert running is None
            assert event.turn == len(starts) + 1
        elif isinstance(event, ev.WaitingForInput):
            assert running is None
            # A change of the history may also change the title, and end a wait for a usage limit.
            last = next(past for past in reversed(self.log) if not isinstance(past, ev.Title | ev.WaitingUntil))
            assert event.turn == starts[-1] or isinstance(last, ev.HistoryChanged | ev.AgentDetached)
        elif isinstance(event, ev.HistoryChanged):
            assert running is None
            assert event.turn in turns_of(self.state.visible)
        elif event.turn is not None:
            assert event.turn == running
        if isinstance(event, ev.TurnEnd):
            explained = isinstance(self.log[-1], ev.Error) and self.log[-1].turn == event.turn
            assert explained is (event.stop_reason in ("failed", "timed_out"))

    def _command(self, command: cmd.Command) -> Decision | None:
        name, before = type(command).__name__, self.state
        frozen = dump(before)
        decision, code = None, ""
        try:
            decision = decide(before, command, self._world())
        except Refused as refusal:
            code = refusal.code
        assert dump(before) == frozen
        if decision is None:
            assert code in STATUS_OF_CODE
            assert before.phase not in ALLOWED[name] or code in MAY_REFUSE.get(name, set())
            assert (code == "session_ended") is (before.phase == "ended")
            return None
        assert decision.state.phase in ALLOWED[name][before.phase]
        self._keep(decision)
        return decision

    def _observe(self, launch_id: str, seen: list[Any]) -> None:
        before, frozen = self.state, dump(self.state)
        mine = before.attached is not None and before.attached.launch_id == launch_id
        one_by_one = before
        events: list[ev.Event] = []
        for fact in seen:
            step = observe(one_by_one, launch_id, [copy.deepcopy(fact)], self._world(), pid=1)
            allowed = OBSERVED.get(type(fact).__name__, {}).get(one_by_one.phase, ())
            assert step.state.phase in (one_by_one.phase, *allowed)
            one_by_one = step.state
            events += step.events
        decision = observe(before, launch_id, copy.deepcopy(seen), self._world(), pid=1)
        assert dump(before) == frozen
        assert (decision.events, decision.state) == (events, one_by_one)
        if not mine:
            assert (decision.events, dump(decision.state)) == ([], frozen)
        self._keep(decision)

    # Commands ----------------------------------------------------------------------------------------------------

    @rule(agent=st.none() | agents, fresh=st.booleans(), when_busy=st.sampled_from(("reject", "queue", "interrupt")))
    def submit(self, agent: str | None, fresh: bool, when_busy: Any) -> None:
        message_id = self._new("m")
        busy = self.state.working
        command = cmd.SubmitMessage(
            message_id=message_id, text=f"say {message_id}", agent=agent, fresh=fresh, when_busy=when_busy
        )
        if self._command(command) is not None and busy:
            (self.interrupting if when_busy == "interrupt" else self.waiting).append(message_id)

    @rule(turn=st.integers(1, 8), revision=st.none() | small)
    def edit(self, turn: int, revision: int | None) -> None:
        seen = turns_of(self.state.visible)
        command = cmd.EditMessage(turn=turn, message_id=f"m{turn}", text=self._new("edited"), revision=revision)
        if self._command(command) is not None:
            assert turns_of(self.state.visible) == seen

    @rule(turn=st.integers(1, 8), revision=st.none() | small)
    def rewind(self, turn: int, revision: int | None) -> None:
        seen = turns_of(self.state.visible)
        if self._command(cmd.Rewind(turn=turn, revision=revision)) is not None:
            assert turns_of(self.state.visible) == [number for number in seen if number < turn]

    @rule(turn=st.integers(1, 8), agent=agents)
    def retry(self, turn: int, agent: str) -> None:
        seen = turns_of(self.state.visible)
        message_id = self._new("m")
        decision = self._command(cmd.RetryTurn(turn=turn, message_id=message_id, text=message_id, agent=agent))
        if decision is not None:
            kept = [number for number in seen if number < turn]
            assert turns_of(self.state.visible) == [*kept, self.state.last_turn]
            assert self.state.turn is not None and self.state.turn.context == "fresh"

    @rule(index=small)
    def edit_queued(self, index: int) -> None:
        waiting = [*self.interrupting, *self.waiting, "none"]
        message_id, text = waiting[index % len(waiting)], self._new("edited")
        if self._command(cmd.EditQueuedMessage(message_id, text)) is not None:
            assert next(queued.text for queued in self.state.queue if queued.message_id == message_id) == text

    @rule(index=small)
    def unqueue(self, index: int) -> None:
        waiting = [*self.interrupting, *self.waiting, "none"]
        message_id = waiting[index % len(waiting)]
        if self._command(cmd.UnqueueMessage(message_id)) is not None:
            for line in (self.interrupting, self.waiting):
                line[:] = [other for other in line if other != message_id]

    @rule(reason=st.sampled_from(("person", "turn_timeout", "turn_limit", "silence")))
    def abort(self, reason: Any) -> None:
        self._command(cmd.AbortTurn(reason))
        self._sent()

    @rule()
    def the_limit_resets(self) -> None:
        self._command(cmd.EndWait("Go on."))
        self._sent()

    @precondition(lambda self: self.count > 12)
    @rule(status=st.sampled_from(("completed", "stopped", "timed-out", "failed")))
    def end(self, status: Any) -> None:
        if self._command(cmd.EndSession(status, "why")) is not None:
            assert self.state.status == status
            self.waiting, self.interrupting = [], []

    @rule(index=st.integers(0, 9), option=st.sampled_from(("yes", "no", "perhaps")), cancel=st.booleans())
    def answer(self, index: int, option: str, cancel: bool) -> None:
        prompt_id = self.prompt_ids[-1 - index % len(self.prompt_ids)]
        was_open = prompt_id in self.state.prompts
        decision = self._command(cmd.AnswerPrompt(prompt_id=prompt_id, option_id=option, cancel=cancel))
        assert (decision is not None) == (was_open and (cancel or option != "perhaps"))

    @rule(config_id=st.sampled_from(("model", "mode", "speed")), value=st.sampled_from(("a", "b")))
    def set_config(self, config_id: str, value: str) -> None:
        self._command(cmd.SetConfig(config_id, value))

    @rule(title=st.none() | st.text(max_size=5), archived=st.none() | st.booleans())
    def update(self, title: str | None, archived: bool | None) -> None:
        assert self._command(cmd.UpdateSession(title=title, archived=archived)) is not None

    @rule()
    def detach(self) -> None:
        self._command(cmd.DetachAgent("idle_timeout"))

    @rule(clock=st.sampled_from(("turn_timeout", "turn_limit", "silence")), back=small, stop=st.booleans())
    def expire(self, clock: Any, back: int, stop: bool) -> None:
        frozen = dump(self.state)
        decision = self._command(cmd.ExpireTurnClock(clock, self._turn - back, 60, stop))
        if back and decision is not None:
            assert (decision.events, dump(self.state)) == ([], frozen)

    @precondition(lambda self: self.state.working and self.state.attached is None)
    @rule()
    def launch(self) -> None:
        self._launch()

    @rule()
    def launch_at_an_odd_time(self) -> None:
        self._launch()

    def _launch(self) -> None:
        turn = self.state.turn
        launch_id = self._new("l")
        command = cmd.PrepareLaunch(
            turn=self.state.running_turn,
            launch_id=launch_id,
            agent=turn.agent if turn else "alpha",
            driver="acp",
            native_session_id=turn.native_session_id if turn else None,
            workdir_id="1:2",
            fingerprint=self.runtime,
        )
        if self._command(command) is not None:
            self.launches.append(launch_id)

    @rule()
    def give_up(self) -> None:
        if self._command(cmd.GiveUpTurn(code="internal", message="x")) is not None:
            self._sent()

    @rule()
    def begin_anew(self) -> None:
        self._command(cmd.BeginAnew("native_session_shared"))

    # Facts -------------------------------------------------------------------------------------------------------

    def _asked(self, turn: int, number: int) -> ev.PendingPrompt:
        prompt_id = self._new("p")
        self.prompt_ids.append(prompt_id)
        return prompt(turn, prompt_id, input={"n": number})

    def _fact(self, data: st.DataObject) -> Any:
        turn = max(1, self._turn - data.draw(st.sampled_from((0, 0, 0, 0, 1, 2)), label="turns back"))
        kind = data.draw(st.integers(0, 17), label="kind")
        tool_id, block = f"t{kind % 2}", data.draw(small)
        if kind == 12:
            return self._asked(turn, data.draw(st.integers()))
        options = [{"id": "model", "currentValue": "a", "options": [{"value": "a"}, {"value": "b"}]}]
        stop_reasons: st.SearchStrategy[Any] = st.sampled_from(STOP_REASONS)
        ways: st.SearchStrategy[Any] = st.sampled_from(WAYS_TO_END)
        facts_by_kind: dict[int, Any] = {
            0: lambda: ev.AssistantText(turn=turn, block=block, delta="x"),
            1: lambda: ev.AssistantThinking(turn=turn, block=block, delta="x"),
            2: lambda: ev.ToolUse(turn=turn, tool_id=tool_id, name="Bash"),
            3: lambda: ev.ToolUpdate(turn=turn, tool_id=tool_id),
            4: lambda: ev.ToolResult(turn=turn, tool_id=tool_id),
            5: lambda: ev.Usage(turn=data.draw(st.sampled_from((turn, None))), input_tokens=block, cost_usd=0.5),
            6: lambda: ev.Config(config_id="model", value="b", options=options if block else None),
            7: lambda: ob.SessionOpened(data.draw(natives), data.draw(st.booleans()), config_options=options),
            8: lambda: ob.ResumeRefused("unknown", data.draw(st.booleans())),
            9: lambda: ob.StartFailed("needs_login", "Sign in."),
            10: lambda: ob.PromptWithdrawn(self.prompt_ids[-1]),
            11: lambda: ob.Noise("{", "broken"),
            13: lambda: ob.AgentExited(
                data.draw(ways),
                exit_code=1,
                delivered=data.draw(st.booleans()),
                fallback=data.draw(st.none() | st.just("other")),
            ),
            16: lambda: ob.TurnBegun("By itself."),
            17: lambda: ob.TurnFinished(0, "end_turn", leaves=data.draw(st.booleans())),
            14: lambda: ev.Title(title="By the agent", by="agent"),
            15: lambda: ob.TurnFinished(
                turn,
                data.draw(stop_reasons),
                error_message=data.draw(st.sampled_from((None, None, "Failed."))),
                poisoned=data.draw(st.sampled_from((False, False, True))),
                cost_usd=1.0,
                retry_at=data.draw(st.sampled_from((None, None, int(START_S) + 60))),
            ),
        }
        return facts_by_kind[kind]()

    @precondition(lambda self: self.state.attached is not None)
    @rule(data=st.data(), count=st.integers(1, 4))
    def the_agent_speaks(self, data: st.DataObject, count: int) -> None:
        assert self.state.attached is not None
        self._observe(self.state.attached.launch_id, [self._fact(data) for _ in range(count)])
        self._sent()

    @rule(data=st.data(), index=st.integers(0, 9))
    def an_older_process_speaks(self, data: st.DataObject, index: int) -> None:
        self._observe(self.launches[-1 - index % len(self.launches)], [self._fact(data)])
        self._sent()

    @precondition(lambda self: self.state.phase == "idle")
    @rule(agent=agents, native=natives, fresh=st.booleans())
    def a_turn_begins(self, agent: str, native: str, fresh: bool) -> None:
        self.submit(agent, fresh, "reject")
        if self.state.attached is None:
            self._launch()
        assert self.state.attached is not None
        if not self.state.attached.opened:
            self._observe(self.state.attached.launch_id, [ob.SessionOpened(native, False)])

    @precondition(lambda self: self.state.working and self.state.attached is not None)
    @rule(count=st.integers(1, 3), tool=st.booleans())
    def the_agent_asks(self, count: int, tool: bool) -> None:
        assert self.state.attached is not None
        seen: list[Any] = [ev.ToolUse(turn=self._turn, tool_id="t", name="Bash")] if tool else []
        self._observe(self.state.attached.launch_id, [*seen, *(self._asked(self._turn, 1) for _ in range(count))])

    @precondition(lambda self: self.state.working and self.state.attached is not None)
    @rule(native=natives)
    def the_turn_goes_well(self, native: str) -> None:
        assert self.state.attached is not None
        opened = [] if self.state.attached.opened else [ob.SessionOpened(native, False)]
        self._observe(self.state.attached.launch_id, [*opened, ob.TurnFinished(self._turn, "end_turn")])
        self._sent()

    def _sent(self) -> None:
        """Messages leave the queue from its front, and each becomes the next turn."""
        still = [queued.message_id for queued in self.state.queue]
        expected = [*self.interrupting, *self.waiting]
        gone = expected[: len(expected) - len(still)]
        starts = [event.message_id for event in self.log if isinstance(event, ev.TurnStart)]
        assert not gone or [start for start in starts if start in gone] == gone
        for line in (self.interrupting, self.waiting):
            line[:] = [message_id for message_id in line if message_id not in gone]

    # What must always hold ---------------------------------------------------------------------------------------

    @invariant()
    def the_phase_is_one_of_four_and_fits_the_rest(self) -> None:
        state = self.state
        assert state.phase in ("idle", "working", "aborting", "ended")
        running = state.turn is not None and state.turn.ended_at is None
        assert state.working is running
        assert (state.abort_reason is not None) is (state.phase == "aborting")
        assert (state.ended_at is not None) is (state.phase == "ended") is (state.status != "running")
        if state.phase == "ended":
            assert (state.attached, state.prompts, state.queue) == (None, {}, [])

    @invariant()
    def turns_start_once_in_order_and_end_at_most_once(self) -> None:
        starts = [event.turn for event in self.log if isinstance(event, ev.TurnStart)]
        ends = [event.turn for event in self.log if isinstance(event, ev.TurnEnd)]
        assert starts == list(range(1, len(starts) + 1))
        assert ends == starts[: len(ends)]
        assert len(starts) - len(ends) == (1 if self.state.working else 0)
        assert self.state.last_turn == len(starts)
        assert self.state.turn_count == len(turns_of(self.state.visible))

    @invariant()
    def prompts_wait_only_in_a_working_turn_of_a_living_process(self) -> None:
        for waiting in self.state.prompts.values():
            assert self.state.phase == "working" and not self.state.single_shot
            assert self.state.attached is not None
            assert waiting.turn == self._turn
        asked = [event.prompt_id for event in self.log if isinstance(event, ev.PendingPrompt)]
        resolved = [event.prompt_id for event in self.log if isinstance(event, ev.PromptResolved)]
        assert len(resolved) == len(set(resolved))
        assert set(asked) - set(resolved) == set(self.state.prompts)

    @invariant()
    def the_queue_keeps_its_order_and_waits_only_behind_a_turn(self) -> None:
        queue = [queued.message_id for queued in self.state.queue]
        assert queue == [*self.interrupting, *self.waiting]
        assert self.state.working or self.state.waiting_until is not None or not queue

    @invariant()
    def a_single_run_is_over_with_its_last_turn(self) -> None:
        assert not (self.state.single_shot and self.state.phase == "idle" and self.state.last_turn)

    @invariant()
    def tools_are_open_only_while_a_turn_runs(self) -> None:
        assert self.state.working or self.state.turn is None or not self.state.turn.open_tools

    @invariant()
    def the_log_alone_leads_to_the_same_state(self) -> None:
        assert replayed(self.log) == self.state
        assert restore(dump(self.state)) == self.state


TestSessions = Sessions.TestCase
TestSessions.settings = settings(
    max_examples=size("INTERLEAVINGS", 150, fast=40), stateful_step_count=50, deadline=None
)
