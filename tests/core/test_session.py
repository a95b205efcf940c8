"""How the machine handles commands: what is allowed, what is refused, and the resulting events."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perdure.core import commands as cmd
from perdure.core import events as ev
from perdure.core import observations as ob
from perdure.core.errors import STATUS_OF_CODE, Refused
from perdure.core.files import then_of
from perdure.core.session import ALLOWED, QUEUE_MAX_CHARS
from perdure.core.state import dump
from perdure.core.turns import FILES
from tests.core.stage import (
    SITUATIONS,
    Stage,
    aborting,
    accepted,
    asking,
    attached,
    busy,
    changing_files,
    editing_files,
    ended,
    idle,
    last,
    limited_busy,
    resuming,
    retrying_files,
    rewinding_files,
    types,
    working,
)


def commands(stage: Stage) -> Iterator[cmd.Command]:
    """Every command, in all variants, with values that fit this session."""
    turn = stage.state.turn.turn if stage.state.turn else 1
    agent = stage.state.agent
    yield cmd.SubmitMessage(message_id="new", text="new")
    yield cmd.SubmitMessage(message_id="new", text="new", when_busy="queue")
    yield cmd.SubmitMessage(message_id="new", text="new", when_busy="interrupt")
    yield cmd.SubmitMessage(message_id="new", text="/compact", when_busy="interrupt")
    yield cmd.EditMessage(turn=turn, message_id="m1", text="other")
    yield cmd.Rewind(turn=turn)
    yield cmd.RetryTurn(turn=turn, message_id="new", text="again")
    yield cmd.EditQueuedMessage(stage.state.queue[0].message_id if stage.state.queue else "none", "better")
    yield cmd.UnqueueMessage(stage.state.queue[0].message_id if stage.state.queue else "none")
    yield cmd.AbortTurn()
    yield cmd.EndSession("stopped", "person")
    yield cmd.AnswerPrompt(prompt_id="p1", option_id="yes")
    yield cmd.SetConfig("model", "large")
    yield cmd.UpdateSession(title="Named", labels=("a",))
    yield cmd.UpdateSession(archived=True)
    for then in (None, then_of(cmd.Rewind(turn=turn)), then_of(cmd.RetryTurn(turn=turn, message_id="r", text="again"))):
        yield cmd.RequestFiles(operation_id="f2", action="restore", details={"turn": turn}, then=then)
    yield cmd.FinishFiles(operation_id="f1", outcome="done", message="Restored 1 file.", undoable=True)
    yield cmd.FinishFiles(operation_id="f1", outcome="conflict", message="A file was changed.", code="files_changed")
    yield cmd.DetachAgent("idle_timeout")
    for clock in ("turn_timeout", "turn_limit", "silence"):
        for stop in (True, False):
            yield cmd.ExpireTurnClock(clock, turn, 60, stop)
    for planned in (stage.state.running_turn, turn + 1):
        yield cmd.PrepareLaunch(
            turn=planned,
            launch_id="l9",
            agent=agent,
            driver="acp",
            native_session_id=None,
            workdir_id="1:2",
            fingerprint="bin",
        )
    yield cmd.EndWait("Go on.")
    yield cmd.GiveUpTurn(code="internal", message="It can't be started.")
    yield cmd.BeginAnew("native_session_shared")
    yield cmd.BeginTurn()


def each_step() -> Iterator[tuple[Stage, cmd.Command]]:
    for situation in SITUATIONS:
        for number in range(len(list(commands(situation())))):
            stage = situation()
            yield stage, list(commands(stage))[number]


def test_the_table_says_exactly_what_happens() -> None:
    happened: dict[str, dict[str, set[str]]] = {}
    for stage, command in each_step():
        name, phase = type(command).__name__, stage.state.phase
        try:
            stage.do(command)
        except Refused:
            continue
        happened.setdefault(name, {}).setdefault(phase, set()).add(stage.state.phase)
    assert happened == {name: {phase: set(targets) for phase, targets in row.items()} for name, row in ALLOWED.items()}


def test_a_refused_command_names_a_known_code_and_changes_nothing() -> None:
    for stage, command in each_step():
        before, count = dump(stage.state), len(stage.log)
        refused: Refused | None = None
        try:
            stage.do(command)
        except Refused as refusal:
            refused = refusal
        if refused is not None:
            assert refused.code in STATUS_OF_CODE
            assert refused.detail.endswith(".")
            assert (dump(stage.state), len(stage.log)) == (before, count)


AFTER_THE_END = (cmd.UpdateSession, cmd.RequestFiles, cmd.FinishFiles)
"""Commands that an ended session accepts: it can be archived, and its work committed."""
WORKTREE = {"repository": "/r", "path": "/w", "branch": "b", "base": "main", "base_commit": "c"}
REFUSALS: list[tuple[Callable[[], Stage], cmd.Command, str]] = [
    (working, cmd.SubmitMessage(message_id="x", text="x"), "turn_active"),
    (idle, cmd.AbortTurn(), "no_turn_active"),
    (idle, cmd.GiveUpTurn(code="internal", message="x"), "no_turn_active"),
    (attached, cmd.ExpireTurnClock("turn_timeout", 1, 60, True), "no_turn_active"),
    (working, cmd.DetachAgent("x"), "turn_active"),
    (idle, cmd.EditQueuedMessage("x", "better"), "not_found"),
    (busy, cmd.EditQueuedMessage("x", "better"), "not_found"),
    (idle, cmd.UnqueueMessage("x"), "not_found"),
    (busy, cmd.UnqueueMessage("x"), "not_found"),
    (idle, cmd.AnswerPrompt(prompt_id="x"), "not_found"),
    (asking, cmd.AnswerPrompt(prompt_id="x"), "not_found"),
    (asking, cmd.AnswerPrompt(prompt_id="p1", option_id="perhaps"), "invalid"),
    *[(ended, command, "session_ended") for command in commands(ended()) if not isinstance(command, AFTER_THE_END)],
]


@pytest.mark.parametrize(("situation", "command", "code"), REFUSALS)
def test_a_refusal_says_what_is_wrong(situation: Callable[[], Stage], command: cmd.Command, code: str) -> None:
    with pytest.raises(Refused) as caught:
        situation().do(command)
    assert caught.value.code == code


def test_a_busy_session_says_which_turn_runs() -> None:
    with pytest.raises(Refused) as caught:
        working().send()
    assert caught.value.facts == {"state": "processing", "turn": 1}


def test_a_prompt_can_be_answered_only_once() -> None:
    stage = asking()
    assert last(stage.do(cmd.AnswerPrompt(prompt_id="p1", option_id="yes")), ev.PromptResolved).outcome == "allowed"
    for _ in range(2):
        with pytest.raises(Refused) as caught:
            stage.do(cmd.AnswerPrompt(prompt_id="p1", option_id="no"))
        assert caught.value.code == "prompt_resolved"
        if stage.state.working:
            stage.finish()


# Messages and the queue ---------------------------------------------------------------------------------------------


def test_a_message_starts_a_turn_and_gives_the_session_its_title() -> None:
    stage = idle()
    events = stage.do(cmd.SubmitMessage(message_id="m", text="\n  Fix the parser\nplease"))
    assert types(events) == ["user_message", "turn_start", "title"]
    assert (stage.state.title, stage.state.title_by, stage.state.state) == ("Fix the parser", "message", "processing")
    assert events[1].run_id == "s.1"  # type: ignore[attr-defined]


def test_the_title_is_made_from_the_first_message_only_and_never_against_a_person() -> None:
    stage = attached()
    stage.send("another subject")
    assert stage.state.title == "hello"
    named = Stage(title="Mine")
    named.a_turn()
    named.send("again")
    named.see(ev.Title(title="The agent's", by="agent"))
    assert (named.state.title, named.state.title_by) == ("Mine", "person")
    stage.see(ev.Title(title="The agent's", by="agent"))
    assert stage.state.title == "The agent's"
    stage.do(cmd.UpdateSession(title="Mine"))
    stage.see(ev.Title(title="The agent's", by="agent"))
    assert stage.state.title == "Mine"


def test_queued_messages_are_sent_in_order_after_interruptions_in_order() -> None:
    stage = working()
    first, second = stage.queue("first"), stage.queue("second")
    urgent = stage.send("urgent", when_busy="interrupt")
    more_urgent = stage.send("more urgent", when_busy="interrupt")
    assert stage.state.phase == "aborting"
    order = []
    while stage.state.working:
        stage.finish()
        if stage.state.working:
            assert stage.state.turn is not None
            order.append(stage.state.turn.message_id)
    assert order == [urgent, more_urgent, first, second]


def test_no_waiting_for_input_between_a_turn_and_the_next_queued_one() -> None:
    stage = busy()
    assert types(stage.finish()) == ["turn_end", "message_unqueued", "user_message", "turn_start"]
    assert types(stage.finish()) == ["turn_end", "waiting_for_input"]


def test_a_withdrawn_message_is_never_sent() -> None:
    stage = busy()
    stage.do(cmd.UnqueueMessage(stage.state.queue[0].message_id))
    stage.finish()
    assert (stage.state.phase, stage.turn) == ("idle", 1)


def test_an_edited_queued_message_keeps_its_place_and_has_its_new_text() -> None:
    stage = working()
    first, second = stage.queue("first"), stage.queue("second")
    assert types(stage.do(cmd.EditQueuedMessage(first, "better"))) == ["queued_message_edited"]
    assert [(queued.message_id, queued.text) for queued in stage.state.queue] == [(first, "better"), (second, "second")]
    sent = next(event for event in stage.finish() if isinstance(event, ev.UserMessage))
    assert (sent.message_id, sent.text) == (first, "better")


def test_an_edit_that_would_make_the_queue_too_long_is_refused() -> None:
    stage = working()
    first, _ = stage.queue("first"), stage.queue("second")
    with pytest.raises(Refused, match="withdraw another") as refused:
        stage.do(cmd.EditQueuedMessage(first, "x" * QUEUE_MAX_CHARS))
    assert refused.value.code == "queue_full"
    stage.do(cmd.EditQueuedMessage(first, "x" * (QUEUE_MAX_CHARS - len("second"))))


def test_another_agent_gets_its_own_process_and_the_old_one_is_detached() -> None:
    stage = attached()
    events = stage.do(cmd.SubmitMessage(message_id="x", text="x", agent="beta"))
    assert types(events)[:3] == ["agent_detached", "user_message", "turn_start"]
    assert (stage.state.agent, stage.state.attached) == ("beta", None)


def test_a_process_of_another_agent_is_detached_even_if_it_was_never_used() -> None:
    stage = Stage()
    stage.send()
    stage.launch()
    stage.see(ob.TurnFinished(1, "cancelled", sent=False))
    stage.send("x", agent="beta")
    assert stage.state.attached is None


# Abort, stop, clocks -------------------------------------------------------------------------------------------------


def test_an_abort_answers_open_prompts_keeps_the_answer_and_leaves_the_session_usable() -> None:
    stage = asking()
    stage.see(ev.AssistantText(turn=1, block=0, delta="half"))
    assert types(stage.do(cmd.AbortTurn())) == ["prompt_resolved", "abort_requested"]
    assert stage.do(cmd.AbortTurn()) == []
    assert last(stage.finish("cancelled"), ev.TurnEnd).stop_reason == "cancelled"
    assert (stage.state.state, stage.state.error) == ("idle", None)
    stage.send("go on")
    assert stage.state.turn is not None
    assert stage.state.turn.context == "live"


@pytest.mark.parametrize(
    "end",
    [
        lambda stage: stage.finish("failed", error_message="late"),
        lambda stage: stage.finish("end_turn"),
        lambda stage: stage.see(ob.AgentExited("signalled", signal=9)),
        lambda stage: stage.see(ob.StartFailed("needs_login", "Sign in.")),
        lambda stage: stage.see(ob.ResumeRefused("unknown id")),
        lambda stage: stage.do(cmd.GiveUpTurn(code="aborted", message="Stopped.")),
        lambda stage: stage.do(cmd.EndSession("stopped", "person")),
    ],
)
@pytest.mark.parametrize(
    ("reason", "stop_reason", "codes"),
    [
        ("person", "cancelled", []),
        ("interrupt", "cancelled", []),
        ("turn_timeout", "timed_out", ["turn_timeout"]),
        ("turn_limit", "timed_out", ["turn_timeout"]),
        ("silence", "timed_out", ["silence"]),
    ],
)
def test_the_reason_of_an_abort_determines_the_stop_reason(
    reason: Any, stop_reason: str, codes: list[str], end: Callable[[Stage], list[ev.Event]]
) -> None:
    stage = working()
    stage.do(cmd.AbortTurn(reason))
    events = end(stage)
    assert last(events, ev.TurnEnd).stop_reason == stop_reason
    assert [event.code for event in events if isinstance(event, ev.Error)] == codes


@pytest.mark.parametrize("status", ["completed", "stopped", "timed-out", "failed"])
def test_ending_a_session_closes_everything_in_one_step(status: Any) -> None:
    stage = asking()
    stage.queue()
    events = stage.do(cmd.EndSession(status, "why"))
    assert types(events) == [
        "message_unqueued", "prompt_resolved", "turn_end", "agent_detached", "session_end",
    ]  # fmt: skip
    assert events[1].outcome == "discarded"  # type: ignore[attr-defined]
    assert (stage.state.state, stage.state.status, stage.state.attached) == ("ended", status, None)


def test_an_ended_session_can_still_be_named_and_archived() -> None:
    stage = ended()
    stage.do(cmd.UpdateSession(title="Kept", summary="s", labels=("x",), archived=True))
    assert (stage.state.title, stage.state.archived, stage.state.state) == ("Kept", True, "ended")


@pytest.mark.parametrize(("clock", "what"), [("turn_timeout", "was inactive for"), ("turn_limit", "ran for")], ids=str)
def test_a_turn_clock_stops_the_turn_and_says_which_it_was(clock: Any, what: str) -> None:
    stage = working()
    events = stage.do(cmd.ExpireTurnClock(clock, 1, 1800, True))
    assert types(events) == ["system", "abort_requested"]
    assert f"{what} 30 min" in events[0].message  # type: ignore[attr-defined]
    events = stage.finish("cancelled")
    assert types(events) == ["error", "turn_end", "waiting_for_input"]
    assert what.split(maxsplit=1)[0] in events[0].message  # type: ignore[attr-defined]


def test_silence_is_only_reported_unless_it_should_stop_the_turn() -> None:
    stage = working()
    assert types(stage.do(cmd.ExpireTurnClock("silence", 1, 60, False))) == ["system"]
    assert stage.state.phase == "working"
    assert types(stage.do(cmd.ExpireTurnClock("silence", 1, 60, True))) == ["system", "abort_requested"]


def test_timers_pause_while_a_prompt_waits_and_silence_while_a_tool_runs() -> None:
    stage = asking()
    for clock in ("turn_timeout", "turn_limit", "silence"):
        assert stage.do(cmd.ExpireTurnClock(clock, 1, 60, True)) == []
    stage.do(cmd.AnswerPrompt(prompt_id="p1", option_id="yes"))
    stage.see(ev.ToolUse(turn=1, tool_id="t", name="Bash"))
    assert stage.do(cmd.ExpireTurnClock("silence", 1, 60, True)) == []
    assert stage.do(cmd.ExpireTurnClock("turn_timeout", 1, 60, True)) != []


def test_the_clock_of_an_older_turn_does_not_stop_a_newer_one() -> None:
    stage = busy()
    stage.finish()
    assert stage.do(cmd.ExpireTurnClock("turn_timeout", 1, 60, True)) == []
    assert stage.state.phase == "working"


def test_time_that_a_person_takes_does_not_count_for_the_turn() -> None:
    stage = asking()
    stage.at_s = 100
    stage.ask("p2")
    stage.at_s = 130
    stage.do(cmd.AnswerPrompt(prompt_id="p1", option_id="yes"))
    assert stage.state.turn is not None
    assert stage.state.turn.paused_ms == 0
    stage.at_s = 140
    stage.do(cmd.AnswerPrompt(prompt_id="p2", option_id="no"))
    assert (stage.state.turn.paused_ms, stage.state.turn.paused_since) == (140_000, None)


def test_the_times_that_people_take_add_up() -> None:
    stage = asking()
    for at_s, prompt_id in ((10, "p1"), (50, "p2")):
        if prompt_id not in stage.state.prompts:
            stage.ask(prompt_id)
        stage.at_s = at_s
        stage.do(cmd.AnswerPrompt(prompt_id=prompt_id, option_id="yes"))
    assert stage.state.turn is not None
    assert stage.state.turn.paused_ms == 50_000


# Files ---------------------------------------------------------------------------------------------------------------


def test_files_are_not_changed_while_a_turn_is_accepted_or_running() -> None:
    for situation in (accepted, working, aborting):
        with pytest.raises(Refused) as caught:
            situation().do(cmd.RequestFiles(operation_id="f1", action="commit"))
        assert caught.value.code == "turn_active"
        assert "before you change its files" in caught.value.detail


def test_no_turn_begins_while_files_are_being_changed() -> None:
    stage = changing_files()
    stage.send("again")
    assert (stage.state.phase, stage.state.waits_for) == ("accepted", FILES)
    assert stage.do(cmd.BeginTurn()) == []
    stage.do(cmd.FinishFiles(operation_id="f1", outcome="done", message="Restored."))
    assert stage.state.phase == "accepted"
    stage.do(cmd.BeginTurn())
    assert stage.state.phase == "working"


def test_the_history_changes_in_the_step_that_says_the_files_are_done() -> None:
    stage = rewinding_files()
    events = stage.do(cmd.FinishFiles(operation_id="f1", outcome="done", message="Restored."))
    assert types(events)[:2] == ["files_changed", "history_changed"]
    assert (stage.state.visible, stage.state.file_operation) == ([], None)


def test_the_history_stays_if_the_files_could_not_be_changed() -> None:
    for situation in (rewinding_files, retrying_files, editing_files):
        stage = situation()
        done = cmd.FinishFiles(operation_id="f1", outcome="conflict", message="No.", code="files_changed")
        assert types(stage.do(done)) == ["files_changed"]
        assert (stage.state.phase, stage.turn) == ("idle", 1)


def test_nothing_else_changes_history_or_files_meanwhile() -> None:
    for command in (cmd.Rewind(turn=1), cmd.RequestFiles(operation_id="f2", action="commit")):
        with pytest.raises(Refused) as caught:
            changing_files().do(command)
        assert caught.value.code == "conflict"


def test_a_change_of_the_history_that_is_not_possible_is_refused_before_any_file_changes() -> None:
    stage = attached()
    for then in (cmd.Rewind(turn=9), cmd.Rewind(turn=1, revision=7)):
        with pytest.raises(Refused):
            changing_files(then_of(then), stage)
    assert stage.state.file_operation is None


def test_no_message_is_accepted_while_the_history_waits_for_files() -> None:
    for situation in (rewinding_files, retrying_files, editing_files):
        with pytest.raises(Refused) as caught:
            situation().send("again")
        assert (caught.value.code, "Try again in a moment" in caught.value.detail) == ("conflict", True)


def test_a_history_that_could_not_change_with_its_files_is_reported_as_failed() -> None:
    stage = rewinding_files()
    stage.do(cmd.EndSession("stopped", "person"))
    (event,) = stage.do(cmd.FinishFiles(operation_id="f1", outcome="done", message="Restored."))
    assert isinstance(event, ev.FilesChanged)
    assert (event.outcome, "The conversation is unchanged" in event.message) == ("failed", True)


def test_the_result_of_an_operation_that_is_not_running_changes_nothing() -> None:
    stage = changing_files()
    assert stage.do(cmd.FinishFiles(operation_id="other", outcome="done", message="Done.")) == []
    assert stage.state.file_operation is not None


def test_archiving_a_session_with_a_worktree_asks_for_its_removal() -> None:
    stage = attached()
    assert types(stage.do(cmd.UpdateSession(archived=True))) == ["session_updated"]
    stage = Stage(worktree=WORKTREE)
    assert types(stage.do(cmd.UpdateSession(archived=True))) == ["session_updated", "files_requested"]


def test_the_worktree_of_a_session_archived_during_a_turn_is_removed_after_it() -> None:
    stage = Stage(worktree=WORKTREE)
    stage.a_turn()
    stage.send("more")
    assert types(stage.do(cmd.UpdateSession(archived=True))) == ["session_updated"]
    assert types(stage.finish())[-1] == "files_requested"
    assert stage.state.file_operation is not None and stage.state.file_operation.action == "clean_up"


def test_the_worktree_of_a_session_archived_during_an_operation_is_removed_after_it() -> None:
    stage = changing_files(stage=Stage(worktree=WORKTREE))
    stage.do(cmd.UpdateSession(archived=True))
    done = cmd.FinishFiles(operation_id="f1", outcome="done", message="Restored.")
    assert types(stage.do(done)) == ["files_changed", "files_requested"]
    # Only once: it may be that the worktree has to stay.
    assert stage.state.file_operation is not None
    kept = cmd.FinishFiles(
        operation_id=stage.state.file_operation.operation_id, outcome="failed", message="Kept.", code="conflict"
    )
    assert types(stage.do(kept)) == ["files_changed"]


def test_a_session_that_is_unarchived_in_time_keeps_its_worktree() -> None:
    stage = Stage(worktree=WORKTREE)
    stage.a_turn()
    stage.send("more")
    stage.do(cmd.UpdateSession(archived=True))
    stage.do(cmd.UpdateSession(archived=False))
    assert "files_requested" not in types(stage.finish())


@pytest.mark.parametrize("command", [cmd.EndWait("go on"), cmd.AbortTurn("person")], ids=lambda one: type(one).__name__)
def test_no_waiting_turn_begins_while_the_history_waits_for_files(command: cmd.Command) -> None:
    stage = changing_files(then_of(cmd.Rewind(turn=1)), limited_busy())
    with pytest.raises(Refused) as caught:
        stage.do(command)
    assert (caught.value.code, stage.state.phase) == ("conflict", "idle")


# Settings and processes ----------------------------------------------------------------------------------------------


def test_a_setting_that_the_agent_does_not_offer_is_refused() -> None:
    stage = working()
    options = [{"id": "model", "options": [{"value": "small"}, {"name": "more", "options": [{"value": "large"}]}]}]
    stage.see(ev.Config(config_id="model", value="small", options=options))
    for config_id, value in (("speed", "small"), ("model", "huge")):
        with pytest.raises(Refused) as caught:
            stage.do(cmd.SetConfig(config_id, value))
        assert caught.value.code == "invalid"
    stage.do(cmd.SetConfig("model", "large"))
    assert (stage.state.model, stage.state.config) == ("large", {"model": "large"})


def test_a_launch_detaches_the_one_that_it_replaces() -> None:
    stage = asking()
    stage.launch()
    assert types(stage.log[-3:]) == ["prompt_resolved", "agent_detached", "agent_launched"]
    assert stage.state.prompts == {}


def test_a_process_that_was_never_used_serves_a_fresh_turn_and_one_that_was_does_not() -> None:
    stage = Stage()
    stage.send()
    stage.launch()
    stage.see(ob.TurnFinished(1, "failed", error_message="no"))
    stage.send("again")
    assert stage.launch_id == "l1"
    stage.see(ob.SessionOpened("n1", False))
    stage.finish()
    stage.send("once more", fresh=True)
    assert stage.state.attached is None


def test_a_planned_turn_switches_to_a_replay_only_while_it_has_no_process() -> None:
    stage = attached()
    stage.do(cmd.DetachAgent("idle_timeout"))
    stage.send()
    assert stage.state.turn is not None and stage.state.turn.context == "resumed"
    (event,) = stage.do(cmd.BeginAnew("native_session_shared"))
    assert isinstance(event, ev.ContextFallback) and not event.poisoned
    turn = stage.state.turn
    assert (turn.context, turn.context_reason, turn.native_session_id) == ("fresh", "native_session_shared", None)
    assert turn.attempt == 1, "nothing was sent yet"
    assert stage.do(cmd.BeginAnew("native_session_shared")) == []
    assert resuming().do(cmd.BeginAnew("native_session_shared")) == []
