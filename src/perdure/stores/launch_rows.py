"""How both stores read and compare launch rows.

Above: the reads and the group commits of each store. Below: LaunchProgress in base.py.
"""

from typing import Any

import msgspec

from perdure.core.errors import UNREADABLE
from perdure.stores.base import LaunchProgress

_unpack_lines = msgspec.msgpack.Decoder(list[bytes]).decode


def progress_of(row: tuple[Any, ...]) -> LaunchProgress:
    """Convert a row. An unreadable one becomes a LaunchProgress with `damage` set, so that the others still load."""
    *columns, lines, state = row
    try:
        values = (*columns, _unpack_lines(lines), state)
        return msgspec.convert(dict(zip(LaunchProgress.__struct_fields__, values, strict=False)), LaunchProgress)
    except UNREADABLE as error:
        launch_id, session_id, agent = (str(each) for each in columns[:3])
        return LaunchProgress(launch_id, session_id, agent, "", "live", 0, 0, 0, [], b"", damage=str(error))


def only_offset_differs(one: LaunchProgress, other: LaunchProgress) -> bool:
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
