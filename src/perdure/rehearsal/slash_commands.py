"""The rehearsal agent's slash commands. As in real agents, they work only at the very start of an input.

Above: both dialects list the commands and perform inputs. Below: script.py for everything else. After a replayed
conversation, a command is ordinary text, as for every real agent.
"""

from perdure.core.transcript_text import unwrap
from perdure.rehearsal.script import Performance, Say, Scene, perform

COMMANDS = (
    ("compact", "Free up context by summarizing the conversation so far", "<instructions>"),
    ("status", "Show the current model and mode", ""),
)
"""Name, description, hint."""


def perform_input(text: str, scene: Scene) -> Performance:
    """The performance of an input, as received from the client."""
    name, _, rest = text[1:].partition(" ") if text.startswith("/") else ("", "", "")
    if name == "compact":
        return _compact(rest.strip(), scene)
    if name == "status":
        return _status(scene)
    return perform(unwrap(text)[1], scene)


def _compact(instructions: str, scene: Scene) -> Performance:
    yield Say(f"Compacted {len(scene.recall())} messages")
    yield Say(f", with a view to: {instructions}." if instructions else ".")


def _status(scene: Scene) -> Performance:
    yield Say(f"The rehearsal agent works with model {scene.model} in mode {scene.mode}.")
