"""The table of what was measured, and the page docs/continuity.md around it.

Above: `./run continuity`. Below: verdicts, and the agents' remarks. Functions from values to text.
"""

from typing import NamedTuple

from tests.continuity.agents import AGENTS
from tests.continuity.scenarios import SCENARIOS, Verdict

HEAD = """# Continuity

<!-- Written by `./run continuity`. Change tests/continuity, then run it again. -->

What a conversation is worth after something died in the middle of it, measured with real agents. Each agent runs as it
is published, at the version below, under a real server; only the model behind it is scripted. After each event one more
message is sent, `recall`, and the model answers with every user message that the agent's request held. A cell holds if
those are all the messages of the session, each exactly once and in order, and if no process of the agent was left
behind, neither by a kill nor by the end of the session. What an agent adds to a message on its own account (the date,
its reminders) is not counted.

"""

EVENTS = """
| event | what is done |
| --- | --- |
| three turns | nothing goes wrong |
| agent killed between turns | `kill -9` of the process that the server started; its children are not left either |
| agent killed in a turn | the same while words are streaming; the turn fails, and what it said is kept |
| server restarted between turns | stopped as by a service manager, and started again |
| server killed in a turn | `kill -9` while words are streaming; the new server goes on, and no word is missing |
| suspended and woken | the process is ended because it is idle, twice, and started again for the next message |
| two sessions at once | two processes of one agent, with messages at the same time; neither knows the other's |
| two sessions in one process | the same with `shared = true` |
| cancelled, then continued | the turn is aborted while words are streaming |

A cell says how the checked turn got its context: `live`, the process still held the conversation; `resumed`, the agent
opened its own session again; `fresh`, it was told the whole transcript in a new session; `resumed, then fresh`, it
refused its own session, and the same turn went on with the transcript. The number gives the reason that the turn's
`turn_start` (or `context_fallback`) event has.

"""

LIMITS = """
## What is not promised

- An agent that is killed in a turn keeps the message of that turn in its own session, and of the answer mostly nothing.
  So that session is not used again: the next turn is `fresh`, and is told what was said up to the kill. The transcript
  has every message and every answer word for word, and of each tool its result and its edits, within bounds.
- A turn that is cancelled before the agent has shown anything of it but warnings may be missing in the agent's own
  session (codex, copilot, qwen), or be done together with the next message (hermes). So the next turn is `fresh` then,
  with any agent.
- An abort ends the command that the turn runs. Codex itself leaves a command running that it no longer waits for; on
  Linux Perdure then ends what the agent has started since the first of the turn's open commands, about two seconds
  after the turn. A command that an earlier turn sent to the background goes on, and so does everything in a process
  that several sessions share.
- What a killed agent had begun outside of the conversation, a half-written file for example, stays as it is.
- The model is scripted: this shows what a model is told, not what it makes of it.
"""


class Row(NamedTuple):
    """One agent: the packages that it was installed from, and what came of each event."""

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
        f"{HEAD}{held} of {len(cells)} cells hold.\n\n{matrix(rows)}\n\n## The events\n{EVENTS}"
        f"## Remarks\n\n{remarks}\n\n## Versions\n\n| agent | installed from |\n| --- | --- |\n{versions}\n{LIMITS}"
    )
