"""The page's documentation lists every shortcut key, and the sources follow the project's rules."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_key_is_documented() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "ui" / "src").rglob("*.tsx"))
    keys = set(re.findall(r'keys: "([^"]+)"', sources))
    assert len(keys) > 15
    table = (ROOT / "docs" / "page.md").read_text(encoding="utf-8").partition("## Keyboard")[2]
    documented = {key.strip() for row in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for key in row.split(", ")}
    assert keys - documented == set()


def test_every_source_file_starts_with_a_description() -> None:
    for path in sorted((ROOT / "ui" / "src").rglob("*.ts*")):
        assert path.read_text(encoding="utf-8").startswith("// "), f"{path.relative_to(ROOT)} lacks a description"


def test_no_source_file_is_too_long() -> None:
    for path in sorted((ROOT / "ui" / "src").rglob("*.ts*")):
        count = path.read_text(encoding="utf-8").count("\n")
        assert count <= 300, f"{path.relative_to(ROOT)} has {count} lines"
