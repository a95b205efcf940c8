"""A session's link to one launch of an agent: the process, the driver's conversation and the position in the output.

Above: the runner. Below: launch.py (bytes) and a driver's conversation (meaning). What must survive a crash is in the
LaunchProgress, which is stored in the same transaction as the events of a step.
"""

from collections.abc import Sequence
from typing import Any, Literal

from perdure.core.observations import AgentExited, Noise
from perdure.core.state import Session
from perdure.drivers import DRIVERS
from perdure.drivers.base import Conversation, Driver, Order
from perdure.drivers.lines import MAX_LINE_BYTES, LineFramer
from perdure.runtime.keeping.launch import Exit, Launch, LaunchDamaged
from perdure.runtime.running.sharing import Input, Shared
from perdure.stores.base import LaunchProgress

READ_BYTES = 256 * 1024
SMALL_READ_BYTES = 16 * 1024
"""The size of the first read. Usually there are a few hundred bytes, and allocating a large buffer would take longer
than reading them."""
CATCH_UP_S = 2.0
TOO_LONG = f"a line longer than {MAX_LINE_BYTES // 1024 // 1024} MB was skipped"

Phase = Literal["launching", "live", "gone"]


class AgentLink:
    def __init__(
        self,
        *,
        launch_id: str,
        session_id: str,
        agent: str,
        driver: Driver,
        conversation: Conversation,
        launch: Launch | None = None,
        offset: int = 0,
        performed_seq: int = 0,
        shared: Shared | None = None,
        sent: Input | None = None,
    ) -> None:
        self.launch_id = launch_id
        self.session_id = session_id
        self.agent = agent
        self.driver = driver
        self.conversation = conversation
        self.launch = launch
        self.performed_seq = performed_seq
        self.phase: Phase = "launching"
        self.input_mark: tuple[int, int] | None = None
        """(turn, size of `in` before its input was written) of the last input; None if this server doesn't know it."""
        self.behind: tuple[int, float] | None = None
        """(size of the output, time) when `has_read_all` was first called."""
        self._framer = LineFramer(offset)
        self._read_bytes = SMALL_READ_BYTES
        self._overlong = 0
        self.shared = shared
        self.input = sent or (shared.input if shared is not None else Input())
        self.noted = offset
        """The value of `freeable` when `note_progress` was last called."""
        self.stored = offset
        """The position up to which all output is stored."""

    @classmethod
    def restore(
        cls, progress: LaunchProgress, launch: Launch | None, shared: Shared | None = None, sent: Input | None = None
    ) -> "AgentLink":
        """Restore a link as of the last stored step. Without `sent`, also append the lines of that step that `in`
        lacks; with `sent`, the caller has done that."""
        if sent is None:
            sent = Input()
            sent.repair(launch, [progress])
        driver = DRIVERS[progress.driver]
        link = cls(
            launch_id=progress.launch_id,
            session_id=progress.session_id,
            agent=progress.agent,
            driver=driver,
            conversation=driver.restore(progress.driver_state),
            launch=launch,
            offset=progress.offset,
            performed_seq=progress.performed_seq,
            shared=shared,
            sent=sent,
        )
        link.phase = progress.phase
        return link

    def perform(self, orders: Sequence[Order]) -> tuple[list[Any], list[bytes]]:
        observations: list[Any] = []
        lines: list[bytes] = []
        for order in orders:
            step = self.conversation.perform(order)
            observations += step.observations
            lines += step.lines
        return observations, lines

    def receive(self) -> tuple[bool, list[Any], list[bytes]]:
        """Read output. Returns whether there is more, the observations, and the lines to answer.

        A short read means that the end was reached; the keeper sends a hint for anything that is written later."""
        if self.launch is None:
            return False, [], []
        asked = self._read_bytes
        data = self.launch.read(self._framer.position, asked)
        more = len(data) == asked
        self._read_bytes = READ_BYTES if more else SMALL_READ_BYTES
        if not data:
            return False, [], []
        lines = self._framer.feed(data)
        if not lines:
            return more, [], []
        if self.shared is not None:
            self.shared.part(self)
        step = self.conversation.receive(lines)
        observations = step.observations
        if self._framer.overlong > self._overlong:
            self._overlong = self._framer.overlong
            observations = [*observations, Noise(sample="", reason=TOO_LONG)]
        return more, observations, step.lines

    def has_read_all(self, now: float) -> bool:
        """Whether all output has been read that existed when this was first called. True after a short time in any
        case: the end may never be reached if the agent keeps writing."""
        if self.behind is None:
            self.behind = (self.launch.out_size() if self.launch is not None else 0, now)
        size, since = self.behind
        if self._framer.position < size and now - since < CATCH_UP_S:
            return False
        self.behind = None
        return True

    def has_unread(self) -> bool:
        """Whether there is unread output. If so, the agent is not silent."""
        try:
            return self.launch is not None and self.launch.out_size() > self._framer.position
        except LaunchDamaged:
            return False  # the runner handles missing files

    @property
    def key(self) -> tuple[str, str]:
        return self.launch_id, self.session_id

    @property
    def position(self) -> int:
        return self._framer.position

    @property
    def offset(self) -> int:
        """The end of the last complete line that was read."""
        return self._framer.consumed

    @property
    def freeable(self) -> int:
        return self._framer.freeable

    @property
    def unstored_bytes(self) -> int:
        """Bytes read since `note_progress` was last called. The keeper can't free them yet."""
        return self.freeable - self.noted

    def delivered(self, state: Session, in_fed: int | None) -> bool:
        """Whether the running turn's input may have reached the agent, whose stdin took `in_fed` bytes. True if in
        doubt."""
        if not state.working or state.turn is None or state.attached is None:
            # A turn that begins while its agent's exit is being recorded was never sent to the agent.
            return False
        if not state.attached.opened:
            return False
        if state.turn.origin != "person" or self.input_mark is None:
            return True
        turn, size = self.input_mark
        return turn == state.turn.turn and (in_fed is None or in_fed > size)

    def ended(self, state: Session, found: Exit | None, kill_reason: str | None) -> AgentExited:
        """How the agent ended, as recorded by its keeper; "lost" or "never_started" if there is no record."""
        began = self.launch is not None and self.launch.began()
        lost = "lost" if began else "never_started"
        how: Any = lost if found is None else kill_reason or found.how
        return AgentExited(
            how=how,
            exit_code=found.exit_code if found is not None else None,
            signal=found.signal if found is not None else None,
            error=found.error if found is not None else None,
            stderr=self.launch.stderr_tail() if self.launch is not None else "",
            delivered=how != "stuck" and self.delivered(state, found.in_fed if found is not None else None),
            input_bytes=self.conversation.input_bytes,
            fallback=self.driver.fallback,
        )

    @property
    def acknowledgeable(self) -> int:
        """The position up to which the keeper may free output: in a shared process, what all sessions have stored."""
        return self.shared.freeable if self.shared is not None and self.shared.members else self.stored

    def note_progress(self, lines: Sequence[bytes]) -> LaunchProgress:
        """The progress to store with a step that writes `lines`. If there are lines, the caller must hold the input's
        lock, and subtract them from its total if the step was not stored."""
        self.input.total += len(lines)
        self.noted = self._framer.freeable
        return LaunchProgress(
            launch_id=self.launch_id,
            session_id=self.session_id,
            agent=self.agent,
            driver=self.driver.name,
            phase=self.phase,
            offset=self._framer.consumed,
            performed_seq=self.performed_seq,
            input_total=self.input.total,
            pending_input=list(lines),
            driver_state=self.conversation.dump(),
        )
