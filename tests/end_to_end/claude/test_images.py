"""An image from a tool of the real program is shown, limited in size, and named in a replay."""

import base64
import struct
import zlib

import pytest

from tests.end_to_end.claude.columns import REAL, TURN_WAIT_S, Stage
from tests.model.log import all_text

pytestmark = pytest.mark.timeout(240)


def png(width: int, height: int) -> bytes:
    """An image of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\x20\x60\xc0" * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("column", REAL, ids=lambda column: column.name)
def test_an_image_that_the_agent_reads_is_an_event_and_is_named_in_a_replay(stage: Stage) -> None:
    (stage.workdir / "blue.png").write_bytes(png(40, 30))
    session = stage.serve().session()
    turn = stage.turn(session, f"read {stage.workdir / 'blue.png'}\nsay seen")
    [image] = [part for part in turn["parts"] if part["type"] == "image"]
    [tool] = [part for part in turn["parts"] if part["type"] == "tool"]
    assert image["tool_id"] == tool["tool_id"] and image["mime_type"].startswith("image/")
    assert len(base64.b64decode(image["data"], validate=True)) == image["size"] > 50
    stage.turn(session, "say and on", fresh=True)
    request = stage.model.log.wait(lambda one: one.conversation.script == "say and on", TURN_WAIT_S)
    sent = all_text(request)
    assert f"[image: {image['mime_type']}, {image['size']} bytes, not replayed]" in sent
    assert image["data"] not in sent
