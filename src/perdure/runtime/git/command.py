"""One git command: run without side effects that nobody asked for, within a deadline, with bounded output.

Above: the modules of this folder. Below: the installed git. A repository is data that an agent may have written, and
its configuration can name programs. So no command here runs hooks, filters, merge drivers, a file system monitor, a
pager, an editor or gpg, none writes to an index just to refresh it, and none uses the network. Each command has its own
process group, which is ended as a whole at the deadline. There is no knowledge about single git commands here, except
which of them never look at files and hooks, and which version of git has what Perdure uses.
"""

import contextlib
import errno
import functools
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Mapping
from typing import IO, NamedTuple

COMMAND_TIMEOUT_S = 60.0
"""How long one command may take if its caller sets no deadline."""
EXIT_TIMEOUT_S = 10.0
"""How long a command may take to exit after it has closed its output."""
TERM_GRACE_S = 2.0
"""How long a command that must end has to delete its lock files, before it is killed."""
OUTPUT_BYTES = 256 * 1024 * 1024
"""How much output is read from a command if its caller sets no limit."""
ERROR_BYTES = 64 * 1024
"""How much of the error output is kept."""
PIPE_BYTES = 1024 * 1024
"""How much is read or written at once."""

MINIMUM = (2, 31)
"""The oldest git that can be used: older ones ignore GIT_CONFIG_COUNT, so they would run hooks and filters."""
WORKTREES = (2, 38)
"""The oldest git for worktrees and merges, which need `git merge-tree --write-tree`."""

SETTINGS = {
    # Programs that a repository's configuration could start.
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "log.showSignature": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
    # Work that would happen besides the command.
    "core.untrackedCache": "false",
    # A temporary index would leave its larger part in the repository.
    "core.splitIndex": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    # Output that programs read.
    "core.quotePath": "false",
    "color.ui": "false",
    "advice.detachedHead": "false",
    "advice.addEmbeddedRepo": "false",
    "advice.graftFileDeprecated": "false",
}
"""Configuration that overrides the user's. `-c` in the arguments of a command overrides these."""
ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    # Overrides protocol.NAME.allow of the user, which would override protocol.allow: older versions fetch lazily.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    "GIT_LITERAL_PATHSPECS": "1",
}
INHERITED = {
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_CEILING_DIRECTORIES",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM",
    "GIT_EXEC_PATH",
}
"""The variables of git that the server may pass on. The others describe the repository of whoever started it."""
HARMLESS = {
    "cat-file",
    "commit-tree",
    "config",
    "diff-tree",
    "for-each-ref",
    "ls-files",
    "ls-tree",
    "merge-base",
    "mktree",
    "rev-list",
    "rev-parse",
    "symbolic-ref",
    "var",
    "write-tree",
}
"""Commands that neither convert files nor call hooks. For the others, the configured programs are looked up and
overridden, which takes one more process for each `Git`."""
PROGRAMS = r"^(filter\..*\.(clean|smudge|process|required)|merge\..*\.driver|hook\..*)$"


