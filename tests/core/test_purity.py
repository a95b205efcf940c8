"""The machine is pure in what it calls, not only in what it imports.

Runs every command and every fact in every situation under a profiler: `decide`, `observe` and `resolve_resume` use no
file, clock, random number, socket, process or logger.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from perdure.core.decision import World
from perdure.core.errors import Refused
from perdure.core.observe import observe
from perdure.core.resume import resolve_resume
from perdure.core.session import decide
from tests.core.stage import SITUATIONS, Stage, attached, facts, world
from tests.core.test_observe import all_facts
from tests.core.test_session import commands

IMPURE_BUILTINS = {
    "posix", "nt", "_io", "io", "time", "_random", "_socket", "select", "_thread", "_signal", "_posixsubprocess",
    "fcntl", "_sqlite3", "random", "mmap", "_asyncio", "_hashlib", "_ssl",
}  # fmt: skip
"""C modules whose functions read or change the outside world."""
IMPURE_MODULES = {
    "os",
    "random",
    "secrets",
    "logging",
    "asyncio",
    "subprocess",
    "socket",
    "pathlib",
    "tempfile",
    "uuid",
}
IMPURE_MODULES |= {"shutil", "threading", "perdure.runtime", "perdure.stores", "perdure.surfaces", "perdure.drivers"}
PURE = {("time", "struct_time")}


class Watch:
    """Records every impure call, with its caller."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def __enter__(self) -> "Watch":
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: Any, kind: str, called: Any) -> None:
        if kind == "c_call":
            module = getattr(called, "__module__", None) or type(getattr(called, "__self__", None)).__module__
            if module in IMPURE_BUILTINS and (module, called.__name__) not in PURE:
                self.found.append(f"{module}.{called.__qualname__} from {frame.f_code.co_qualname}")
            elif module == "builtins" and called.__name__ in ("open", "input", "print"):
                self.found.append(f"{called.__name__} from {frame.f_code.co_qualname}")
        elif kind == "call":
            module = frame.f_globals.get("__name__", "")
            if any(module == name or module.startswith(name + ".") for name in IMPURE_MODULES):
                self.found.append(f"{module}.{frame.f_code.co_qualname}")


def watched(work: Callable[[], object]) -> list[str]:
    with Watch() as watch, contextlib.suppress(Refused):
        work()
    # Leaving the `with` block is itself a call.
    return [call for call in watch.found if "Watch" not in call]


def decisions() -> Iterator[Callable[[], object]]:
    for situation in SITUATIONS:
        for command in commands(situation()):
            stage = situation()
            yield lambda stage=stage, command=command: decide(stage.state, command, stage.world())  # type: ignore[misc]


def observations() -> Iterator[Callable[[], object]]:
    for situation in SITUATIONS:
        for number in range(len(list(all_facts(situation())))):
            stage = situation()
            fact = list(all_facts(stage))[number]
            yield lambda stage=stage, fact=fact: observe(stage.state, stage.launch_id, [fact], stage.world())  # type: ignore[misc]


@pytest.mark.parametrize("steps", [decisions, observations])
def test_no_decision_touches_anything_but_values(steps: Callable[[], Iterator[Callable[[], object]]]) -> None:
    made = list(steps())
    assert len(made) > 100
    assert [found for step in made for found in watched(step)] == []


def test_no_plan_touches_anything_but_values() -> None:
    state = attached().state
    for fresh in (True, False):
        found = watched(
            lambda fresh=fresh: resolve_resume(  # type: ignore[misc]
                agent="alpha",
                facts=facts(),
                fresh=fresh,
                binding=state.bindings["alpha"],
                context_version=0,
                poisoned=[],
                attached=state.attached,
                last_visible_turn=1,
            )
        )
        assert found == []


def test_a_world_contains_only_values() -> None:
    def has_callables(value: object) -> bool:
        if isinstance(value, msgspec.Struct):
            return any(has_callables(getattr(value, name)) for name in value.__struct_fields__)
        if isinstance(value, dict):
            return any(map(has_callables, value.values()))
        if isinstance(value, list | tuple | set | frozenset):
            return any(map(has_callables, value))
        return callable(value)

    assert not has_callables(World("now", {"alpha": facts(commands=("compact",))}))
    annotations = {name: str(kind) for name, kind in World.__annotations__.items()}
    assert not [name for name, kind in annotations.items() if "Callable" in kind]


def test_the_watch_notices_what_is_not_pure() -> None:
    import os
    import random
    import time

    def looks() -> None:
        os.stat(".")

    def reads() -> None:
        with open(os.devnull) as file:
            file.read()

    for impure in (looks, reads, time.time, random.random, lambda: os.path.exists(".")):
        assert watched(lambda impure=impure: impure()), impure  # type: ignore[misc]
    assert watched(lambda: Stage().send()) == []
    assert watched(world) == []
