"""The house rules, as functions from a source tree to the places that break them.

Above: test_tidy.py holds the project to them and shows that each one bites; `./run check` prints what they find.
Below: the standard library's parser. It deliberately knows nothing of style that ruff already checks.
"""

import ast
import functools
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = "perdure"
# One noun in one file: a lower limit only makes satellites that take the whole of it as an argument.
MAX_SOURCE_LINES = 600
MAX_TEST_LINES = 600
MAX_FUNCTION_LINES = 70
# The keeper is one file by design: it is started by its path, without our packages. So its lease, which elsewhere would
# be a file of its own, is in it too.
MAX_KEEPER_LINES = 760

# Who may import what, inside the package; a name covers what is below it.
LAYERS = {
    "core": ("core",),
    "drivers": ("core", "drivers"),
    "stores": ("core", "stores"),
    "rehearsal": ("rehearsal", "core.transcript_text"),
    "runtime": ("core", "drivers", "stores", "runtime", "config"),
    "surfaces": ("core", "surfaces", "runtime.verbs", "runtime.log", "config"),
    "config": ("core",),
    "web": (),
    "__main__": ("surfaces.cli",),
}
# The command line starts the server and the rehearsal agent, adds agents of the catalogue to the configuration, and its
# doctor looks at disk, database and settings with the server's eyes; it moves a database while no server runs. Nothing
# else on a surface may.
EXCEPTIONS = {
    "surfaces.cli": (
        "server",
        "rehearsal",
        "runtime.agents.catalogue",
        "runtime.keeping.cgroups",
        "runtime.data.database_check",
        "runtime.data.directory",
        "runtime.data.filesystem",
        "runtime.data.inspection",
        "runtime.data.settings_check",
        "stores.transfer",
        "stores.transfer_postgres",
        "stores.transfer_sqlite",
    )
}
WIRES_EVERYTHING = "server"
STANDARD_LIBRARY_ONLY = ("runtime.keeping.keeper",)

IMPURE_MODULES = {"asyncio", "logging", "os", "random", "secrets", "socket", "sqlite3", "subprocess", "threading"}
IMPURE_MODULES |= {"time"}
CLOCK_CALLS = {"now", "today", "utcnow"}
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
PRINTERS = ("surfaces.cli", "rehearsal")
# Written in pieces, so that this file does not break its own rule.
FOREIGN_PATHS = re.compile(r"(?<![\w.\-/])/(?:wor" + r"k|roo" + r"t)/|\.\./share" + "d")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".sql", ".c", ".sh", ".ts", ".tsx", ".css", ".html", ""}
TEXT_FOLDERS = ("src", "tests", "benchmarks", "docs", "deploy", "ui/src", ".ci")


class Breach(NamedTuple):
    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


class Source(NamedTuple):
    """One parsed file. `module` is its name inside the package (`core.events`), or "" outside of it."""

    path: str
    module: str
    text: str
    tree: ast.Module
    nodes: list[ast.AST]


