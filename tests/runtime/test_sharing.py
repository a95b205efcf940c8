"""Lines that several sessions send to one process: after a crash, each missing line is written once and in order."""

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.runtime.keeping.launch import Launch
from perdure.runtime.running.sharing import Input
from perdure.stores.base import LaunchProgress


class Pipe(Launch):
    """A launch that is alive and whose input is a list."""

    def __init__(self, written: list[bytes]) -> None:
        super().__init__(Path("/nowhere"))
        self.written = written

    def is_alive(self) -> bool:
        return True

    def repair_input(self) -> int:
        return len(self.written)

    def write(self, lines: Any) -> None:
        self.written += lines


def row(session: str, total: int, pending: list[bytes]) -> LaunchProgress:
    return LaunchProgress(
        launch_id="l",
        session_id=session,
        agent="a",
        driver="acp",
        phase="live",
        offset=0,
        performed_seq=0,
        input_total=total,
        pending_input=pending,
        driver_state=b"",
    )


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=12), st.integers(0, 3))
def test_all_stored_lines_are_written_once_whichever_session_wrote_last(
    steps: list[tuple[str, int]], lost: int
) -> None:
    rows: dict[str, LaunchProgress] = {}
    everything: list[bytes] = []
    for session, count in steps:
        lines = [f"{session}{len(everything) + number}\n".encode() for number in range(count)]
        everything += lines
        rows[session] = row(session, len(everything), lines)
    # A crash between storing and writing loses lines of the latest step that had any. Its session does nothing else
    # meanwhile, but others may store observations.
    after = [session for session, _ in steps]
    newest = max((number for number, (_, count) in enumerate(steps) if count), default=None)
    if newest is not None and steps[newest][0] not in after[newest + 1 :]:
        pipe = Pipe(everything[: len(everything) - min(lost, steps[newest][1])])
    else:
        pipe = Pipe(list(everything))
    sent = Input()
    sent.repair(pipe, list(rows.values()))
    assert pipe.written == everything
    assert sent.total == len(everything)


def test_for_a_dead_process_only_the_line_count_is_restored() -> None:
    sent = Input()
    sent.repair(None, [row("a", 3, [b"x\n"]), row("b", 5, [])])
    assert sent.total == 5
