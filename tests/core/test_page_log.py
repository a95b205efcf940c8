"""The golden log for the page's fold is up to date, and contains every type of event."""

import typing

from perdure.core import events as ev
from tests.core.page_log import FILE, golden, text


def test_the_log_for_the_page_is_what_the_server_makes() -> None:
    assert FILE.read_text() == text(), "Run: python -m tests.core.page_log"


def test_the_log_for_the_page_has_every_type_of_event() -> None:
    there = {event["type"] for event in golden()["events"]}
    assert there == {str(kind.__struct_config__.tag) for kind in typing.get_args(ev.AnyEvent)}
