"""Untrusted JSON is decoded within limits or rejected, in time proportional to its length."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.drivers import jsonrpc
from perdure.drivers.jsonrpc import MAX_PARTS

MANY_BYTES = 4_000_000

PIECES = rb"\ud83d \uDE00 \ude00 \\ \n \" a ud83d \u0041 \ud83d\ude00 \ "
pieces = st.sampled_from([*PIECES.split(), b"\xe9", b"\xff", b"\xf0\x9f\x98\x80", b"\xf0\x9f", b"\xed\xa0\xbd", b'"'])


@given(st.lists(pieces, max_size=8).map(b"".join))
def test_lone_surrogates_and_invalid_utf_8_are_read_as_replacement_characters(body: bytes) -> None:
    line = b'{"a":"%b"}' % body
    try:
        expected = json.loads(line.decode("utf-8", "replace"))
    except ValueError:
        assert jsonrpc.value(line) is None
        return
    whole = expected["a"].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert jsonrpc.value(line) == {**expected, "a": whole}


@pytest.mark.parametrize(
    "again", [b"1,2,[{", rb"\",", rb"\\", rb"\n", rb"\ud83d", rb"\ud83d\ude00", "\u00e9,".encode()]
)
def test_the_content_of_strings_does_not_count_as_parts(again: bytes) -> None:
    line = b'{"a":"%b"}' % (again * (MANY_BYTES // len(again)))
    found = jsonrpc.value(line)["a"]
    assert found == json.loads(line)["a"].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@pytest.mark.parametrize("again", [b"[],", b"{},", b'"",', b'"a,\\"b",', b"0,", b'{"b":1},', b'{"b":{"c":[]}},'])
def test_a_value_with_too_many_parts_is_refused_and_one_with_fewer_is_read(again: bytes) -> None:
    few = MAX_PARTS // 8
    assert len(jsonrpc.value(b"[" + again * few + b"0]")) == few + 1
    assert jsonrpc.value(b"[" + again * MAX_PARTS + b"0]") is None


@pytest.mark.timeout(30)
@pytest.mark.parametrize("again", [rb"\"", rb"\\", b'"', b"[", b'{"a":', rb'"\ud83d', b"\xff"])
@pytest.mark.parametrize("end", [b"", b"\\", b'"'])
def test_a_broken_long_line_is_refused_immediately(again: bytes, end: bytes) -> None:
    assert jsonrpc.value(b'{"a":"' + again * (MANY_BYTES // len(again)) + end) is None


@pytest.mark.parametrize("data", [b"[" + b"0," * MAX_PARTS + b"0]", b"[" * 500 + b"]" * 500])
def test_an_error_with_too_much_data_is_reported_by_its_message(data: bytes) -> None:
    line = b'{"id":1,"error":{"code":7,"message":"Quota reached","data":%b}}' % data
    frame = jsonrpc.decode(line)
    assert frame is not None
    failed = jsonrpc.failure(frame)
    assert failed is not None and (failed.code, failed.sentence) == (7, "Quota reached")


def test_an_unreadable_error_is_reported_as_such() -> None:
    frame = jsonrpc.decode(b'{"id":1,"error":[%b0]}' % (b"0," * MAX_PARTS))
    assert frame is not None
    failed = jsonrpc.failure(frame)
    assert failed is not None and failed.sentence == "The agent's error is unreadable."
