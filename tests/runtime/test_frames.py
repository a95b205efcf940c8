"""Frames cached for viewers: limited for each session and in total."""

from perdure.runtime.log.frames import TAIL_BYTES, TAIL_FRAMES, Recent, Tail


def test_a_tail_holds_the_last_frames_up_to_its_limit() -> None:
    tail = Tail()
    for seq in range(1, 101):
        tail.add(seq, b"x" * (TAIL_BYTES // 10))
    assert tail.size <= TAIL_BYTES
    assert tail.holds(95, 100) and not tail.holds(50, 100) and tail.holds(100, 100)
    assert [seq for seq, _ in tail.since(97)] == [98, 99, 100]
    for seq in range(101, 101 + 2 * TAIL_FRAMES):
        tail.add(seq, b"y")
    assert len(tail.since(0)) == TAIL_FRAMES
    tail.add(10_000, b"z" * 2 * TAIL_BYTES)
    assert tail.size == 0 and not tail.holds(9_999, 10_000)


def test_a_piece_shared_by_several_viewers_is_made_once() -> None:
    tail = Tail()
    tail.add(1, b"one ")
    tail.add(2, b"two ")
    assert tail.after(0, 2) == b"one two " and tail.after(0, 2) is tail.after(0, 2)
    tail.add(3, b"three")
    assert (tail.after(0, 3), tail.after(2, 3)) == (b"one two three", b"three")


def test_the_least_recently_used_session_is_evicted_first() -> None:
    gone: list[str] = []
    recent = Recent(gone.append, limit_bytes=100)
    for name in ("a", "b", "c"):
        recent.note(name, 30)
    recent.note("a", 35)
    recent.note("d", 20)
    assert (gone, recent.total_bytes) == (["b"], 85)
    recent.note("e", 400)
    assert (gone, recent.total_bytes) == (["b", "c", "a", "d"], 400), "the one in use stays"
    recent.forget("e")
    recent.forget("never seen")
    assert recent.total_bytes == 0
