"""An agent's section in perdure.toml: built from the catalogue or a command, and appended to the file.

Above: `perdure agents add` and `perdure agents test`. Below: the file. The new text is parsed before it is written: if
it is not valid, or would change any other setting, the file stays unchanged.
"""

import json
import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from perdure.config import Config, ConfigError, load
from perdure.runtime.agents.catalogue import Entry
from perdure.surfaces.cli.reach import Failure

PRIVATE = 0o600


def of_entry(entry: Entry) -> str:
    """The section of a catalogue entry: with the installed program, or else with the command that downloads it."""
    here = bool(entry.installed) and shutil.which(entry.installed[0]) is not None
    about = [f"{entry.title}, {entry.homepage}", f"Log in first: {entry.login}.", entry.notes]
    lines = [f"# {line}" for line in about if line]
    lines += _head(entry.name, entry.driver, entry.installed if here else entry.command)
    if entry.fallbacks:
        lines.append(f"fallbacks = [{', '.join(_list(fallback) for fallback in entry.fallbacks)}]")
    if entry.env:
        pairs = ", ".join(f"{key} = {_string(value)}" for key, value in entry.env.items())
        lines.append(f"env = {{ {pairs} }}")
    if entry.mode is not None:
        lines.append(f"mode = {_string(entry.mode)}  # asks before it acts")
    return "\n".join(lines) + "\n"


def of_command(name: str, command: Sequence[str]) -> str:
    return "\n".join(_head(name, "acp", command)) + "\n"


def _head(name: str, driver: str, command: Sequence[str]) -> list[str]:
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _string(name)
    return [f"[agents.{key}]", f"driver = {_string(driver)}", f"command = {_list(command)}"]


def _list(words: Sequence[str]) -> str:
    return f"[{', '.join(_string(word) for word in words)}]"


def _string(text: str) -> str:
    """A TOML basic string; it uses the same escapes as JSON."""
    return json.dumps(text, ensure_ascii=False)


def append(path: Path, name: str, section: str) -> None:
    """Append the section to the file, which may not exist yet."""
    from perdure.runtime.data.settings_check import check_agents

    try:
        before = load(path)
        check_agents(before, path.parent)
        text = path.read_text("utf-8") if path.exists() else ""
    except (ConfigError, OSError) as error:
        raise Failure(f"Nothing changed. {error}") from error
    if name in before.agents:
        raise Failure(f"{path} already has an agent {name!r}. Change it there, or remove it first.")
    apart = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    whole = text + apart + section
    try:
        after = msgspec.convert(tomllib.loads(whole), Config)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise Failure(
            f"Can't append to {path} without breaking it ({error}). Add this section yourself:\n{section}"
        ) from error
    kept = {key: agent for key, agent in after.agents.items() if key != name}
    if name not in after.agents or msgspec.structs.replace(after, agents=kept) != before:
        raise Failure(f"Can't append to {path} without changing other settings. Add this section yourself:\n{section}")
    try:
        write_whole(path, whole)
    except OSError as error:
        raise Failure(f"Can't write {path}: {error.strerror}. Nothing changed.") from error
    except UnicodeEncodeError as error:
        raise Failure("The command is not valid UTF-8, which TOML requires. Nothing changed.") from error


def write_whole(path: Path, text: str) -> None:
    """Write atomically, and keep the old file's mode. A new file is private, because it may come to hold keys."""
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = target.stat().st_mode & 0o777 if target.exists() else PRIVATE
    descriptor, made = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.chmod(made, mode)
        os.replace(made, target)
    except BaseException:
        os.unlink(made)
        raise
