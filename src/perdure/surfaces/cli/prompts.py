"""`perdure answer`, and how words become an answer to a prompt.

Above: the command, and chat, which uses the same words. Below: the wire's prompts. A word never grants more than it
says: `allow` is once, also where a prompt offers only `always`.
"""

from typing import Any

import click

from perdure.surfaces.cli import wording
from perdure.surfaces.cli.output import print_json, safe
from perdure.surfaces.cli.reach import Failure, Reach, find_session, reaching

Json = dict[str, Any]

KINDS = {"allow": ("allow_once",), "always": ("allow_always",), "deny": ("reject_once", "reject_always")}


class NotUnderstood(Exception):
    """The words do not answer this prompt; the message says what would."""


def option_for(prompt: Json, word: str) -> Json:
    """The answer for `allow`, `always` or `deny`."""
    for kind in KINDS[word]:
        found = [option["option_id"] for option in prompt["options"] if option["kind"] == kind]
        if len(found) > 1:
            raise NotUnderstood("There are several such options. Choose one of: " + offered(prompt))
        if found:
            return {"option_id": found[0]}
    if word == "deny":
        return {"cancel": True}
    raise NotUnderstood("This is not offered. Choose one of: " + offered(prompt))


def permission_for(prompt: Json, text: str) -> Json:
    """The answer for a line of a chat: y, a, n or an option's number; after a no, the reason."""
    word, _, reason = text.partition(" ")
    options = prompt["options"]
    if word.isascii() and word.isdigit() and 1 <= int(word) <= len(options):
        answer = {"option_id": options[int(word) - 1]["option_id"]}
    else:
        known = {"y": "allow", "yes": "allow", "a": "always", "always": "always", "n": "deny", "no": "deny"}
        if word.lower() not in known or (reason and known[word.lower()] != "deny"):
            raise NotUnderstood(how_to_answer(prompt))
        answer = option_for(prompt, known[word.lower()])
    return answer | ({"reason": reason.strip()} if reason.strip() else {})


def how_to_answer(prompt: Json) -> str:
    if prompt["kind"] == "question":
        return "Enter a number, or your own words. /skip gives no answer."
    kinds = [option["kind"] for option in prompt["options"]]
    if len(set(kinds)) == len(kinds):
        always = ", a always" if "allow_always" in kinds else ""
        return f"y allows{always}, n denies (a reason may follow)."
    numbered = ", ".join(f"{number} {wording.short(one['name'])}" for number, one in enumerate(prompt["options"], 1))
    return f"Enter a number: {numbered}."


def offered(prompt: Json) -> str:
    return ", ".join(f"{option['option_id']} ({safe(option['name'])})" for option in prompt["options"])


def choose(question: Json, text: str) -> str | list[str]:
    """The answer to one question: numbers or labels where there are choices, else the text itself."""
    labels = [option["label"] for option in question.get("options", [])]
    parts = [part.strip() for part in text.split(",")] if question.get("multiple") else [text.strip()]
    chosen = []
    for part in parts:
        if part.isascii() and part.isdigit() and 1 <= int(part) <= len(labels):
            chosen.append(labels[int(part) - 1])
        else:
            chosen.append(next((label for label in labels if label.lower() == part.lower()), part))
    return chosen if question.get("multiple") else chosen[0]


@click.command()
@click.argument("session")
@click.argument("prompt_id", required=False)
@click.option("--allow", "word", flag_value="allow", help="Allow it this once.")
@click.option("--always", "word", flag_value="always", help="Allow it from now on.")
@click.option("--deny", "word", flag_value="deny", help="Deny it.")
@click.option("--option", metavar="ID", help="Choose this option.")
@click.option("--text", help="Answer a question with this text.")
@click.option(
    "--choose", "choices", multiple=True, metavar="LABEL", help="Answer a question with a choice; repeatable."
)
@click.option("--cancel", is_flag=True, help="Give no answer.")
@click.option("--reason", help="Why, for the agent to read.")
@reaching
def answer_command(
    reach: Reach,
    session: str,
    prompt_id: str | None,
    word: str | None,
    option: str | None,
    text: str | None,
    choices: tuple[str, ...],
    cancel: bool,
    reason: str | None,
) -> None:
    """Answer a permission request or a question.

    The PROMPT_ID may be left out where only one is open. Without an answer the open prompts are shown.
    """
    with reach.client() as client:
        session_id = find_session(client, session)
        prompts = client.prompts(session_id)
        ways = [way for way in (word, option, text, choices, cancel) if way]
        if not ways:
            _show(prompts, session_id, reach.as_json)
            return
        if len(ways) > 1:
            raise click.UsageError("Give one answer, not several.")
        prompt = _pick(prompts, prompt_id)
        try:
            answer = _answer(prompt, word, option, text, choices)
        except NotUnderstood as error:
            raise Failure(str(error), 2) from error
        outcome = client.answer(session_id, prompt["prompt_id"], answer | ({"reason": reason} if reason else {}))
    if reach.as_json:
        print_json(outcome)
    else:
        click.echo(f"{str(outcome.get('outcome', 'answered')).capitalize()}: {wording.short(prompt['title'])}")


def _answer(prompt: Json, word: str | None, option: str | None, text: str | None, choices: tuple[str, ...]) -> Json:
    if option:
        return {"option_id": option}
    if word:
        if prompt["kind"] == "question":
            raise NotUnderstood("This is a question. Answer it with --choose or --text.")
        return option_for(prompt, word)
    given = [text] if text else list(choices)
    if not given:
        return {"cancel": True}
    questions = prompt["questions"]
    if not questions:
        raise NotUnderstood("This is a permission request. Answer it with --allow, --always or --deny.")
    if len(questions) == 1:
        many = questions[0].get("multiple") and not text
        return {"answers": {questions[0]["question_id"]: given if many else choose(questions[0], ", ".join(given))}}
    if len(given) != len(questions):
        raise NotUnderstood(f"There are {len(questions)} questions. Give --choose once for each, in order.")
    return {
        "answers": {entry["question_id"]: choose(entry, part) for entry, part in zip(questions, given, strict=True)}
    }


def _pick(prompts: list[Json], prompt_id: str | None) -> Json:
    if prompt_id is not None:
        found = [prompt for prompt in prompts if prompt["prompt_id"] == prompt_id]
        if not found:
            raise Failure(f"No prompt {prompt_id!r} is open. (prompt_resolved)")
        return found[0]
    if not prompts:
        raise Failure("No prompt is open. (prompt_resolved)")
    if len(prompts) > 1:
        names = "".join(f"\n  {prompt['prompt_id']}  {wording.short(prompt['title'])}" for prompt in prompts)
        raise Failure(f"{len(prompts)} prompts are open. Give the id of one:{names}", 2)
    return prompts[0]


def _show(prompts: list[Json], session_id: str, as_json: bool) -> None:
    if as_json:
        print_json({"prompts": prompts})
        return
    if not prompts:
        click.echo("No prompt is open.", err=True)
    for prompt in prompts:
        click.echo(f"{prompt['prompt_id']}\n{wording.prompt(prompt)}")
        if prompt["options"]:
            click.echo(f"  options: {offered(prompt)}")
        how = "--allow, --always or --deny" if prompt["kind"] == "permission" else "--choose LABEL or --text TEXT"
        click.echo(f"  answer: perdure answer {session_id} {prompt['prompt_id']} {how}")
