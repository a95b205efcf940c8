"""The project's own rules. Each is a function that yields the places in a source tree that break the rule.

Above: test_tidy.py applies the rules to the project and tests each rule; `./run check` prints what they find. Below:
the standard library's parser. There are no rules about style here, because ruff checks it.
"""

import ast
import functools
import itertools
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = "perdure"
# One noun per file. A lower limit would only split a noun into files that pass the same object around.
MAX_SOURCE_LINES = 600
MAX_TEST_LINES = 600
MAX_FUNCTION_LINES = 70
# The keeper is one file by design: it is started by its path, without our packages. So it also contains its lease,
# which would otherwise be a separate file.
MAX_KEEPER_LINES = 760

# Allowed imports inside the package. A name includes everything below it; the longest name applies.
LAYERS = {
    "core": ("core",),
    "drivers": ("core", "drivers"),
    "stores": ("core", "stores"),
    "rehearsal": ("rehearsal", "core.transcript_text"),
    "runtime": ("core", "drivers", "stores", "runtime", "config"),
    "surfaces": ("core", "surfaces", "runtime.verbs", "config"),
    # These two are clients: they send requests to a server.
    "surfaces.cli": ("core", "surfaces", "config"),
    "surfaces.mcp": ("core", "surfaces", "config"),
    "config": ("core",),
    "web": (),
    "__main__": ("surfaces.cli",),
}
# The command line starts the server and the rehearsal agent, asks drivers for their traits, and adds agents from the
# catalogue to the configuration. Its doctor checks disk, database and settings with the server's code. It moves a
# database while no server runs. No other surface may do this.
EXCEPTIONS = {
    "surfaces.cli": (
        "server",
        "rehearsal",
        "drivers",
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
# Packages that must not import each other. What they share is in modules directly under surfaces/.
SURFACES = ("http", "cli", "mcp")
# The command `perdure mcp` runs the MCP server.
ACROSS_SURFACES = {("surfaces.cli.mcp", "mcp")}
# The names under which surfaces use the verbs, and the class of each. A leading underscore doesn't matter.
VERBS = {
    "sessions": "Sessions",
    "verbs": "Sessions",
    "jobs": "Jobs",
    "nodes": "Nodes",
    "streams": "Streams",
    "journal": "FollowedSession",
    "journals": "FollowedSession",
}
# Attributes of runtime objects that no surface may use, whatever the object is called.
INTERNALS = {"store", "journals", "followers", "runners", "eraser", "launcher", "placement", "quarantine"}
# The same, but clients and parsers have methods with these names.
INTERNALS_UNLESS_CALLED = {"log", "feed"}
WIRES_EVERYTHING = "server"
STANDARD_LIBRARY_ONLY = ("runtime.keeping.keeper",)

IMPURE_MODULES = {"asyncio", "logging", "os", "random", "secrets", "socket", "sqlite3", "subprocess", "threading"}
IMPURE_MODULES |= {"time"}
CLOCK_CALLS = {"now", "today", "utcnow"}
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
PRINTERS = ("surfaces.cli", "rehearsal")
# Split, so that this file doesn't break its own rule.
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
    """One parsed file. `module` is its name inside the package, such as `core.events`; "" for other files."""

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
    """Parse a file once for all rules, and list its nodes."""
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
    """Yield every import, including those in functions and for type checking, with the imported names."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                # In the __init__ of a package, one dot is the package itself; elsewhere it is the parent package.
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
        layer = max((name for name in LAYERS if within(source.module, (name,))), key=len, default=None)
        if layer is None:
            yield Breach(source.path, 1, f"{source.module} is in no layer; add it to LAYERS")
            continue
        extra = next((names for name, names in EXCEPTIONS.items() if within(source.module, (name,))), ())
        for line, name in imports(source):
            if not name.startswith(PACKAGE + "."):
                continue
            inner = name.removeprefix(PACKAGE + ".")
            if not inner.startswith("_") and not within(inner, (*LAYERS[layer], *extra)):
                yield Breach(source.path, line, f"{source.module} must not import {inner}")


def surfaces_apart(root: Path) -> Iterator[Breach]:
    """Surfaces don't import each other, and what they share imports none of them."""
    for source in read(root, f"src/{PACKAGE}/surfaces"):
        own = source.module.split(".")[1:2]
        for line, name in imports(source):
            package, layer, *other = name.split(".")[:3] + [""] * 2
            if (package, layer) != (PACKAGE, "surfaces") or other[0] not in SURFACES:
                continue
            if [other[0]] != own and (source.module, other[0]) not in ACROSS_SURFACES:
                yield Breach(source.path, line, f"{source.module} must not import {name.removeprefix(PACKAGE + '.')}")


def verbs_only(root: Path) -> Iterator[Breach]:
    """A surface uses only methods and documented attributes of the verbs, never the store, the log or other internals.
    A parser can't know types, so this goes by the names of variables; the type checker does the rest."""
    members = verb_members(root)
    for source in read(root, f"src/{PACKAGE}/surfaces"):
        imported = list(imports(source))
        modules = {name.rpartition(".")[2] for _, name in imported}
        is_server = within(source.module, ("surfaces.http",)) or any(".runtime.verbs." in name for _, name in imported)
        called = {id(node.func) for node in source.nodes if isinstance(node, ast.Call)}
        for node in source.nodes:
            if not isinstance(node, ast.Attribute):
                continue
            is_internal = node.attr in INTERNALS or (node.attr in INTERNALS_UNLESS_CALLED and id(node) not in called)
            if is_server and not (isinstance(node.value, ast.Name) and node.value.id in modules):
                known = members.get(VERBS.get(name_of(node.value), ""))
                is_internal |= known is not None and node.attr not in known
            if is_internal:
                yield Breach(source.path, node.lineno, f"a surface must call a verb instead of {ast.unparse(node)}")


def verb_members(root: Path) -> dict[str, set[str]]:
    """By class in runtime/verbs: its public methods, and those public attributes that have a docstring."""
    found: dict[str, set[str]] = {}
    for source in read(root, f"src/{PACKAGE}/runtime/verbs"):
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                names = {name for part in node.body for name in public_names(part)}
                found[node.name] = {name for name in names if not name.startswith("_")}
    return found


def public_names(part: ast.stmt) -> Iterator[str]:
    """The names that one statement of a class defines."""
    if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
        yield part.name
        if part.name == "__init__":
            for first, second in itertools.pairwise(part.body):
                targets = first.targets if isinstance(first, ast.Assign) else [getattr(first, "target", None)]
                is_documented = isinstance(second, ast.Expr) and isinstance(second.value, ast.Constant)
                yield from (target.attr for target in targets if is_documented and isinstance(target, ast.Attribute))
    elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
        yield part.target.id


def name_of(value: ast.expr) -> str:
    """The name of a variable, attribute or function, also if it is called, awaited or indexed."""
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_")
        case ast.Call(func=inner) | ast.Await(value=inner) | ast.Subscript(value=inner):
            return name_of(inner)
    return ""


def standard_library_only(root: Path) -> Iterator[Breach]:
    """The keeper runs without our packages, so it imports only the standard library."""
    for source in read(root, f"src/{PACKAGE}"):
        if source.module not in STANDARD_LIBRARY_ONLY:
            continue
        for line, name in imports(source):
            if name.split(".")[0] not in sys.stdlib_module_names:
                yield Breach(source.path, line, f"{source.module} must import only the standard library, not {name}")


def purity(root: Path) -> Iterator[Breach]:
    """core does no I/O, uses no clock or random numbers, and logs nothing."""
    for source in read(root, f"src/{PACKAGE}/core"):
        for line, name in imports(source):
            if name.split(".")[0] in IMPURE_MODULES:
                yield Breach(source.path, line, f"core is pure and must not import {name.split('.')[0]}")
        for node in source.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_CALLS:
                yield Breach(source.path, node.lineno, f"core is pure and must not call {ast.unparse(node.func)}")


def sizes(root: Path) -> Iterator[Breach]:
    """Files and functions have a limited length."""
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
    """A file is named after its subject, never `utils` or the like."""
    for folder in ("src", "tests", "benchmarks"):
        for path in sorted((root / folder).rglob("*.py")):
            for part in path.relative_to(root).with_suffix("").parts:
                if part.removeprefix("test_").strip("_") in FORBIDDEN_NAMES:
                    yield Breach(str(path.relative_to(root)), 1, f"{part} is not a name for a subject")


def docstrings(root: Path) -> Iterator[Breach]:
    """Each module has a docstring, except an empty __init__.py."""
    for folder in ("src", "tests", "benchmarks"):
        for source in read(root, folder):
            if source.text.strip() and not ast.get_docstring(source.tree):
                yield Breach(source.path, 1, "the module has no docstring")


def printing(root: Path) -> Iterator[Breach]:
    """Only the command line and the rehearsal agent print to a terminal."""
    for source in read(root, "src"):
        if within(source.module, PRINTERS):
            continue
        for node in source.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                yield Breach(source.path, node.lineno, "print belongs to surfaces/cli and rehearsal")


def swallowing(root: Path) -> Iterator[Breach]:
    """No handler silently swallows every kind of exception."""
    for folder in ("src", "tests", "benchmarks"):
        for source in read(root, folder):
            for node in source.nodes:
                if isinstance(node, ast.ExceptHandler) and catches_all(node.type) and does_nothing(node.body):
                    yield Breach(source.path, node.lineno, "this swallows every exception")


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
    """A test waits for an event and never sleeps."""
    for source in read(root, "tests"):
        for line, name in imports(source):
            if name == "time.sleep":
                yield Breach(source.path, line, "a test must not sleep")
        for node in source.nodes:
            if isinstance(node, ast.Attribute) and node.attr == "sleep" and ast.unparse(node) == "time.sleep":
                yield Breach(source.path, node.lineno, "a test must not sleep")


def foreign_paths(root: Path) -> Iterator[Breach]:
    """No file contains paths of the machine on which it was written."""
    files = [path for path in root.glob("*") if path.is_file()]
    for folder in TEXT_FOLDERS:
        files += [path for path in (root / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    for path in sorted(files):
        if path.suffix not in TEXT_SUFFIXES or (path.name.startswith(".") and path.suffix == ""):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            found = FOREIGN_PATHS.search(line)
            if found:
                yield Breach(str(path.relative_to(root)), number, f"contains the path {found.group()}")


RULES: tuple[Callable[[Path], Iterator[Breach]], ...] = (
    layers,
    surfaces_apart,
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