class GitError(Exception):
    """A git command failed. `message` is a sentence for people; `stderr` is what git wrote; `status` is git's exit
    status, or minus the signal that ended it."""

    def __init__(self, message: str, stderr: str = "", status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.stderr = stderr
        self.status = status


class GitMissing(GitError):
    """There is no git on this machine."""


class GitTooOld(GitError):
    """The installed git lacks something that is needed."""


class HalfDone(GitError):
    """A plan failed after its point of no return. Carry it out again: it continues where it failed, and the locks that
    it holds until then keep other git commands from committing a state in between."""


class GitTimeout(GitError):
    """A command did not finish before its deadline."""


class GitOutputTooLarge(GitError):
    """A command printed more than its caller can use."""


class _Result(NamedTuple):
    status: int
    output: bytes
    truncated: bool
    stderr: str


class Git:
    """Runs git commands in one directory. All of them share the deadline, a value of `time.monotonic()`."""

    def __init__(
        self,
        directory: str,
        *,
        deadline_s: float | None = None,
        env: Mapping[str, str] | None = None,
        own_configuration: bool = False,
    ) -> None:
        """`own_configuration`: `env` makes git read only configuration that Perdure has written."""
        self.directory = directory
        self.deadline_s = deadline_s
        self._env = dict(env or {})
        self._overrides: dict[str, str] | None = {} if own_configuration else None

    def run(
        self,
        *args: str,
        input: bytes | None = None,
        ok: Collection[int] = (0,),
        max_bytes: int = OUTPUT_BYTES,
        env: Mapping[str, str] | None = None,
    ) -> bytes:
        """Run `git ARGS` and return its output. Raises GitError if its exit status is not in `ok`."""
        result = self._whole(args, self._run(args, input, max_bytes, env), max_bytes)
        if result.status not in ok:
            raise failure(args, result.status, result.stderr)
        return result.output

    def returns(
        self,
        *args: str,
        input: bytes | None = None,
        ok: Collection[int] | None = None,
        max_bytes: int = OUTPUT_BYTES,
        env: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Run `git ARGS` and return its exit status and output. Raises GitError if a signal ended it, or if the
        status is not in `ok`."""
        result = self._whole(args, self._run(args, input, max_bytes, env), max_bytes)
        if result.status < 0 or (ok is not None and result.status not in ok):
            raise failure(args, result.status, result.stderr)
        return result.status, result.output

    def warned(self, *args: str, max_bytes: int = OUTPUT_BYTES) -> tuple[bytes, str]:
        """Run `git ARGS` and return its output, and its warnings. Raises GitError if it fails."""
        result = self._whole(args, self._run(args, None, max_bytes, None), max_bytes)
        if result.status:
            raise failure(args, result.status, result.stderr)
        return result.output, result.stderr

    def head(self, *args: str, max_bytes: int, input: bytes | None = None) -> tuple[bytes, bool]:
        """Run `git ARGS` and return at most `max_bytes` of its output, and whether there was more."""
        result = self._run(args, input, max_bytes, None)
        if result.status and not result.truncated:
            raise failure(args, result.status, result.stderr)
        return result.output, result.truncated

    def write(self, file: IO[bytes], *args: str, input: bytes) -> None:
        """Run `git ARGS` and let it write its output to a file."""
        result = self._run(args, input, 0, None, file)
        if result.status:
            raise failure(args, result.status, result.stderr)

    def _whole(self, args: tuple[str, ...], result: _Result, max_bytes: int) -> _Result:
        if result.truncated:
            raise GitOutputTooLarge(f"git {verb(args)} printed more than {max_bytes} bytes.", result.stderr)
        return result

    def _run(
        self,
        args: tuple[str, ...],
        input: bytes | None,
        max_bytes: int,
        env: Mapping[str, str] | None,
        file: IO[bytes] | None = None,
    ) -> _Result:
        deadline = self.deadline_s if self.deadline_s is not None else time.monotonic() + COMMAND_TIMEOUT_S
        if time.monotonic() >= deadline:
            raise GitTimeout(f"There was no time left for git {verb(args)}.")
        settings = SETTINGS | ({} if verb(args) in HARMLESS else self._programs())
        environment = self._environment(settings, env or {})
        with _start(args, self.directory, environment, file) as process:
            try:
                return _converse(process, args, input, max_bytes, deadline)
            finally:
                # Also on an interrupt. After a normal exit, the group may contain what git left running.
                _end(process)

    def _programs(self) -> dict[str, str]:
        """Settings that disable each program that the configuration names."""
        if self._overrides is None:
            # Status 1: there are none.
            found = self.run("config", "-z", "--name-only", "--get-regexp", PROGRAMS, ok=(0, 1))
            names = {os.fsdecode(name) for name in found.split(b"\0") if name}
            self._overrides = dict(_disabled(name) for name in names)
        return self._overrides

    def _environment(self, settings: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in INHERITED
        }
        pairs = {"GIT_CONFIG_COUNT": str(len(settings))}
        for number, (key, value) in enumerate(settings.items()):
            pairs[f"GIT_CONFIG_KEY_{number}"] = key
            pairs[f"GIT_CONFIG_VALUE_{number}"] = value
        return inherited | ENVIRONMENT | pairs | self._env | dict(env)


def _disabled(name: str) -> tuple[str, str]:
    """The setting that disables the program which the setting `name` describes."""
    section, _, rest = name.partition(".")
    subsection, _, key = rest.rpartition(".")
    match section:
        case "hook":
            return f"hook.{subsection}.enabled", "false"
        case "merge":
            # An empty command would succeed and drop the other side's changes. This one reports a conflict.
            return name, "exit 1"
    return name, "false" if key == "required" else ""


def _start(
    args: tuple[str, ...], directory: str, environment: dict[str, str], file: IO[bytes] | None
) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            ["git", *args],
            cwd=directory,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if file is None else file,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except FileNotFoundError:
        if not os.path.isdir(directory):
            raise GitError(f"The directory {shown(directory)} does not exist.") from None
        raise GitMissing(
            "git is not installed on the server's machine, or it is not in its PATH. Install git to see and restore "
            "changes of files."
        ) from None
    except OSError as error:
        if error.errno == errno.E2BIG:
            raise GitError(f"There are too many paths for one git {verb(args)}.") from None
        raise GitError(f"git can't be started in {shown(directory)}: {error.strerror}.") from None
    except ValueError:
        raise GitError("A path contains a zero byte.") from None


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a command and what it has started. When SIGTERM ends git, it deletes its lock files, unlike after SIGKILL."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(TERM_GRACE_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _converse(
    process: "subprocess.Popen[bytes]", args: tuple[str, ...], input: bytes | None, max_bytes: int, deadline: float
) -> _Result:
    """Write `input` while reading both outputs, as each of the three pipes can be full. The first one is no pipe if it
    goes to a file."""
    assert process.stdin and process.stderr
    output, errors, waiting = bytearray(), bytearray(), memoryview(input or b"")
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
        if process.stdout is not None:
            selector.register(process.stdout, selectors.EVENT_READ, output)
        selector.register(process.stderr, selectors.EVENT_READ, errors)
        if waiting:
            selector.register(process.stdin, selectors.EVENT_WRITE)
        else:
            process.stdin.close()
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready and time.monotonic() >= deadline:
                raise GitTimeout(f"git {verb(args)} did not finish in time.", _text(errors))
            for key, _ in ready:
                if key.fileobj is process.stdin:
                    try:
                        waiting = waiting[os.write(key.fd, waiting[:PIPE_BYTES]) :]
                    except BrokenPipeError:
                        waiting = waiting[:0]
                    if not waiting:
                        selector.unregister(process.stdin)
                        process.stdin.close()
                elif data := os.read(key.fd, PIPE_BYTES):
                    key.data.extend(data)
                    del errors[ERROR_BYTES:]
                    if len(output) > max_bytes:
                        return _Result(-signal.SIGKILL, bytes(output[:max_bytes]), True, _text(errors))
                else:
                    selector.unregister(key.fileobj)
    try:
        status = process.wait(max(0.0, min(EXIT_TIMEOUT_S, deadline - time.monotonic())))
    except subprocess.TimeoutExpired:
        raise GitTimeout(f"git {verb(args)} did not finish in time.", _text(errors)) from None
    return _Result(status, bytes(output), False, _text(errors))


def require(version: tuple[int, int], what: str) -> None:
    """Raise GitTooOld if the installed git is older. `what` needs the version."""
    program = shutil.which("git")
    found = _version(program) if program is not None else None
    if found is not None and found < version:
        needed, has = (".".join(str(part) for part in each) for each in (version, found))
        raise GitTooOld(f"{what} git {needed} or newer, and the server has git {has}. Install a newer one.")


@functools.lru_cache(maxsize=8)
def _version(program: str) -> tuple[int, int] | None:
    """The version of a git program; None if it doesn't say. Read once, as it rarely changes while a server runs."""
    said = Git("/", own_configuration=True).run("version").decode("utf-8", "replace")
    numbers = re.search(r"(\d+)\.(\d+)", said)
    return (int(numbers[1]), int(numbers[2])) if numbers else None


def _text(errors: bytearray) -> str:
    return errors.decode("utf-8", "replace").strip()


def verb(args: Collection[str]) -> str:
    """The command's name: the first argument that is neither an option nor the value of one."""
    rest = iter(args)
    for argument in rest:
        if argument == "-c":
            next(rest, None)
        elif not argument.startswith("-"):
            return argument
    return "--version"


def shown(path: str) -> str:
    """A path as text: bytes that are no UTF-8 and control characters are escaped."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def failure(args: Collection[str], status: int, stderr: str) -> GitError:
    """The error of a failed command, with a sentence that says what to do if the cause is known."""
    for sign, sentence in CAUSES:
        if sign in stderr:
            return GitError(sentence, stderr, status)
    if status < 0:
        return GitError(f"git {verb(args)} was ended by signal {-status}.", stderr, status)
    lines = [line for line in stderr.split("\n") if line.startswith(("fatal: ", "error: "))] or stderr.split("\n")
    said = lines[-1].removeprefix("fatal: ").removeprefix("error: ").strip().rstrip(".")
    return GitError(f"git {verb(args)} failed: {said or f'exit status {status}'}.", stderr, status)


CAUSES = (
    (
        "dubious ownership",
        "The repository belongs to another user. Add it to safe.directory of the server's user if you trust it.",
    ),
    ("No space left on device", "The disk is full."),
    ("Disk quota exceeded", "The disk quota is used up."),
    ("insufficient permission", "The server's user may not write to the repository's .git directory."),
    ("Read-only file system", "The repository is on a read-only file system."),
    (".lock': File exists", "Another git command is running in the repository, or left a lock file. Try again."),
    ("index file corrupt", "The repository's index is damaged. `git status` shows details."),
    ("index file smaller than expected", "The repository's index is damaged. `git status` shows details."),
    ("bad signature 0x", "The repository's index is damaged. `git status` shows details."),
    (
        "from promisor remote",
        "Perdure needs contents that this partial clone lacks. To fetch all: git fetch --refetch --no-filter",
    ),
    ("bad config", "The repository's configuration is damaged. `git config --list` shows where."),
)
