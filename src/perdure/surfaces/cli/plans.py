"""`perdure plan` and `explain`: the context of the next turn; a session's state, its reason and its timers.

Above: people and scripts; the chat and `perdure show` use the same texts. Below: the API's plan and explanation.
"""

from typing import Any

import click

from perdure.core.digest import in_words, shortened_words
from perdure.surfaces.cli.output import duration, print_json, print_paragraph, print_table, size
from perdure.surfaces.cli.reach import Reach, find_session, reaching
from perdure.surfaces.cli.wording import REASONS
from perdure.surfaces.short_text import one_line

Json = dict[str, Any]

GUARDS = {
    "has_history": "there is an earlier turn",
    "not_asked_fresh": "the message does not ask to restart the context",
    "resume_on": "resuming is not turned off",
    "has_binding": "the agent has a native session",
    "not_poisoned": "the native session is usable",
    "prior_answer": "the agent has answered in it",
    "confirmed": "the agent confirmed the end of its last turn",
    "same_epoch": "the history it holds has not changed",
    "same_scope": "history_scope has not changed",
    "same_workdir": "the working directory is the same",
    "same_runtime": "the agent's program is the same",
    "sole_holder": "the agent has not reused the native session's id",
    "agent_can_resume": "the agent supports resuming",
}

CLOCKS = {
    ("turn_timeout", "abort"): "the turn is stopped unless its agent becomes active",
    ("turn_limit", "abort"): "the turn is stopped: it reaches its time limit",
    ("silence", "report"): "a note reports that the agent is silent",
    ("silence", "abort"): "the turn is stopped unless its agent writes something",
    ("idle_timeout", "suspend"): "its idle process is suspended; the next message restarts it",
    ("idle_timeout", "end"): "the session ends because it is idle",
    ("lifetime", "suspend"): "its process reaches its lifetime and is suspended; the next message restarts it",
    ("lifetime", "end"): "the session reaches its lifetime and ends",
    ("usage_limit", "continue"): "the usage limit resets and the session continues",
}


def timer_words(timer: Json) -> str:
    """When a timer fires, and what happens then."""
    what = CLOCKS.get((timer["timer"], timer.get("then", "")), timer["timer"].replace("_", " "))
    return f"in {duration(timer['in_s'] * 1000)} {what}"


@click.command()
@click.argument("session")
@reaching
def explain_command(reach: Reach, session: str) -> None:
    """Explain a session's state, and what happens next if you do nothing.

    SESSION is an id, a unique prefix of one, or `last`.
    """
    with reach.client() as client:
        why = client.explain(find_session(client, session))
    if reach.as_json:
        print_json(why)
        return
    print_paragraph(why["why"])
    for timer in why.get("timers", []):
        click.echo(f"  {timer_words(timer)} ({timer['timer']}, {timer['at']})")


def plan_words(plan: Json) -> str:
    """The plan as one paragraph."""
    agent, turns = one_line(plan["agent"], 60), len(plan["turns_told"])
    if plan["reason"] == "first_turn":
        return f"{agent} gets only the message: there is no earlier turn."
    if plan["context"] == "fresh":
        because = REASONS.get(plan["reason"], plan["reason"])
        said = [f"The conversation is replayed to {agent}, because {because}.", _replayed(plan, turns)]
    elif plan["context"] == "live":
        said = [f"{agent} continues in its running process, which holds the conversation.", _told_besides(plan, turns)]
    else:
        native = one_line(plan["native_session_id"] or "", 60)
        said = [f"{agent} resumes its native session {native}.", _told_besides(plan, turns)]
    if plan["scope"] == "agent":
        said.append("history_scope is `agent`, so only turns after another agent's last answer count.")
    return " ".join(part for part in said if part)


def _replayed(plan: Json, turns: int) -> str:
    if not turns:
        return "There are no turns to replay."
    shortened = shortened_words(plan["digested"], plan["left_out"])
    return f"The replay has {_turns(turns)}{_weight(plan)}{f'; {shortened}' if shortened else ''}."


def _told_besides(plan: Json, turns: int) -> str:
    if not turns:
        return "It gets only the message."
    missed = in_words(plan["turns_told"]).rpartition(" ")[0]
    return f"It also gets {missed}, which it missed{_weight(plan)}."


def _turns(count: int) -> str:
    return "1 turn" if count == 1 else f"{count} turns"


def _weight(plan: Json) -> str:
    return f" (about {plan['tokens']:,} tokens, {size(plan['bytes'])})"


@click.command()
@click.argument("session")
@click.option("--agent", help="Plan for a message to this agent.")
@click.option("--fresh", "--fresh-session", "fresh", is_flag=True, help="Plan for a message sent with --fresh.")
@reaching
def plan_command(reach: Reach, session: str, agent: str | None, fresh: bool) -> None:
    """Show what context the next turn would get, and why. Changes nothing.

    SESSION is an id, a unique prefix of one, or `last`. An agent resumes its native session only if all guards hold.
    Otherwise the conversation is replayed; the first guard that fails is the reason.
    """
    with reach.client() as client:
        plan = client.plan(find_session(client, session), agent=agent, fresh=fresh)
    if reach.as_json:
        print_json(plan)
        return
    print_paragraph(plan_words(plan))
    click.echo("")
    rows = [[name, "yes" if held else "no", GUARDS.get(name, "")] for name, held in plan["guards"].items()]
    print_table(["guard", "holds", "holds if"], rows, "")
