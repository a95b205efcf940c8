"""What is written about the page holds: every key that the page knows stands in its documentation."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_key_has_its_place_in_the_documentation() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "ui" / "src").rglob("*.tsx"))
    keys = set(re.findall(r'keys: "([^"]+)"', sources))
    assert len(keys) > 15
    table = (ROOT / "docs" / "page.md").read_text(encoding="utf-8").partition("## Keyboard")[2]
    told = {key.strip() for row in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for key in row.split(", ")}
    assert keys - told == set()


def test_every_source_of_the_page_says_what_it_is() -> None:
    for path in sorted((ROOT / "ui" / "src").rglob("*.ts*")):
        assert path.read_text(encoding="utf-8").startswith("// "), f"{path.relative_to(ROOT)} does not say what it is"


def test_no_source_of_the_page_is_longer_than_a_sitting() -> None:
    for path in sorted((ROOT / "ui" / "src").rglob("*.ts*")):
        count = path.read_text(encoding="utf-8").count("\n")
        assert count <= 300, f"{path.relative_to(ROOT)} has {count} lines"
