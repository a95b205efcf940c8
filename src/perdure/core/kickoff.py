"""Kickoff templates: how a project's template becomes the first message of a session. Pure.

Above: the surfaces that start sessions. Below: nothing. A template can contain five placeholders in braces. All other
text stays unchanged, and inserted values are not expanded again.
"""

import re

WORDS = ("project", "path", "title", "date", "message")
_PLACE = re.compile(r"\{(" + "|".join(WORDS) + r")\}")


def first_message(template: str, *, project: str, path: str, title: str, date: str, message: str) -> str:
    """The template with its placeholders filled."""
    given = {"project": project, "path": path, "title": title, "date": date, "message": message}
    return _PLACE.sub(lambda place: given[place.group(1)], template)


def takes_message(template: str) -> bool:
    """Whether the template includes the person's message. Otherwise the message would be lost."""
    return "{message}" in template
