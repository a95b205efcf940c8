"""Rows of launches, as both stores read and compare them.

Above: the reads and the groups of each store. Below: the Checkpoint of base.py.
"""

from typing import Any

import msgspec

from perdure.core.errors import UNREADABLE
from perdure.stores.base import Checkpoint

_unpack_lines = msgspec.msgpack.Decoder(list[bytes]).decode


def checkpoint_of(row: tuple[Any, ...]) -> Checkpoint:
    """Return an unreadable row with its damage, so that the others are not lost with it."""
    *columns, lines, state = row
    try:
        values = (*columns, _unpack_lines(lines), state)
        return msgspec.convert(dict(zip(Checkpoint.__struct_fields__, values, strict=False)), Checkpoint)
    except UNREADABLE as error:
        launch_id, session_id, agent = (str(each) for each in columns[:3])
        return Checkpoint(launch_id, session_id, agent, "", "live", 0, 0, 0, [], b"", damage=str(error))


def only_offset_differs(one: Checkpoint, other: Checkpoint) -> bool:
    return (
        one.driver_state == other.driver_state
        and one.launch_id == other.launch_id
        and one.performed_seq == other.performed_seq
        and one.input_total == other.input_total
        and one.pending_input == other.pending_input
        and one.phase == other.phase
        and one.agent == other.agent
        and one.driver == other.driver
    )
