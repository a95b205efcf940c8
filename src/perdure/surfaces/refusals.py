"""Rewords the server's error messages for a surface.

Above: the command line and MCP, whose option and parameter names differ from the API's field names. Below: the client's
errors. The message stays as it is, except that each field named in the error's `fields` gets the surface's name. For
some error codes the surface has its own message.
"""

import re
from collections.abc import Callable, Mapping

from perdure.surfaces.client import Problem

_FIRST_STEP = re.compile(r"[^.\[]+")


def reworded(problem: Problem, sentences: Mapping[str, str], name_of: Callable[[str], str]) -> str:
    """The surface's message for the error code, or else the server's message with the surface's field names."""
    if problem.code in sentences:
        return sentences[problem.code]
    sentence = problem.detail
    # In "There is no agent ..." the word is not a field.
    given = problem.facts.get("fields") if problem.code != "not_found" else None
    for path in given if isinstance(given, list) else []:
        if found := _FIRST_STEP.match(str(path)):
            field, name = found[0], name_of(found[0])
            # Only the first occurrence: later ones may be part of a user's value.
            pattern = rf"(?<![\w-]){re.escape(field)}(?![\w-])(\[\d+\])?"
            sentence = re.sub(pattern, name.replace("\\", ""), sentence, count=1)
    return sentence
