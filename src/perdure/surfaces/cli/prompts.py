"""`perdure answer`, and how words such as `y` become an answer to a prompt.

Above: the command, and the chat, which accepts the same words. Below: the API's prompts, tool_rows.py. A word never
grants more than it says: `y` means once, even if a prompt offers only `always`. If a word is ambiguous, the user gets
an explanation; nothing is guessed.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from typing import Any

import click

from perdure.surfaces.cli import tool_rows, wording
from perdure.surfaces.cli.output import print_json
from perdure.surfaces.cli.reach import Failure, Reach, find_session, reaching
from perdure.surfaces.cli.rows import Row, fold_end, lay_out, visible
from perdure.surfaces.cli.terms import as_typed, to_copy
from perdure.surfaces.client import Client
from perdure.surfaces.short_text import one_line, safe

Json = dict[str, Any]

KINDS = {"allow": ("allow_once",), "always": ("allow_always",), "deny": ("reject_once", "reject_always")}
LETTERS = {"y": "allow", "a": "always", "n": "deny"}
_WORDS = {**LETTERS, "yes": "allow", "always": "always", "no": "deny"}
# Among several options of a kind, the ids that agents use for the plain one.
_PLAIN_IDS = {
    "allow_once": ("allow_once", "allow-once", "proceed_once", "once", "allow", "yes"),
    "reject_once": ("reject_once", "reject-once", "reject", "deny", "cancel", "no"),
}
# Screen lines reserved for a prompt's choices and the answer.
RESERVED_LINES = 8
MIN_LINES = 6


class NotUnderstood(Exception):
    """The input does not answer this prompt; the message lists valid answers."""


def option_for(prompt: Json, word: str) -> Json:
    """The answer for `allow`, `always` or `deny`."""
    found = _meant(prompt, word)
    if len(found) > 1:
        raise NotUnderstood("Several options match. Choose one with --option: " + offered(prompt))
    if found:
        return {"option_id": found[0]["option_id"]}
    if word == "deny":
        return {"cancel": True}
    raise NotUnderstood("The agent does not offer this. Choose one with --option: " + offered(prompt))


def _meant(prompt: Json, word: str) -> list[Json]:
    """The options that a word matches."""
    for kind in KINDS[word]:
        found = [option for option in prompt["options"] if option["kind"] == kind]
        plain = [option for option in found if option["option_id"] in _PLAIN_IDS.get(kind, ())]
        if found:
            return plain if len(plain) == 1 else found
    return []


def _letters(prompt: Json) -> dict[str, str]:
    """Maps the id of each option that has a letter to the letter."""
    found: dict[str, str] = {}
    for letter, word in LETTERS.items():
        meant = _meant(prompt, word)
        if len(meant) == 1:
            found[meant[0]["option_id"]] = letter
    return found


def mark(prompt: Json) -> str:
    """The input prompt for a permission request: the letters that work, such as `y/a/n> `."""
    known = _letters(prompt)
    letters = [letter for letter in LETTERS if letter in known.values()]
    unnamed = [one for one in prompt["options"] if one["kind"].startswith("allow") and one["option_id"] not in known]
    return "/".join([*letters, "number"] if unnamed else letters or ["n"]) + "> "


def permission_for(prompt: Json, text: str) -> Json:
    """The answer for a line of input: y, a, n or an option's number; a reason may follow a denial."""
    word, _, reason = text.partition(" ")
    options, reason = prompt["options"], reason.strip()
    if word.isascii() and word.isdigit() and 1 <= int(word) <= len(options):
        option = options[int(word) - 1]
        if reason and not option["kind"].startswith("reject"):
            raise NotUnderstood(explained(prompt))
        return {"option_id": option["option_id"]} | ({"reason": reason} if reason else {})
    known = _WORDS.get(word.lower())
    if known is None or (reason and known != "deny"):
        raise NotUnderstood(explained(prompt))
    meant = _meant(prompt, known)
    if len(meant) > 1:
        numbers = " or ".join(str(options.index(option) + 1) for option in meant)
        raise NotUnderstood(f"{word} could mean {numbers}: {explained(prompt)}")
    if not meant and known != "deny":
        raise NotUnderstood(f"{word} is not offered: {explained(prompt)}")
    answer = {"option_id": meant[0]["option_id"]} if meant else {"cancel": True}
    return answer | ({"reason": reason} if reason and meant else {})


