"""The table of results, and the page docs/continuity.md around it.

Above: `./run continuity`. Below: verdicts, and the remarks about agents. Functions from values to text.
"""

from typing import NamedTuple

from tests.continuity.agents import AGENTS
from tests.continuity.scenarios import SCENARIOS, Verdict

HEAD = """# Continuity

<!-- Written by `./run continuity`. Change tests/continuity, then run it again. -->

What survives when a process dies in the middle of a conversation, measured with real agents. Each agent runs as
published, at the version below, under a real server; only its model is scripted. After each event the test sends one
more message, `recall`, and the model answers with every user message in the agent's request. A cell passes if these are
all messages of the session, each exactly once and in order, and if no agent process is left behind after a kill or at
the end of the session. Text that the agent itself adds to a message (the date, its reminders) doesn't count.

"""

EVENTS = """
| event | what is done |
| --- | --- |
| three turns | no failure |
| agent killed between turns | `kill -9` of the process that the server started; its child processes must end too |
| agent killed in a turn | the same while text is streaming; the turn fails, and its output is saved |
| server restarted between turns | stopped as by a service manager, and started again |
| server killed in a turn | `kill -9` while text is streaming; the new server continues, and no text is missing |
| suspended and woken | twice, the idle process is ended and started again for the next message |
| two sessions at once | two processes of one agent, with messages at the same time; neither sees the other's |
| two sessions in one process | the same with `shared = true` |
| cancelled, then continued | the turn is aborted while text is streaming |

A cell shows how the checked turn got its context:

- `live`: the process still held the conversation.
- `resumed`: the agent reopened its native session.
- `fresh`: the agent received the whole transcript in a new session.
- `resumed, then fresh`: the agent refused its native session, and the same turn continued with the transcript.

The number refers to the reason in the turn's `turn_start` (or `context_fallback`) event.

"""

LIMITS = """
## Limits

- An agent killed during a turn keeps that turn's message in its native session, but usually nothing of the answer. So
  Perdure doesn't use that session again: the next turn is `fresh` and receives the output up to the kill. The
  transcript contains every message and every answer verbatim, and each tool's result and edits within bounds.
- If a turn is cancelled before the agent has shown anything but warnings, its message may be missing from the agent's
  native session (codex, copilot, qwen), or be processed together with the next message (hermes). So after such a turn
  the next one is `fresh`, with any agent.
- An abort ends the command that the turn is running. Codex leaves a command running once it no longer waits for it. On
  Linux, Perdure then ends every process that the agent has started since the first of the turn's open commands, about
  two seconds after the turn. It doesn't end commands that an earlier turn sent to the background, nor anything in a
  process that several sessions share.
- Side effects of a killed agent outside the conversation, such as a half-written file, remain.
- The model is scripted: this shows what a model receives, not what it does with it.
"""


class Row(NamedTuple):
    """One agent: the packages it was installed from, and the result of each event."""

    packages: list[str]
    verdicts: dict[str, Verdict]


def matrix(rows: dict[str, Row]) -> str:
    """Agents by events, in Markdown, with the reasons below."""
    events = [event for event in SCENARIOS if any(event in row.verdicts for row in rows.values())]
    reasons = _reasons(rows)
    lines = ["| agent | " + " | ".join(events) + " |", "| --- |" + " --- |" * len(events)]
    for name, row in rows.items():
        cells = [_cell(row.verdicts.get(event), reasons) for event in events]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", *(f"{number}. {reason}" for number, reason in enumerate(reasons, 1))]
    broken = [
        f"- {name}, {event}: {verdict.detail}"
        for name, row in rows.items()
        for event, verdict in row.verdicts.items()
        if not verdict.held
    ]
    return "\n".join([*lines, *(["", "Broken:", "", *broken] if broken else [])])


def _reasons(rows: dict[str, Row]) -> list[str]:
    found = [verdict.reason for row in rows.values() for verdict in row.verdicts.values() if verdict.reason]
    return sorted(set(found), key=lambda reason: -found.count(reason))


def _cell(verdict: Verdict | None, reasons: list[str]) -> str:
    if verdict is None:
        return "-"
    plan = f"{verdict.plan} ({reasons.index(verdict.reason) + 1})" if verdict.reason else ""
    return plan if verdict.held else f"**broken** {plan}".strip()


def page(rows: dict[str, Row]) -> str:
    cells = [verdict for row in rows.values() for verdict in row.verdicts.values()]
    held = sum(verdict.held for verdict in cells)
    versions = "\n".join(
        f"| {name} | {', '.join(f'`{package}`' for package in rows[name].packages)} |" for name in rows
    )
    remarks = "\n".join(f"- **{name}**: {AGENTS[name].remark}" for name in rows if AGENTS[name].remark)
    return (
        f"{HEAD}{held} of {len(cells)} cells pass.\n\n{matrix(rows)}\n\n## The events\n{EVENTS}"
        f"## Remarks\n\n{remarks}\n\n## Versions\n\n| agent | installed from |\n| --- | --- |\n{versions}\n{LIMITS}"
    )
