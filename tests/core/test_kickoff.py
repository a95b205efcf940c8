"""Kickoff templates: five placeholders are filled once, and all other text stays unchanged."""

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.core.kickoff import WORDS, first_message, takes_message

GIVEN = {"project": "Site", "path": "/srv/site", "title": "Login", "date": "2026-02-07", "message": "add tests"}


def test_every_placeholder_is_filled() -> None:
    template = "{date} {project} in {path}: {title}. {message}"
    assert first_message(template, **GIVEN) == "2026-02-07 Site in /srv/site: Login. add tests"


def test_a_placeholder_may_occur_more_than_once() -> None:
    assert first_message("{project}, {project}!", **GIVEN) == "Site, Site!"


def test_unknown_placeholders_stay_unchanged() -> None:
    template = "{team} { project } {} {project {{date}} {PATH} %s $message"
    assert first_message(template, **GIVEN) == "{team} { project } {} {project {2026-02-07} {PATH} %s $message"


def test_placeholders_in_inserted_values_are_not_filled() -> None:
    given_message = {**GIVEN, "message": "use {path} and {message}", "title": "{date}"}
    assert first_message("{title}: {message}", **given_message) == "{date}: use {path} and {message}"


@settings(deadline=None)
@given(text=st.text())
def test_any_message_is_inserted_unchanged(text: str) -> None:
    assert first_message("<{message}>", **{**GIVEN, "message": text}) == f"<{text}>"


@settings(deadline=None)
@given(template=st.text(st.characters(exclude_characters="{}")))
def test_a_template_without_placeholders_is_the_message(template: str) -> None:
    assert first_message(template, **GIVEN) == template


def test_a_template_includes_the_message_if_it_has_the_placeholder() -> None:
    assert takes_message("do {message}") and not takes_message("do {title}")
    assert all(f"{{{word}}}" not in first_message(f"{{{word}}}", **GIVEN) for word in WORDS)
