"""A JSON array is split into the same elements that a parser finds, however it is formatted."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.elements import SMALL_BYTES, TooManyValues, count_values, elements

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.lists(values, max_size=5), st.sampled_from([None, 0, 3]), st.booleans())
def test_each_element_is_found_with_all_that_is_in_it(given: list[Any], indent: int | None, is_ascii: bool) -> None:
    written = json.dumps(given, indent=indent, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    assert [json.loads(element.decode("utf-8", "surrogatepass")) for element in elements(written)] == given


def test_brackets_and_quotes_inside_strings_are_ignored() -> None:
    tricky = [{"a": '}]"{[\\'}, [["]"], {"b": "}"}], "],", {"c": {"d": '\\"}'}}, {}]
    assert [json.loads(element) for element in elements(b" [ " + json.dumps(tricky).encode()[1:])] == tricky
    assert list(elements(b"[]")) == list(elements(b" [ ] ")) == []


def inside(value: Any) -> int:
    """How many values a value contains, at all levels."""
    held = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return len(held) + sum(inside(each) for each in held)


@settings(max_examples=60)
@given(values, st.booleans())
def test_values_are_counted_and_never_too_few(given: Any, is_long: bool) -> None:
    written = json.dumps(given).encode() + b" " * (SMALL_BYTES if is_long else 0)
    counted, brackets = count_values(written, 1_000), json.dumps(given).count("{}") + json.dumps(given).count("[]")
    assert inside(given) <= counted <= inside(given) + brackets + 1


def test_counting_stops_early_if_there_are_too_many() -> None:
    assert count_values(b"[" + b'"",' * 1_000_000 + b"0]", 100) == 101
    assert count_values(json.dumps("[{," * 1_000_000).encode(), 100) == 0
    with pytest.raises(TooManyValues):
        list(elements(b"[[" + b"{}," * 1_000_000 + b"0]]", 100))
    assert len(list(elements(b"[[" + b'"",' * 99 + b"0]]", 100))) == 1