def explained(prompt: Json) -> str:
    """All choices, in one sentence."""
    letters, parts = _letters(prompt), []
    says = {"y": "y allows", "a": "a allows always", "n": "n denies (a reason may follow)"}
    for number, option in enumerate(prompt["options"], 1):
        letter = letters.get(option["option_id"])
        covers = _covers(prompt, option)
        if letter == "a":
            parts.append(f"{says[letter]} ({covers or wording.short(option['name'])})")
        else:
            parts.append(says[letter] if letter else f'{number} is "{_named(prompt, option)}"')
    if "n" not in letters.values() and not _meant(prompt, "deny"):
        parts.append("n closes it without an answer")
    return ", ".join(parts) + "."


def choices(prompt: Json) -> list[Row]:
    """The choices of a permission request: number, letter if there is one, and meaning."""
    letters = _letters(prompt)
    rows = []
    for number, option in enumerate(prompt["options"], 1):
        letter = letters.get(option["option_id"], " ")
        reason = " (or n REASON)" if letter == "n" else ""
        rows.append(Row(_named(prompt, option) + reason, gutter=f"  {number} {letter}  ", words=True))
    return rows


def _named(prompt: Json, option: Json) -> str:
    """An option's name, and what it covers if it covers more than this request and the name does not say so."""
    name, covers = wording.short(visible(option["name"])), _covers(prompt, option)
    return f"{name}: {covers}" if covers and covers not in name else name


def _covers(prompt: Json, option: Json) -> str:
    covers = prompt.get("covers") or prompt.get("always") or []
    return one_line(visible(", ".join(covers)), wording.INPUT_CHARS) if option["kind"] == "allow_always" else ""


def offered(prompt: Json) -> str:
    return ", ".join(f"{safe(option['option_id'])} ({safe(_named(prompt, option))})" for option in prompt["options"])


def choose(question: Json, text: str) -> str | list[str]:
    """The answer to one question: choices by number or label, or else the text itself."""
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
@click.argument("session", required=False)
@click.argument("prompt_id", required=False)
@click.option("--allow", "word", flag_value="allow", help="Allow it once.")
@click.option("--always", "word", flag_value="always", help="Allow it from now on.")
@click.option("--deny", "word", flag_value="deny", help="Deny it.")
@click.option("--option", metavar="ID", help="Choose the option with this id.")
@click.option("--text", help="Answer a question with this text.")
@click.option("--choose", "chosen", multiple=True, metavar="LABEL", help="Answer a question with a choice. Repeatable.")
@click.option("--cancel", is_flag=True, help="Close the prompt without an answer.")
@click.option("--reason", help="Reason for a denial. ACP agents don't receive it: their protocol has no field for it.")
@click.option("--full", is_flag=True, help="Don't shorten changes and commands.")
@reaching
def answer_command(
    reach: Reach,
    session: str | None,
    prompt_id: str | None,
    word: str | None,
    option: str | None,
    text: str | None,
    chosen: tuple[str, ...],
    cancel: bool,
    reason: str | None,
    full: bool,
) -> None:
    """Answer a permission request or a question.

    SESSION is an id, a unique prefix of one, or `last`. You can omit SESSION if only one session is waiting for you,
    and PROMPT_ID if only one prompt is open. Without an answer, shows the open prompts, each with its change or
    command; in a terminal, also asks for your answer.
    """
    with reach.client() as client:
        session_id = find_session(client, session) if session else _waiting_session(client)
        prompts = client.prompts(session_id)
        ways = [way for way in (word, option, text, chosen, cancel) if way]
        if not ways:
            shown = [_pick(prompts, prompt_id)] if prompt_id else prompts
            if reach.as_json:
                print_json({"prompts": shown})
            else:
                _show(client, shown, session_id, full)
            return
        if len(ways) > 1:
            raise click.UsageError("Give only one answer.")
        prompt = _pick(prompts, prompt_id)
        try:
            answer = _answer(prompt, word, option, text, chosen)
        except NotUnderstood as error:
            raise Failure(str(error), 2) from error
        answer |= {"reason": reason} if reason else {}
        outcome = client.answer(session_id, prompt["prompt_id"], answer)
        if reach.as_json:
            print_json(outcome)
        else:
            _confirm(client, session_id, prompt, answer, outcome)


def _waiting_session(client: Client) -> str:
    """The only session that is waiting for an answer."""
    found = [one for one in client.all_sessions() if one.get("pending_prompts")]
    if not found:
        raise Failure("No session is waiting for an answer. (prompt_resolved)")
    if len(found) > 1:
        names = "".join(f"\n  {one['id']}  {wording.short(one['title'] or 'untitled')}" for one in found)
        raise Failure(f"{len(found)} sessions are waiting for an answer. Give the id of one:{names}", 2)
    return str(found[0]["id"])


