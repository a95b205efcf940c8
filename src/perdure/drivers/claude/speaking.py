"""Text that arrives twice, first in pieces and then whole, and must be shown once.

Above: the conversation. Below: the outbox. The pieces of a block are shown as they arrive; of the whole block, only
what the pieces lacked. A whole block has no index, so it is matched with the first incomplete block of its kind. Shown
text is never removed: if the agent discards a partial message and starts over, people see a notice.
"""

import zlib

from perdure.drivers.claude import wire
from perdure.drivers.claude.outbox import Outbox
from perdure.drivers.claude.state import Block, Running, State

INDEX_MAX = 10_000


class Speaking:
    def __init__(self, state: State, out: Outbox) -> None:
        self._state = state
        self._out = out

    def piece(self, index: int, thinking: bool, text: str) -> None:
        running = self._state.running
        if running is None or not text or not 0 <= index < INDEX_MAX:
            return
        block = running.blocks.get(index)
        if block is None or block.thinking != thinking or block.whole:
            block = running.blocks[index] = self._new_block(running, thinking)
        if block.half or not text.isascii():
            text, half = wire.joined(chr(block.half) + text if block.half else text)
            block.half = ord(half) if half else 0
            if not text:
                return
        block.chars += len(text)
        block.checksum = zlib.crc32(text.encode(), block.checksum)
        if block.blank and not text.isspace():
            block.blank = False
            running.said = running.said or not thinking
        self._out.say(thinking, running.turn, block.number, text)

    def message(self, running: Running, message_id: str) -> None:
        """Handle the start of another message, or a whole one. It ends the pieces of the previous message."""
        if message_id != running.message_id:
            self.drop(running)
            running.message_id = message_id

    def whole(self, running: Running, message_id: str, thinking: bool, text: str) -> None:
        known = message_id == running.message_id
        waiting = [block for block in running.blocks.values() if block.thinking == thinking and not block.whole]
        # Another message with the same beginning is the retry after a broken stream. Continue where that stopped.
        block = waiting[0] if waiting and (known or _begins_with(text, waiting[0])) else None
        if block is not None:
            block.whole = True
        if not known:
            self.message(running, message_id)
        if block is None:
            rest = text
        elif len(text) < block.chars:
            # Interrupted or trimmed; all of it was already shown.
            rest = ""
        elif _begins_with(text, block):
            rest = text[block.chars :]
        else:
            self._tell_dropped()
            block, rest = None, text
        if rest:
            if block is None:
                block = self._new_block(running, thinking)
                running.blocks[INDEX_MAX + block.number] = block
                block.whole = True
            running.said = running.said or not thinking
            self._out.say(thinking, running.turn, block.number, rest)

    def drop(self, running: Running) -> None:
        """Discard incomplete blocks, which will not be completed."""
        if not running.cancelled and any(not block.whole and not block.blank for block in running.blocks.values()):
            self._tell_dropped()
        running.blocks = {}

    def _tell_dropped(self) -> None:
        self._out.tell("preview_dropped", "The agent discarded the text above before it was complete and started over.")

    def _new_block(self, running: Running, thinking: bool) -> Block:
        running.block += 1
        return Block(thinking, running.block)


def _begins_with(text: str, block: Block) -> bool:
    return block.chars > 0 and len(text) >= block.chars and zlib.crc32(text[: block.chars].encode()) == block.checksum
