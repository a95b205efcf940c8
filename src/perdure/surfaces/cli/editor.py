"""The user's editor: the one that git opens for a commit.

Above: commits.py, history_commands.py and queue.py. Below: git, if it is installed, and click. Git reads only the
user's settings: those of a repository may be an agent's work.
"""

import shlex
import subprocess

import click

from perdure.surfaces.cli.reach import Failure

GIT_TIMEOUT_S = 10.0


def edited(text: str, extension: str) -> str | None:
    """What the user made of the text; None if they did not save it."""
    editor = found()
    # As for git, it is a command for the shell.
    command = None if editor is None else shlex.join(["sh", "-c", f'{editor} "$@"', editor])
    try:
        return click.edit(text, editor=command, extension=extension)
    except click.ClickException as error:
        raise Failure(error.message if editor is None else f"The editor failed: {editor}") from error


def found() -> str | None:
    """GIT_EDITOR, core.editor, VISUAL or EDITOR, in this order. None without git."""
    command = ["git", "--git-dir=/dev/null", "var", "GIT_EDITOR"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=GIT_TIMEOUT_S)
    except (OSError, UnicodeError, subprocess.TimeoutExpired):
        return None
    return (done.stdout.strip() or None) if done.returncode == 0 else None
