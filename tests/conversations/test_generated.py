"""Whatever happens in a conversation, agents receive what people see: generated conversations, in memory."""

from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.conversations import script
from tests.conversations.machine import play
from tests.sizes import size

agents = st.sampled_from(script.AGENTS)
places = st.integers(0, 7)
steps = st.one_of(
    st.builds(script.Say, agents, st.booleans(), st.sampled_from(script.ENDINGS)),
    st.builds(script.Say, agents),
    st.builds(script.Edit, places),
    st.builds(script.Rewind, places),
    st.builds(script.Retry, places, agents),
    st.builds(script.Suspend),
    st.builds(script.Own),
    st.builds(script.Kill),
    st.builds(script.Restart),
    st.builds(script.Fork, places),
)
EXAMPLES = size("EXAMPLES", 1000, fast=100)
scopes = st.sampled_from(("all", "all", "all", "agent"))


@pytest.mark.smoke
@pytest.mark.timeout(300)
@settings(max_examples=EXAMPLES)
@given(st.lists(steps, min_size=2, max_size=14), scopes, st.integers(0, 99))
def test_an_agent_receives_what_people_see_once_and_in_order(taken: list[script.Step], scope: Any, seed: int) -> None:
    note(script.written(taken, scope=scope, seed=seed))
    play(taken, scope=scope, seed=seed)


@pytest.mark.smoke
@pytest.mark.timeout(300)
@settings(max_examples=EXAMPLES)
@given(
    st.lists(st.one_of(steps, st.builds(script.Switch)), min_size=2, max_size=14),
    scopes,
    st.integers(0, 99),
    st.integers(1, 3),
)
def test_reused_native_session_ids_never_mix_conversations(
    taken: list[script.Step], scope: Any, seed: int, ids: int
) -> None:
    note(script.written(taken, scope=scope, seed=seed, ids=ids))
    play(taken, scope=scope, seed=seed, ids=ids)
