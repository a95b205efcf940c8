"""One launch of an agent as its session's runner holds it: process, protocol half and position, moving together.

Above: the runner. Below: launch.py (bytes) and a driver's conversation (meaning). What must survive a crash is in the
checkpoint, which is stored in one transaction with the events that a step led to.
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
from perdure.stores.base import Checkpoint

READ_BYTES = 256 * 1024
SMALL_READ_BYTES = 16 * 1024
"""The first look: making room for a large read takes longer than reading the few hundred bytes that mostly come."""
CATCH_UP_S = 2.0
TOO_LONG = f"a line longer than {MAX_LINE_BYTES // 1024 // 1024} MB was skipped"

Phase = Literal["launching", "live", "gone"]


class Attachment:
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
        self.prompt_mark: tuple[int, int] | None = None
        """(turn, size of `in` before its prompt was written) of the last prompt, while this server knows it."""
        self.behind: tuple[int, float] | None = None
        """(the size of the output, the time) when it was first asked whether all of it was read."""
        self._framer = LineFramer(offset)
        self._read_bytes = SMALL_READ_BYTES
        self._overlong = 0
        self.shared = shared
        self.input = sent or (shared.input if shared is not None else Input())
        self.checkpointed = offset
        """What was freeable when the last checkpoint was made."""
        self.stored = offset
        """Up to where everything is in the store."""

    @classmethod
    def restore(
        cls, checkpoint: Checkpoint, launch: Launch | None, shared: Shared | None = None, sent: Input | None = None
    ) -> "Attachment":
        """As it was when the last step was stored; what that step wanted written and `in` lacks is appended, unless
        that was done already, to `sent`."""
        if sent is None:
            sent = Input()
            sent.repair(launch, [checkpoint])
        driver = DRIVERS[checkpoint.driver]
        attachment = cls(
            launch_id=checkpoint.launch_id,
            session_id=checkpoint.session_id,
            agent=checkpoint.agent,
            driver=driver,
            conversation=driver.restore(checkpoint.driver_state),
            launch=launch,
            offset=checkpoint.offset,
            performed_seq=checkpoint.performed_seq,
            shared=shared,
            sent=sent,
        )
        attachment.phase = checkpoint.phase
        return attachment

    def perform(self, orders: Sequence[Order]) -> tuple[list[Any], list[bytes]]:
        observations: list[Any] = []
        lines: list[bytes] = []
        for order in orders:
            step = self.conversation.perform(order)
            observations += step.observations
            lines += step.lines
        return observations, lines

    def receive(self) -> tuple[bool, list[Any], list[bytes]]:
        """Read on: (whether there is more, what it meant, what it wants answered).

        A short read came to the end; the keeper's hint comes after whatever is written from then on."""
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
        """Whether all is read that was written when this was first asked, as far as that can be done in a moment: an
        agent that talks on never lets one come to its end."""
        if self.behind is None:
            self.behind = (self.launch.out_size() if self.launch is not None else 0, now)
        size, since = self.behind
        if self._framer.position < size and now - since < CATCH_UP_S:
            return False
        self.behind = None
        return True

    def has_unread(self) -> bool:
        """Whether the agent has written what we have not read yet: it must not be taken for silent."""
        try:
            return self.launch is not None and self.launch.out_size() > self._framer.position
        except LaunchDamaged:
            return False  # its runner looks after a file that is gone

    @property
    def key(self) -> tuple[str, str]:
        return self.launch_id, self.session_id

    @property
    def position(self) -> int:
        return self._framer.position

    @property
    def offset(self) -> int:
        """The end of the last whole line that was read."""
        return self._framer.consumed

    @property
    def freeable(self) -> int:
        return self._framer.freeable

    @property
    def unstored_bytes(self) -> int:
        """Output that was read and led to nothing since the last checkpoint; the keeper still holds it."""
        return self.freeable - self.checkpointed

    def delivered(self, state: Session, in_fed: int | None) -> bool:
        """Whether the running turn's prompt may have reached the agent, whose stdin took `in_fed` bytes. Unsure means
        yes."""
        if not state.working or state.turn is None or state.attached is None:
            # A turn that begins while its agent's end is being recorded was never given to it.
            return False
        if not state.attached.opened:
            return False
        if state.turn.origin != "person" or self.prompt_mark is None:
            return True
        turn, size = self.prompt_mark
        return turn == state.turn.turn and (in_fed is None or in_fed > size)

    def ended(self, state: Session, found: Exit | None, kill_reason: str | None) -> AgentExited:
        """How the agent ended: as its keeper has noted; unknown if the keeper was killed, or never ran."""
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
            input_bytes=self.conversation.prompt_bytes,
        )

    @property
    def acknowledgeable(self) -> int:
        """What the keeper may free: in a shared process, what everybody has stored."""
        return self.shared.freeable if self.shared is not None and self.shared.members else self.stored

    def checkpoint(self, lines: Sequence[bytes]) -> Checkpoint:
        """What to store with a step that wants `lines` written. Whoever has lines holds the input's lock, and takes
        them off its total again if the step was not stored."""
        self.input.total += len(lines)
        self.checkpointed = self._framer.freeable
        return Checkpoint(
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
