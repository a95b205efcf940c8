"""ARCHITECTURE.md names every module, and only modules that exist, so that a newcomer can look each one up."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "perdure"
TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
CODE_MAP = TEXT.split("\n## Code map\n")[1]
NAMED = set(re.findall(r"`(\w+)`", CODE_MAP))


def modules() -> dict[str, str]:
    """Each module by its path in the package. Names of stores are listed without their prefix."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).with_suffix("").as_posix()
        if not path.name.startswith("__"):
            found[place] = path.stem
    return found


def is_named(place: str, name: str) -> bool:
    prefix, _, rest = name.partition("_")
    return (
        name in NAMED
        or (place.startswith("stores/") and prefix in ("sqlite", "postgres") and f"_{rest}" in NAMED)
        or (place.startswith("rehearsal/claude_") and "`claude_*`" in CODE_MAP)
        or (place.startswith("surfaces/cli/") and "a module for each noun of the command line" in CODE_MAP)
        or (place.count("/") == 0 and f"{name}.py" in CODE_MAP)
    )


def test_the_code_map_names_every_module() -> None:
    assert [place for place, name in modules().items() if not is_named(place, name)] == []


def test_the_code_map_names_no_module_that_does_not_exist() -> None:
    stems = set(modules().values())
    suffixes = {f"_{stem.partition('_')[2]}" for stem in stems}
    assert sorted(name for name in NAMED if name not in stems and name not in suffixes) == []


def test_every_file_that_the_text_mentions_exists() -> None:
    paths = re.findall(r"`((?:core|drivers|stores|runtime|surfaces|running|log|tests|docs|ui)/[\w/.]*)`", TEXT)
    places = (PACKAGE, PACKAGE / "runtime", ROOT)
    assert paths
    assert [path for path in paths if not any((place / path).exists() for place in places)] == []
