"""`perdure plan` and `explain`: what the next turn would do, why a session is in its state, and what will happen to it.

Above: people and scripts; chat and `perdure show` use the same words. Below: the wire's plan and explanation. The words
are pure.
"""

from typing import Any

import click

from perdure.core.digest import in_words, shortened_words
from perdure.surfaces.cli.output import duration, one_line, print_json, print_paragraph, print_table, size
from perdure.surfaces.cli.reach import Reach, find_session, reaching
from perdure.surfaces.cli.wording import REASONS

Json = dict[str, Any]

GUARDS = {
    "has_history": "there is an earlier turn",
    "not_asked_fresh": "a fresh start was not asked for",
    "resume_on": "resuming is not turned off",
    "has_binding": "the agent has a session of its own",
    "not_poisoned": "that session can be used",
    "prior_answer": "the agent has answered in it",
    "confirmed": "its last turn ended by the agent's own word",
    "same_epoch": "what it holds was not changed since",
    "same_scope": "it is told the same turns as before",
    "same_workdir": "the working directory is the same",
    "same_runtime": "the agent's program is the same",
    "sole_holder": "the agent gave its id out only once",
    "agent_can_resume": "the agent can open it again",
}

CLOCKS = {
    ("turn_timeout", "abort"): "the turn is stopped if its agent shows no sign of life until then",
    ("turn_limit", "abort"): "the turn is stopped: it reaches its time limit",
    ("silence", "report"): "a note says that the agent is silent",
    ("silence", "abort"): "the turn is stopped: its agent is silent",
    ("idle_timeout", "suspend"): "its idle process is suspended; the next message starts it again",
    ("idle_timeout", "end"): "the session ends: nothing happens in it",
    ("lifetime", "suspend"): "its process is suspended: it reaches its lifetime; the next message starts it again",
    ("lifetime", "end"): "the session ends: it reaches its lifetime",
    ("usage_limit", "continue"): "the session continues: the usage limit resets",
}


def timer_words(timer: Json) -> str:
    """When a clock fires, and what happens then."""
    what = CLOCKS.get((timer["timer"], timer.get("then", "")), timer["timer"].replace("_", " "))
    return f"in {duration(timer['in_s'] * 1000)} {what}"


@click.command()
@click.argument("session")
@reaching
def explain_command(reach: Reach, session: str) -> None:
    """Say why a session is in its state, and what will happen to it if nobody does anything."""
    with reach.client() as client:
        why = client.explain(find_session(client, session))
    if reach.as_json:
        print_json(why)
        return
    print_paragraph(why["why"])
    for timer in why.get("timers", []):
        click.echo(f"  {timer_words(timer)} ({timer['timer']}, {timer['at']})")


def plan_words(plan: Json) -> str:
    """One paragraph for a person."""
    agent, turns = one_line(plan["agent"], 60), len(plan["turns_told"])
    if plan["reason"] == "first_turn":
        return f"{agent} begins with the message alone: there is no earlier turn."
    if plan["context"] == "fresh":
        because = REASONS.get(plan["reason"], plan["reason"])
        said = [f"The conversation is replayed to {agent}, because {because}.", _replayed(plan, turns)]
    elif plan["context"] == "live":
        said = [f"{agent} goes on in its running process, which holds the conversation.", _told_besides(plan, turns)]
    else:
        native = one_line(plan["native_session_id"] or "", 60)
        said = [f"{agent} opens its own session {native} again.", _told_besides(plan, turns)]
    if plan["scope"] == "agent":
        said.append("Only what followed the last answer of another agent counts, as the scope is `agent`.")
    return " ".join(part for part in said if part)


def _replayed(plan: Json, turns: int) -> str:
    if not turns:
        return "There is no turn to replay."
    shortened = shortened_words(plan["digested"], plan["left_out"])
    return f"That is {_turns(turns)}{_weight(plan)}{f'; {shortened}' if shortened else ''}."


def _told_besides(plan: Json, turns: int) -> str:
    if not turns:
        return "It is sent the message alone."
    missed = in_words(plan["turns_told"]).rpartition(" ")[0]
    return f"It missed {missed}, and gets that with the message{_weight(plan)}."


def _turns(count: int) -> str:
    return "1 turn" if count == 1 else f"{count} turns"


def _weight(plan: Json) -> str:
    return f" (about {plan['tokens']:,} tokens, {size(plan['bytes'])})"


@click.command()
@click.argument("session")
@click.option("--agent", help="As if this agent were given the message.")
@click.option("--fresh", "--fresh-session", "fresh", is_flag=True, help="As if it were sent with --fresh.")
@reaching
def plan_command(reach: Reach, session: str, agent: str | None, fresh: bool) -> None:
    """Say what the next turn would do, and why. Nothing is done.

    An agent goes on in its own session only if every guard holds; the first that does not is the reason to replay
    the conversation to it.
    """
    with reach.client() as client:
        plan = client.plan(find_session(client, session), agent=agent, fresh=fresh)
    if reach.as_json:
        print_json(plan)
        return
    print_paragraph(plan_words(plan))
    click.echo("")
    rows = [[name, "yes" if held else "no", GUARDS.get(name, "")] for name, held in plan["guards"].items()]
    print_table(["guard", "holds", "what it asks for"], rows, "")
