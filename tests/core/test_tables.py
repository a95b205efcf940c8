"""The tables of the session state machine are complete: every command and fact has its place, every phase exists."""

import ast
import inspect
from types import ModuleType
from typing import get_args

import msgspec
import pytest

from perdure.core import commands as cmd
from perdure.core import evolve, observe, session
from perdure.core import observations as ob
from perdure.core.observe import OBSERVED
from perdure.core.session import ALLOWED
from perdure.core.state import Session
from tests.core.stage import idle, working

KEEP_THE_PHASE = {"SessionOpened", "TranscriptShortened", "PromptWithdrawn", "Noise"}
"""Facts without a row in OBSERVED. A new fact belongs either here or there."""


def structs(module: ModuleType) -> set[type[msgspec.Struct]]:
    """The structs that a module defines."""
    classes = (kind for _, kind in inspect.getmembers(module, inspect.isclass) if kind.__module__ == module.__name__)
    return {kind for kind in classes if issubclass(kind, msgspec.Struct)}


def phases() -> set[str]:
    """The phases that a session can have: its first one, and all that evolve.py assigns."""
    [first] = [field.default for field in msgspec.structs.fields(Session) if field.name == "phase"]
    found = {first}
    for node in ast.walk(ast.parse(inspect.getsource(evolve))):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            targets = [target.attr for target in node.targets if isinstance(target, ast.Attribute)]
            found.update(node.value.value for attribute in targets if attribute == "phase")
    return found


def test_every_command_has_a_row_and_a_handler() -> None:
    kinds = structs(cmd) - {cmd.CreateSession}
    assert kinds == set(get_args(cmd.Command)) == set(session._HANDLERS)
    assert {kind.__name__ for kind in kinds} == set(ALLOWED)


def test_every_fact_has_a_handler_and_either_a_row_or_no_effect_on_the_phase() -> None:
    kinds = structs(ob)
    assert kinds == {*observe._HANDLERS, ob.SessionOpened}, "observe.add_facts handles SessionOpened itself"
    assert set(OBSERVED).isdisjoint(KEEP_THE_PHASE)
    assert {kind.__name__ for kind in kinds} == {*OBSERVED, *KEEP_THE_PHASE}


def test_every_phase_in_a_table_exists() -> None:
    rows = [*ALLOWED.values(), *OBSERVED.values()]
    assert {phase for row in rows for phase in row} == phases()
    assert {target for row in rows for targets in row.values() for target in targets} == phases()
    assert all(targets and len(set(targets)) == len(targets) for row in rows for targets in row.values())


def test_every_phase_can_be_reached_and_only_the_last_one_is_final() -> None:
    leads_to: dict[str, set[str]] = {phase: set() for phase in phases()}
    for row in (*ALLOWED.values(), *OBSERVED.values()):
        for phase, targets in row.items():
            leads_to[phase].update(targets)
    reached, new = {"idle"}, {"idle"}
    while new:
        new = {target for phase in new for target in leads_to[phase]} - reached
        reached |= new
    assert reached == phases()
    assert [phase for phase, targets in leads_to.items() if targets <= {phase}] == ["ended"]


def test_a_command_that_leads_to_a_phase_not_in_its_row_fails_before_it_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = idle()
    monkeypatch.setitem(ALLOWED, "EndSession", {"idle": ("idle",)})
    with pytest.raises(RuntimeError, match="EndSession led from idle to ended, but its table lists idle"):
        stage.do(cmd.EndSession("stopped", "for the test"))
    assert stage.state.phase == "idle"


def test_a_fact_that_leads_to_a_phase_not_in_its_row_fails_before_it_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = working()
    monkeypatch.setitem(OBSERVED, "AgentExited", {})
    with pytest.raises(RuntimeError, match="AgentExited led from working to"):
        stage.see(ob.AgentExited("exited", 1))
    assert stage.state.phase == "working"