def read(root: Path, folder: str) -> Iterator[Source]:
    for path in sorted((root / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        yield Source(str(path.relative_to(root)), module_name(root, path), text, *parsed(text, str(path)))


@functools.cache
def parsed(text: str, path: str) -> tuple[ast.Module, list[ast.AST]]:
    """Once for all rules: the tree, and everything in it."""
    tree = ast.parse(text, path)
    return tree, list(ast.walk(tree))


def module_name(root: Path, path: Path) -> str:
    package = root / "src" / PACKAGE
    if not path.is_relative_to(package):
        return ""
    parts = path.relative_to(package).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def within(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(name + ".") for name in names)


def imports(source: Source) -> Iterator[tuple[int, str]]:
    """Every module that is imported, in functions and for type checking too, with what is taken from it."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                # In a package's __init__ one dot is the package itself; elsewhere it is the folder around.
                here = f"{PACKAGE}.{source.module}".strip(".").split(".")
                up = node.level - 1 if source.path.endswith("__init__.py") else node.level
                base = ".".join([*here[: len(here) - up], *([base] if base else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def layers(root: Path) -> Iterator[Breach]:
    """Each package imports only the layers below it; only server.py imports everything."""
    for source in read(root, f"src/{PACKAGE}"):
        if source.module in ("", WIRES_EVERYTHING):
            continue
        allowed = LAYERS.get(source.module.split(".")[0])
        if allowed is None:
            yield Breach(source.path, 1, f"{source.module} has no place in the layers")
            continue
        extra = next((names for name, names in EXCEPTIONS.items() if within(source.module, (name,))), ())
        for line, name in imports(source):
            if not name.startswith(PACKAGE + "."):
                continue
            inner = name.removeprefix(PACKAGE + ".")
            if not inner.startswith("_") and not within(inner, (*allowed, *extra)):
                yield Breach(source.path, line, f"{source.module} must not import {inner}")


def verbs_only(root: Path) -> Iterator[Breach]:
    """A surface calls verbs. It never reaches through them into the log's store."""
    for source in read(root, f"src/{PACKAGE}/surfaces"):
        for node in source.nodes:
            if isinstance(node, ast.Attribute) and node.attr == "store" and ast.unparse(node.value).endswith("log"):
                yield Breach(source.path, node.lineno, f"a surface must call a verb instead of {ast.unparse(node)}")


def standard_library_only(root: Path) -> Iterator[Breach]:
    """The keeper runs without our packages: it imports only the standard library."""
    for source in read(root, f"src/{PACKAGE}"):
        if source.module not in STANDARD_LIBRARY_ONLY:
            continue
        for line, name in imports(source):
            if name.split(".")[0] not in sys.stdlib_module_names:
                yield Breach(source.path, line, f"{source.module} must import only the standard library, not {name}")


def purity(root: Path) -> Iterator[Breach]:
    """core does no I/O, reads no clock, makes nothing random and logs nothing."""
    for source in read(root, f"src/{PACKAGE}/core"):
        for line, name in imports(source):
            if name.split(".")[0] in IMPURE_MODULES:
                yield Breach(source.path, line, f"core is pure and must not import {name.split('.')[0]}")
        for node in source.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_CALLS:
                yield Breach(source.path, node.lineno, f"core is pure and must not call {ast.unparse(node.func)}")


def sizes(root: Path) -> Iterator[Breach]:
    """A file is read in one sitting and a function fits a screen."""
    for folder, limit in (("src", MAX_SOURCE_LINES), ("tests", MAX_TEST_LINES)):
        for source in read(root, folder):
            count = source.text.count("\n")
            allowed = MAX_KEEPER_LINES if source.module in STANDARD_LIBRARY_ONLY else limit
            if count > allowed:
                yield Breach(source.path, count, f"the file has {count} lines, more than {allowed}")
    for source in read(root, "src"):
        for node in source.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    what = f"{node.name} has {length} lines, more than {MAX_FUNCTION_LINES}"
                    yield Breach(source.path, node.lineno, what)


def names(root: Path) -> Iterator[Breach]:
    """A file is named after its noun, not after being handy."""
    for folder in ("src", "tests", "benchmarks"):
        for path in sorted((root / folder).rglob("*.py")):
            for part in path.relative_to(root).with_suffix("").parts:
                if part.removeprefix("test_").strip("_") in FORBIDDEN_NAMES:
                    yield Breach(str(path.relative_to(root)), 1, f"the name {part} says nothing")


def docstrings(root: Path) -> Iterator[Breach]:
    """Each module says what it is. An empty __init__.py has nothing to say."""
    for folder in ("src", "tests", "benchmarks"):
        for source in read(root, folder):
            if source.text.strip() and not ast.get_docstring(source.tree):
                yield Breach(source.path, 1, "the module has no docstring")


def printing(root: Path) -> Iterator[Breach]:
    """Only the command line and the rehearsal agent speak to a terminal."""
    for source in read(root, "src"):
        if within(source.module, PRINTERS):
            continue
        for node in source.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                yield Breach(source.path, node.lineno, "print belongs to surfaces/cli and rehearsal")


def swallowing(root: Path) -> Iterator[Breach]:
    """An error of any kind is never dropped without a word."""
    for folder in ("src", "tests", "benchmarks"):
        for source in read(root, folder):
            for node in source.nodes:
                if isinstance(node, ast.ExceptHandler) and catches_all(node.type) and does_nothing(node.body):
                    yield Breach(source.path, node.lineno, "an exception of any kind is swallowed")


def catches_all(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(catches_all(element) for element in kind.elts)
    return kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException"))


def does_nothing(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(node, ast.Pass | ast.Continue)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in body
    )


def sleeping(root: Path) -> Iterator[Breach]:
    """A test waits for an event, never for a while."""
    for source in read(root, "tests"):
        for line, name in imports(source):
            if name == "time.sleep":
                yield Breach(source.path, line, "a test must not sleep")
        for node in source.nodes:
            if isinstance(node, ast.Attribute) and node.attr == "sleep" and ast.unparse(node) == "time.sleep":
                yield Breach(source.path, node.lineno, "a test must not sleep")


def foreign_paths(root: Path) -> Iterator[Breach]:
    """The project speaks of itself alone, not of the machine that it was written on."""
    files = [path for path in root.glob("*") if path.is_file()]
    for folder in TEXT_FOLDERS:
        files += [path for path in (root / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    for path in sorted(files):
        if path.suffix not in TEXT_SUFFIXES or (path.name.startswith(".") and path.suffix == ""):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            found = FOREIGN_PATHS.search(line)
            if found:
                yield Breach(str(path.relative_to(root)), number, f"speaks of {found.group()}")


RULES: tuple[Callable[[Path], Iterator[Breach]], ...] = (
    layers,
    verbs_only,
    standard_library_only,
    purity,
    sizes,
    names,
    docstrings,
    printing,
    swallowing,
    sleeping,
    foreign_paths,
)


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    breaches = [breach for rule in RULES for breach in rule(root)]
    sys.stdout.writelines(f"{breach}\n" for breach in breaches)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
