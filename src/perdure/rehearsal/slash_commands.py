"""The rehearsal agent's own slash commands, as real agents have them: only at the very beginning of a prompt.

Above: both dialects list the commands and perform prompts. Below: script.py for everything else. A command behind a
replayed conversation is ordinary text to it, as it is to every real agent.
"""

from perdure.core.transcript_text import unwrap
from perdure.rehearsal.script import Performance, Say, Scene, perform

COMMANDS = (
    ("compact", "Free up context by summarizing the conversation so far", "<instructions>"),
    ("status", "Say which model and which mode it works with", ""),
)
"""Name, description, hint."""


def perform_prompt(prompt: str, scene: Scene) -> Performance:
    """What a prompt asks for, as it came over the wire."""
    name, _, rest = prompt[1:].partition(" ") if prompt.startswith("/") else ("", "", "")
    if name == "compact":
        return _compact(rest.strip(), scene)
    if name == "status":
        return _status(scene)
    return perform(unwrap(prompt)[1], scene)


def _compact(instructions: str, scene: Scene) -> Performance:
    yield Say(f"Compacted {len(scene.recall())} messages")
    yield Say(f", with a view to: {instructions}." if instructions else ".")


def _status(scene: Scene) -> Performance:
    yield Say(f"The rehearsal agent works with model {scene.model} in mode {scene.mode}.")
