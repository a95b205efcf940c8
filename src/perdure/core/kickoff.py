"""Kickoff templates: how a project's template becomes the first message of a session. Pure.

Above: the surfaces that begin sessions. Below: nothing. A template has places for five words in braces; everything else
in it stays as it is, and what is put into a place is not looked at again.
"""

import re

WORDS = ("project", "path", "title", "date", "message")
_PLACE = re.compile(r"\{(" + "|".join(WORDS) + r")\}")


def first_message(template: str, *, project: str, path: str, title: str, date: str, message: str) -> str:
    """The template with its places filled."""
    given = {"project": project, "path": path, "title": title, "date": date, "message": message}
    return _PLACE.sub(lambda place: given[place.group(1)], template)


def takes_message(template: str) -> bool:
    """Whether a message of the person has a place in it; else it would be lost."""
    return "{message}" in template
