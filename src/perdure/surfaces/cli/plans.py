"""`perdure plan`: what the next turn would do, and why, in words.

Above: people and scripts; chat says the same paragraph. Below: the wire's plan. The words are pure.
"""

from typing import Any

import click

from perdure.core.digest import in_words, shortened_words
from perdure.surfaces.cli.output import one_line, print_json, print_paragraph, print_table, size
from perdure.surfaces.cli.reach import Reach, find_session, reaching

Json = dict[str, Any]

REASONS = {
    "fresh_requested": "you ask for it",
    "resume_off": "resuming is turned off",
    "no_native_session": "it has no session of its own here yet",
    "native_session_poisoned": "its own session can't be used any more",
    "no_prior_answer": "it has not answered here yet",
    "last_turn_not_confirmed": "its last turn did not end by its own word, so its own session may lack a part",
    "history_changed": "what its own session holds was changed since",
    "scope_changed": "which turns it is told was set otherwise since",
    "workdir_changed": "the working directory is another one than before",
    "runtime_changed": "the agent's program is another one than before",
    "native_session_shared": "it gave the id of its own session out twice, so nobody knows what is in it",
    "agent_cannot_resume": "its process is gone, and it can't open an earlier session",
}
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


def plan_words(plan: Json) -> str:
    """One paragraph for a person."""
    agent, turns = one_line(plan["agent"], 60), len(plan["turns_told"])
    if plan["reason"] == "first_turn":
        return f"{agent} begins with the message alone: there is no earlier turn."
    if plan["context"] == "fresh":
        because = REASONS.get(plan["reason"], plan["reason"])
        said = [f"{agent} begins anew and is told the conversation, because {because}.", _told_anew(plan, turns)]
    elif plan["context"] == "live":
        said = [f"{agent} goes on in its running process, which holds the conversation.", _told_besides(plan, turns)]
    else:
        native = one_line(plan["native_session_id"] or "", 60)
        said = [f"{agent} opens its own session {native} again.", _told_besides(plan, turns)]
    if plan["scope"] == "agent":
        said.append("Only what followed the last answer of another agent counts, as the scope is `agent`.")
    return " ".join(part for part in said if part)


def _told_anew(plan: Json, turns: int) -> str:
    if not turns:
        return "There is no turn to tell."
    shortened = shortened_words(plan["digested"], plan["left_out"])
    return f"That is {_turns(turns)}{_weight(plan)}{f'; {shortened}' if shortened else ''}."


def _told_besides(plan: Json, turns: int) -> str:
    if not turns:
        return "It is sent the message alone."
    missed = in_words(plan["turns_told"]).rpartition(" ")[0]
    return f"It missed {missed}, and is told of that with the message{_weight(plan)}."


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

    An agent goes on in its own session only if every guard holds; the first that does not is the reason to tell it the
    conversation anew.
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
