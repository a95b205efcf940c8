"""What the server refuses, in the words of the surface that shows it.

Above: the command line and MCP, which have names of their own for what the API calls a field. Below: the client's
errors. The server's sentence is shown as it is, but for the fields that it says it is about (`fields`), each of which
gets its name here; where a whole sentence speaks of requests, the surface has another one for its code.
"""

import re
from collections.abc import Callable, Mapping

from perdure.surfaces.client import Problem

_FIRST_STEP = re.compile(r"[^.\[]+")


def reworded(problem: Problem, sentences: Mapping[str, str], name_of: Callable[[str], str]) -> str:
    """The refusal as a sentence: the one for its code, else the server's with other names for its fields."""
    if problem.code in sentences:
        return sentences[problem.code]
    sentence = problem.detail
    # "There is no agent ...": there the word is no field.
    given = problem.facts.get("fields") if problem.code != "not_found" else None
    for path in given if isinstance(given, list) else []:
        if found := _FIRST_STEP.match(str(path)):
            field, name = found[0], name_of(found[0])
            # Once: what follows may be a value that somebody gave.
            pattern = rf"(?<![\w-]){re.escape(field)}(?![\w-])(\[\d+\])?"
            sentence = re.sub(pattern, name.replace("\\", ""), sentence, count=1)
    return sentence
