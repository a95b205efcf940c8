"""When a turn may continue in the native session: each guard alone, and all of them together."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.resume import ContextPlan, resolve_resume
from perdure.core.state import Attached, Binding
from tests.core.stage import facts

BINDING = Binding(
    native_session_id="n1", workdir_id="1:2", fingerprint="bin", context_version=3, confirmed=True, last_turn=5
)
ATTACHED = Attached(
    launch_id="l1",
    agent="alpha",
    driver="acp",
    workdir_id="1:2",
    fingerprint="bin",
    since="",
    native_session_id="n1",
    opened=True,
    used=True,
)
GOOD: dict[str, Any] = {
    "agent": "alpha",
    "facts": facts(),
    "fresh": False,
    "binding": BINDING,
    "context_version": 3,
    "poisoned": [],
    "attached": None,
    "last_visible_turn": 5,
}


def plan(**given: Any) -> ContextPlan:
    return resolve_resume(**{**GOOD, **given})


def bound(**changes: Any) -> Binding:
    return msgspec.structs.replace(BINDING, **changes)


BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("first_turn", {"last_visible_turn": 0}),
    ("fresh_requested", {"fresh": True}),
    ("resume_off", {"facts": facts(resume="never")}),
    ("no_native_session", {"binding": None}),
    ("native_session_poisoned", {"poisoned": ["n0", "n1"]}),
    ("native_session_poisoned", {"binding": None, "unpinned": True}),
    ("no_prior_answer", {"binding": bound(last_turn=0)}),
    ("last_turn_not_confirmed", {"binding": bound(confirmed=False)}),
    ("history_changed", {"context_version": 4}),
    ("scope_changed", {"scope": "agent"}),
    ("workdir_changed", {"binding": bound(workdir_id="9:9")}),
    ("runtime_changed", {"facts": facts(runtime="other")}),
]


def test_with_every_guard_held_the_native_session_is_resumed() -> None:
    found = plan()
    assert (found.context, found.reason, found.native_session_id) == ("resumed", "native_session_confirmed", "n1")
    assert all(found.guards.values())


def test_a_process_that_holds_the_context_is_used_even_if_the_agent_can_not_resume() -> None:
    for able in (True, False):
        found = plan(attached=ATTACHED, facts=facts(can_resume=able))
        assert (found.context, found.native_session_id) == ("live", "n1")


@pytest.mark.parametrize("attached", [None, ATTACHED])
@pytest.mark.parametrize(("reason", "broken"), BROKEN)
def test_each_guard_alone_makes_a_turn_fresh(reason: str, broken: dict[str, Any], attached: Attached | None) -> None:
    found = plan(attached=attached, **broken)
    assert (found.context, found.reason, found.native_session_id) == ("fresh", reason, None)
    assert list(found.guards.values()).count(False) == 1


@pytest.mark.parametrize(
    "attached",
    [
        None,
        msgspec.structs.replace(ATTACHED, agent="beta"),
        msgspec.structs.replace(ATTACHED, opened=False),
        msgspec.structs.replace(ATTACHED, native_session_id="n2"),
    ],
)
def test_without_a_process_that_holds_the_context_an_agent_that_can_not_resume_starts_fresh(
    attached: Attached | None,
) -> None:
    assert plan(attached=attached).context == "resumed"
    found = plan(attached=attached, facts=facts(can_resume=False))
    assert (found.context, found.reason) == ("fresh", "agent_cannot_resume")


def test_an_id_that_was_issued_twice_is_never_resumed() -> None:
    found = plan(sole_holder=False)
    assert (found.context, found.reason, found.native_session_id) == ("fresh", "native_session_shared", None)
    assert [name for name, held in found.guards.items() if not held] == ["sole_holder"]


def test_with_a_duplicate_id_only_an_unshared_process_holds_the_right_context() -> None:
    assert plan(sole_holder=False, attached=ATTACHED).context == "live"
    assert plan(attached=ATTACHED, facts=facts(shares=True)).context == "live"
    found = plan(sole_holder=False, attached=ATTACHED, facts=facts(shares=True))
    assert (found.context, found.reason) == ("fresh", "native_session_shared")


yes_or_no = st.booleans()


@given(
    history=yes_or_no,
    fresh=yes_or_no,
    resume=st.sampled_from(("auto", "never")),
    has_binding=yes_or_no,
    poisoned=yes_or_no,
    answered=yes_or_no,
    confirmed=yes_or_no,
    context_version=yes_or_no,
    scope=yes_or_no,
    missed=yes_or_no,
    workdir=yes_or_no,
    runtime=yes_or_no,
    live=yes_or_no,
    able=yes_or_no,
    sole=yes_or_no,
    shares=yes_or_no,
)
def test_a_turn_is_fresh_if_and_only_if_a_guard_fails(**held: Any) -> None:
    last_turn = 5 if held["answered"] else 0
    binding = Binding(
        native_session_id="n1",
        workdir_id="1:2" if held["workdir"] else "9:9",
        fingerprint="bin" if held["runtime"] else "other",
        context_version=3 if held["context_version"] else 2,
        confirmed=held["confirmed"],
        last_turn=last_turn,
        scope="all" if held["scope"] else "agent",
    )
    visible = 0 if not held["history"] else (7 if held["missed"] else max(last_turn, 1))
    found = plan(
        last_visible_turn=visible,
        fresh=held["fresh"],
        facts=facts(can_resume=held["able"], resume=held["resume"], shares=held["shares"]),
        sole_holder=held["sole"],
        binding=binding if held["has_binding"] else None,
        poisoned=["n1"] if held["poisoned"] else [],
        attached=ATTACHED if held["live"] else None,
    )
    wanted = all(held[name] for name in ("history", "has_binding", "answered", "confirmed", "context_version", "scope"))
    wanted = wanted and held["workdir"] and held["runtime"] and not held["fresh"] and not held["poisoned"]
    live = held["live"] and (held["sole"] or not held["shares"])
    wanted = wanted and held["resume"] == "auto" and (live or (held["able"] and held["sole"]))
    assert (found.context != "fresh") is wanted
    assert (found.native_session_id is not None) is wanted
    assert found.seen == (5 if wanted else 0)
    assert (found.context == "live") is (wanted and live)
    assert (False in found.guards.values()) is not wanted
