"""Kickoff templates: five places are filled once, and everything else stays as it was written."""

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.kickoff import WORDS, first_message, takes_message

GIVEN = {"project": "Site", "path": "/srv/site", "title": "Login", "date": "2026-02-07", "message": "add tests"}


def test_every_place_is_filled() -> None:
    template = "{date} {project} in {path}: {title}. {message}"
    assert first_message(template, **GIVEN) == "2026-02-07 Site in /srv/site: Login. add tests"


def test_a_place_may_come_more_than_once() -> None:
    assert first_message("{project}, {project}!", **GIVEN) == "Site, Site!"


def test_words_that_are_not_known_stay_as_they_are() -> None:
    template = "{team} { project } {} {project {{date}} {PATH} %s $message"
    assert first_message(template, **GIVEN) == "{team} { project } {} {project {2026-02-07} {PATH} %s $message"


def test_braces_in_what_is_put_in_are_not_filled_again() -> None:
    given_message = {**GIVEN, "message": "use {path} and {message}", "title": "{date}"}
    assert first_message("{title}: {message}", **given_message) == "{date}: use {path} and {message}"


@settings(deadline=None)
@given(text=st.text())
def test_any_message_is_put_in_as_it_is(text: str) -> None:
    assert first_message("<{message}>", **{**GIVEN, "message": text}) == f"<{text}>"


@settings(deadline=None)
@given(template=st.text(st.characters(exclude_characters="{}")))
def test_a_template_without_places_is_the_message(template: str) -> None:
    assert first_message(template, **GIVEN) == template


def test_a_template_takes_a_message_if_it_has_a_place_for_it() -> None:
    assert takes_message("do {message}") and not takes_message("do {title}")
    assert all(f"{{{word}}}" not in first_message(f"{{{word}}}", **GIVEN) for word in WORDS)
