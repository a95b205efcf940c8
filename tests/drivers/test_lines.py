"""Splitting chunks into lines: the same lines and positions, wherever the chunks are cut."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.drivers.lines import LineFramer

STEADY = settings(max_examples=200, deadline=None, database=None, derandomize=True)

data = st.lists(st.sampled_from([b"\n", b"a", b"bc", b"\r", b"\xc2\x85", b"\xe2\x80\xa8", b"x" * 9])).map(b"".join)
cuts = st.lists(st.integers(0, 60), max_size=8)


def chunks(body: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(body), *(min(place, len(body)) for place in places)})
    return [body[start:end] for start, end in pairwise(edges)]


@STEADY
@given(data, cuts)
def test_lines_do_not_depend_on_where_the_chunks_are_cut(body: bytes, places: list[int]) -> None:
    framer = LineFramer()
    lines = [line for chunk in chunks(body, places) for line in framer.feed(chunk)]
    assert lines == body.split(b"\n")[:-1]
    assert framer.consumed == body.rfind(b"\n") + 1
    assert framer.position == len(body)
    assert framer.overlong == 0


@STEADY
@given(data, cuts, st.integers(1, 12))
def test_an_overlong_line_is_empty_and_counted_and_positions_stay_correct(
    body: bytes, places: list[int], limit: int
) -> None:
    framer = LineFramer(max_line_bytes=limit)
    lines = [line for chunk in chunks(body, places) for line in framer.feed(chunk)]
    whole = body.split(b"\n")[:-1]
    assert lines == [line if len(line) <= limit else b"" for line in whole]
    assert framer.overlong == sum(len(line) > limit for line in whole)
    assert framer.consumed == body.rfind(b"\n") + 1
    assert framer.position == len(body)


@STEADY
@given(data, cuts, st.integers(0, 60))
def test_a_framer_started_at_the_last_whole_line_continues_like_the_first_one(
    body: bytes, places: list[int], stop: int
) -> None:
    first = LineFramer()
    before = first.feed(body[:stop])
    second = LineFramer(position=first.consumed)
    after = [line for chunk in chunks(body[first.consumed :], places) for line in second.feed(chunk)]
    assert before + after == body.split(b"\n")[:-1]
    assert second.position == len(body)


def test_a_torn_last_line_is_not_forwarded() -> None:
    framer = LineFramer()
    assert framer.feed(b'{"a":1}\n{"b"') == [b'{"a":1}']
    assert framer.feed(b":2}") == []
    assert framer.feed(b"\n") == [b'{"b":2}']


def test_other_line_separators_are_data() -> None:
    framer = LineFramer()
    assert framer.feed("a\x85b\u2028c\rd\x0be\n".encode()) == ["a\x85b\u2028c\rd\x0be".encode()]


def test_a_line_of_many_megabytes_is_returned_in_one_piece() -> None:
    framer, part = LineFramer(), b"x" * 65536
    for _ in range(160):
        assert framer.feed(part) == []
    assert framer.feed(b"\n") == [part * 160]


def test_dropped_parts_are_not_kept_in_memory() -> None:
    framer = LineFramer(max_line_bytes=100)
    for _ in range(50):
        assert framer.feed(b"y" * 60) == []
    assert (framer.position, framer.consumed, framer.freeable) == (3000, 0, 3000), (
        "the dropped part need not be read again"
    )
    assert framer.feed(b"y\nnext\nhalf") == [b"", b"next"]
    assert (framer.overlong, framer.consumed, framer.freeable, framer.position) == (1, 3007, 3007, 3011)
