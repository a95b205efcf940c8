"""Pastes into the chat's input: placeholders for long text, files as attachments or mentions."""

import base64
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from perdure.surfaces.cli.pasting import Entry, Pastes, paths_in, shortened


@given(st.lists(st.text(st.characters(exclude_characters="\r[]")), min_size=1, max_size=5), st.integers(0, 4))
def test_any_paste_is_sent_in_full(texts: list[str], repeated: int) -> None:
    pastes = Pastes()
    long = [text * 3 + "\n" * (repeated * 5) for text in texts]
    draft = " and ".join(pastes.fold(text) for text in long)
    assert pastes.expand(draft) == Entry(" and ".join(long), draft)


def test_a_long_paste_becomes_a_placeholder_and_a_short_one_does_not() -> None:
    pastes = Pastes()
    assert pastes.paste("one\r\ntwo", is_local=True) == "one\ntwo"
    lines = "\n".join(f"line {number}" for number in range(240))
    assert pastes.paste(lines, is_local=True) == "[pasted 240 lines]"
    assert pastes.paste(lines, is_local=True) == "[pasted 240 lines]"
    assert pastes.paste(lines.upper(), is_local=True) == "[pasted 240 lines #2]"
    assert pastes.paste("x" * 5000, is_local=True) == "[pasted 5000 characters]"


def test_a_pasted_image_is_attached_and_other_files_are_mentioned(tmp_path: Path) -> None:
    picture, text = tmp_path / "a shot.png", tmp_path / "notes.txt"
    picture.write_bytes(b"png")
    text.write_text("hello")
    pastes = Pastes()
    draft = pastes.paste(f"'{picture}' {text}\n", is_local=True)
    assert draft == f"[image a shot.png] @{text} "
    (attachment,) = pastes.expand(draft).attachments
    assert (attachment["name"], attachment["mime_type"]) == ("a shot.png", "image/png")
    assert base64.b64decode(attachment["data"]) == b"png"
    assert pastes.expand("no mark any more").attachments == ()


def test_a_file_that_the_agent_cannot_see_is_attached(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    assert Pastes().paste(str(text), is_local=False) == "[file notes.txt] "


def test_only_complete_file_paths_are_treated_as_files(tmp_path: Path) -> None:
    file = tmp_path / "a b.txt"
    file.write_text("")
    for text in (str(file), f'"{file}"', str(file).replace(" ", "\\ "), f"file://{str(file).replace(' ', '%20')}"):
        assert paths_in(text) == [file], text
    for text in ("README.md", str(tmp_path), f"see {file}", f"'{file}", "/no/such/file", f"{file} and more"):
        assert paths_in(text) == [], text


def test_a_message_is_echoed_with_its_placeholders_and_a_long_one_shortened() -> None:
    pastes = Pastes()
    draft = "look: " + pastes.fold("x\n" * 50)
    entry = pastes.expand(draft)
    pastes.remember("m1", entry)
    assert pastes.echo(entry.text) == draft == "look: [pasted 50 lines]"
    assert pastes.entered("m1", entry.text) == draft
    assert pastes.entered("m2", "y\n" * 50) == "[pasted 50 lines #2]"
    assert pastes.echo("short") == "short"
    assert shortened("z\n" * 20).endswith("z\n[15 more lines]")