def _answer(prompt: Json, word: str | None, option: str | None, text: str | None, chosen: tuple[str, ...]) -> Json:
    if option:
        return {"option_id": option}
    if word:
        if prompt["kind"] == "question":
            raise NotUnderstood("This is a question. Answer it with --choose or --text.")
        return option_for(prompt, word)
    given = [text] if text else list(chosen)
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
            raise Failure(f"There is no open prompt {prompt_id!r}. (prompt_resolved)")
        return found[0]
    if not prompts:
        raise Failure("There is no open prompt. (prompt_resolved)")
    if len(prompts) > 1:
        names = "".join(f"\n  {prompt['prompt_id']}  {wording.short(prompt['title'])}" for prompt in prompts)
        raise Failure(f"{len(prompts)} prompts are open. Give the id of one:{names}", 2)
    return prompts[0]


def _show(client: Client, prompts: list[Json], session_id: str, full: bool) -> None:
    if not prompts:
        click.echo("There is no open prompt.", err=True)
        return
    workdir = str(client.session(session_id)["workdir"])
    asks = sys.stdin.isatty() and sys.stdout.isatty()
    for prompt in prompts:
        if not asks:
            click.echo(prompt["prompt_id"])
        folded = print_prompt(prompt, workdir, full=full, key="f" if asks else "--full")
        if asks:
            _ask(client, session_id, prompt, workdir, folded)
            continue
        if prompt["options"]:
            click.echo(f"  options: {offered(prompt)}")
        how = "--allow, --always or --deny" if prompt["kind"] == "permission" else "--choose LABEL or --text TEXT"
        click.echo("  answer: " + to_copy(f"answer {session_id} {prompt['prompt_id']} {how}"))


def print_prompt(prompt: Json, workdir: str, *, full: bool = False, key: str = "--full") -> bool:
    """Print a prompt; in a terminal at most a screenful, unless `full`. Returns whether something was folded. `key` is
    the key or option that shows the rest."""
    is_terminal = sys.stdout.isatty()
    size = shutil.get_terminal_size()
    colour = is_terminal and not os.environ.get("NO_COLOR")
    columns = size.columns if is_terminal else None
    lines = lay_out(tool_rows.about(prompt, workdir), columns, colour=colour)
    room = len(lines) if full or not is_terminal else max(MIN_LINES, size.lines - RESERVED_LINES)
    shown = fold_end(lines, room, f" ({key} shows all)")
    click.echo("\n".join(shown), color=colour)
    if prompt["kind"] == "permission" and is_terminal:
        click.echo("\n" + "\n".join(lay_out(choices(prompt), columns, colour=colour)), color=colour)
    return shown != lines


def _ask(client: Client, session_id: str, prompt: Json, workdir: str, folded: bool) -> None:
    """Ask for the answer at this terminal. An empty line leaves the prompt open."""
    understand: Callable[[str], Json | None]
    if prompt["kind"] == "permission":
        sign, understand = mark(prompt), lambda text: permission_for(prompt, text)
    else:
        sign, answers = "answer> ", iter(prompt["questions"])
        given: Json = {}

        def understand(text: str) -> Json | None:
            entry = next(answers)
            given[entry["question_id"]] = choose(entry, text)
            return {"answers": given} if len(given) == len(prompt["questions"]) else None

    click.echo("Enter nothing to leave it open.")
    while True:
        try:
            text = input(sign).strip()
        except (EOFError, KeyboardInterrupt):
            click.echo("")
            text = ""
        if not text:
            click.echo("Still open. Answer later with: " + to_copy(f"answer {session_id} {prompt['prompt_id']}"))
            return
        if folded and text == "f":
            print_prompt(prompt, workdir, full=True)
            continue
        try:
            answer = understand(text)
        except NotUnderstood as error:
            click.echo(str(error))
            continue
        if answer is not None:
            outcome = client.answer(session_id, prompt["prompt_id"], answer)
            _confirm(client, session_id, prompt, answer, outcome)
            return


def _confirm(client: Client, session_id: str, prompt: Json, answer: Json, outcome: Json) -> None:
    click.echo(f"{str(outcome.get('outcome', 'answered')).capitalize()}: {wording.short(prompt['title'])}")
    if answer.get("reason") and not _delivers_reasons(client.agent(client.session(session_id)["agent"])["driver"]):
        send = as_typed(f"perdure send {session_id} --queue {shlex.quote(answer['reason'])}")
        click.echo(f"The agent did not get your reason: its protocol has no field for it. Send it: {send}", err=True)


def _delivers_reasons(driver: str) -> bool:
    """Whether the agent's protocol has a field for the reason of a denial; True for drivers of a newer server."""
    from perdure.drivers import DRIVERS

    return driver not in DRIVERS or DRIVERS[driver].delivers_reasons
