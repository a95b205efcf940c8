"""Which programs can be used as Claude Code: its minimum version, its forks, and copies that can't resume.

Above: the driver; the runtime runs the program. Below: nothing. Help texts are incomplete, so a program's abilities are
derived from its version number. The exception: a program whose help shows the options of Claude Code without `--resume`
is a copy that can't resume, so Perdure never resumes with it.

A fork of Claude Code has its own version numbers, which say nothing about its abilities. Claude Code prints its name
next to its number (`2.1.197 (Claude Code)`). A program that prints another name is a fork, and so is one that prints no
name but shows Claude Code's options.
"""

import re

from perdure.drivers.base import Probe, ProbeVerdict

PRINTS, RESUMES = "--output-format", "--resume"
"""Options of Claude Code: one that every usable copy shows, and one that a copy may lack."""
CLAUDE_CODE = "claude code"


class ClaudeProbe(Probe):
    is_required = True
    # The first version known to support messages, permissions and interrupts over its standard streams.
    oldest = (2, 0, 0)
    help_options = (PRINTS, RESUMES)

    def judge(self, code: int, output: str, help_text: str | None = None) -> ProbeVerdict:
        verdict, shown = super().judge(code, output), help_text or ""
        if verdict.state == "broken":
            return verdict
        name = _name_in(output)
        is_fork = CLAUDE_CODE not in name if name is not None else PRINTS in shown
        if verdict.state == "too_old" and is_fork:
            verdict = ProbeVerdict("ready", verdict.version)
        return verdict._replace(can_resume=PRINTS not in shown or RESUMES in shown)


def _name_in(output: str) -> str | None:
    """The name that a program prints next to its version, in lower case."""
    words = re.findall(r"[^\W\d_]{2,}", re.sub(r"\d+\.\d+\.\d+\S*", " ", output))
    return " ".join(words).lower() or None
