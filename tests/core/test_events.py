"""Events as JSON: their names, their numbers, and how newer and older versions read them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core import events as ev
from perdure.core import state as session_state
from tests.core.stage import SITUATIONS, last

KINDS = ev.AnyEvent.__args__

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_every_kind_of_event_has_its_own_name() -> None:
    names = [kind.__struct_config__.tag for kind in KINDS]
    assert len(set(names)) == len(names)
    assert {kind for kind in vars(ev).values() if isinstance(kind, type) and issubclass(kind, ev.Event)} == {
        ev.Event,
        ev.ToolProgress,
        *KINDS,
    }


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_event_of_the_machine_has_its_time_and_session(situation: object) -> None:
    assert callable(situation)
    for event in situation().log:
        assert (event.session_id, event.at[-1]) == ("s", "Z")
        assert ev.decode(ev.encode(event)) == event


@given(json_values)
def test_inputs_of_tools_survive_encoding_unchanged(value: object) -> None:
    tool = ev.ToolUse(turn=1, tool_id="t", name="n", input=value)
    assert ev.decode(ev.encode(tool)) == tool
    asked = ev.PendingPrompt(turn=1, prompt_id="p", kind="permission", title="t", input=value)
    kept = session_state.Session(id="s", project=None, agent="a", workdir="/", created_at="", prompts={"p": asked})
    assert session_state.restore(session_state.dump(kept)) == kept
    assert session_state.fork(kept).prompts["p"] is not asked


@given(st.integers(1, 10**12), st.integers(0, 5))
def test_the_number_comes_first_and_a_joined_event_has_its_first_number(seq: int, back: int) -> None:
    body = ev.encode(ev.AssistantText(turn=1, block=0, delta='{"seq":1}'))
    shown = msgspec.json.decode(ev.with_seq(seq, body, seq - back))
    assert (shown["seq"], shown.get("first_seq", seq), shown["delta"]) == (seq, seq - back, '{"seq":1}')
    assert ("first_seq" in shown) is (back > 0)
    assert {**msgspec.json.decode(body), "seq": seq} == {k: v for k, v in shown.items() if k != "first_seq"}


def test_fields_of_a_newer_version_do_no_harm_and_missing_ones_have_defaults() -> None:
    body = b'{"type":"turn_end","turn":1,"stop_reason":"end_turn","weather":"fine"}'
    event = ev.decode(body)
    assert isinstance(event, ev.TurnEnd)
    assert (event.exit_code, event.confirmed) == (None, False)


def test_only_events_that_the_machine_reads_are_decisive() -> None:
    assert {kind.__struct_config__.tag for kind in KINDS if not kind.decisive} == {
        *ev.DELTA_TYPES,
        "tool_update",
        "image",
        "turn_changes",
    }
    assert ev.type_of(last(SITUATIONS[3]().log, ev.TurnStart)) == "turn_start"
