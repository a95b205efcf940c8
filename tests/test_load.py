"""The load generator is correct: it counts what arrives, and detects lost and duplicate events."""

import socket

import pytest

from benchmarks.load import EXACT_VIEWERS, LoadViewer, LoadViewers, Readers, mark
from benchmarks.reference import Reference, delta

DELTAS = 500


def frame(number: int) -> bytes:
    return b'id: %d\nevent: assistant_text\ndata: {"delta":"%s id: 7"}\n\n' % (number, mark().encode())


def read(chunks: list[bytes], exact: bool = False) -> Readers:
    readers = Readers()
    with socket.socket() as unused:
        viewer = LoadViewer(unused, exact)
        viewer.tail = b"\n"
        for chunk in chunks:
            readers.take(viewer, chunk, 1)
    return readers


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("ids", "lost", "doubled"),
    [
        ([5, 6, 7, 8], 0, 0),
        ([1, 2, 4, 5], 1, 0),
        ([1, 2, 2, 3], 0, 1),
        ([1, 2, 3, 1, 2, 3, 4], 0, 3),
        ([1, 9], 7, 0),
    ],
)
def test_gaps_and_duplicates_are_counted_in_one_read_and_over_many(
    ids: list[int], lost: int, doubled: int, exact: bool
) -> None:
    for chunks in ([b"".join(map(frame, ids))], [frame(number) for number in ids]):
        readers = read(chunks, exact)
        assert (readers.frames, readers.marks, readers.lost, readers.doubled) == (len(ids), len(ids), lost, doubled)


def test_frames_are_whole_wherever_the_reads_are_cut() -> None:
    stream = frame(1) + b": still here\n\n" + frame(2) + frame(3)
    for cut in range(len(stream) + 1):
        readers = read([stream[:cut], stream[cut:]])
        assert (readers.frames, readers.lost, readers.doubled) == (3, 0, 0)


def test_a_gap_and_a_duplicate_that_cancel_out_are_found_by_the_exact_viewers() -> None:
    assert EXACT_VIEWERS > 0
    readers = read([b"".join(map(frame, [1, 2, 2, 4]))], exact=True)
    assert (readers.lost, readers.doubled) == (1, 1)


@pytest.mark.parametrize(("ids", "lost", "doubled"), [([1, 2, 3], 0, 0), ([1, 3, 4], 1, 0), ([1, 2, 2], 0, 1)])
def test_frames_in_chunks_with_the_name_before_the_id_are_counted_too(ids: list[int], lost: int, doubled: int) -> None:
    chunks = []
    for number in ids:
        body = b'event: message\nid: %d\ndata: {"text":"%s"}\n\n' % (number, mark().encode())
        chunks.append(b"%X\r\n%s\r\n" % (len(body), body))
    for exact in (True, False):
        for parts in (chunks, [b"".join(chunks)]):
            readers = read(parts, exact)
            assert (readers.frames, readers.marks, readers.lost, readers.doubled) == (3, 3, lost, doubled)


@pytest.mark.needs("linux", "cc")
@pytest.mark.parametrize("light", [False, True])
def test_the_reference_delivers_every_line_to_every_viewer_once(light: bool) -> None:
    with Reference() as server, LoadViewers(server.port, 20, max_s=30, light=light) as crowd:
        server.write(b"".join(delta(number) for number in range(DELTAS)))
        report = crowd.finish(DELTAS)
    assert (report.viewers, report.frames, report.marks) == (20, 20 * DELTAS, 20 * DELTAS)
    assert (report.lost, report.doubled, report.broken, report.unequal) == (0, 0, 0, 0)


@pytest.mark.parametrize(("missing", "unequal"), [(0, 0), (1, 1)])
def test_a_light_viewer_that_lacks_a_byte_is_found_and_not_counted(missing: int, unequal: int) -> None:
    stream = frame(1) + frame(2)
    readers = Readers(light=True)
    with socket.socket() as unused:
        checked, light = LoadViewer(unused, exact=True, light=True), LoadViewer(unused, exact=False, light=True)
        checked.tail = light.tail = b"\n"
        readers.take(checked, stream, 1)
        readers.take(light, stream[: len(stream) - missing], 1)
    readers.count_light([checked], [light])
    assert (readers.unequal, readers.frames) == (unequal, 2 if missing else 4)


@pytest.mark.full
@pytest.mark.needs("linux", "cc")
def test_missing_events_are_reported_as_lost() -> None:
    with Reference() as server, LoadViewers(server.port, 2, max_s=3) as crowd:
        server.write(delta(0))
        report = crowd.finish(4)
    assert report.lost == 2 * 3
