"""Times as values."""

import re

from hypothesis import given
from hypothesis import strategies as st

from perdure.core.clock import ms_between, seconds, stamp

moments = st.floats(0, 4_000_000_000)


@given(moments)
def test_a_time_is_written_in_utc_with_milliseconds_and_read_back(moment: float) -> None:
    written = stamp(moment)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", written)
    assert abs(seconds(written) - moment) <= 0.001


@given(moments, moments)
def test_times_sort_as_text_and_spans_are_never_negative(one: float, other: float) -> None:
    first, second = sorted((one, other))
    assert stamp(first) <= stamp(second)
    assert ms_between(stamp(second), stamp(first)) == 0
    assert abs(ms_between(stamp(first), stamp(second)) - (second - first) * 1000) <= 2
