"""The performance: turns the verbs of one message into a sequence of acts that are independent of any protocol.

Above: a dialect (acp.py, claude.py) takes the acts one by one, shows each in its protocol, and sends back replies.
Below: verbs.py parses the message; edits.py and the operating system do the work.
It is a generator, so a dialect cancels by not resuming it: nothing runs between two acts, and waiting is an act too. It
never writes to the client and has no memory.
"""

import json
import os
import re
from collections.abc import Callable, Generator, Iterator
from typing import Literal, NamedTuple

from perdure.rehearsal.edits import Edit, EditRefused, make, plan_line, plan_text, remove, rename
from perdure.rehearsal.verbs import greeting, misuse, parse

STDERR_LINE = "rehearsal stderr line {:08d} " + "." * 40 + "\n"
STDERR_LINES_PER_ACT = 64
"""Few enough to notice a cancel between two writes."""
DELEGATED_TOOL_S = 0.06
"""How long each tool of a sub-agent takes: long enough to show a duration, short enough for a test."""
LISTED_NAMES = 20

Decision = Literal["allowed", "denied", "cancelled"]


class Say(NamedTuple):
    delta: str


class Think(NamedTuple):
    delta: str


class ShowPlan(NamedTuple):
    """The whole current plan: content and status (pending, in_progress, completed) of each entry."""

    entries: list[tuple[str, str]]


class ToolStart(NamedTuple):
    """`edit`: the planned change to a file, for a dialect that shows it beforehand. `parent`: the tool whose sub-agent
    calls this one."""

    tool_id: str
    name: str
    kind: str
    title: str
    input: dict[str, str]
    edit: Edit | None = None
    parent: str | None = None


class ToolRun(NamedTuple):
    tool_id: str


class ToolEnd(NamedTuple):
    tool_id: str
    ok: bool
    content: str
    edit: Edit | None = None


class Report(NamedTuple):
    """Text of a sub-agent, for the tool that started it and not for the person."""

    tool_id: str
    text: str


class Permit(NamedTuple):
    """Asks for permission for a tool that was already started. The reply is a Decision."""

    tool: ToolStart


class Ask(NamedTuple):
    """Asks a question. The reply is a sentence with the answer."""

    question: str
    choices: list[str]


class Wait(NamedTuple):
    """None: until cancelled. `paced`: counted from the end of the previous wait, to keep a steady pace."""

    seconds: float | None
    paced: bool = False


class Crash(NamedTuple):
    code: int


class Garbage(NamedTuple):
    pass


class Big(NamedTuple):
    """One line of this many bytes, including the newline, if the dialect's envelope is not larger."""

    size_bytes: int


class Stderr(NamedTuple):
    text: str


class Usage(NamedTuple):
    input_tokens: int
    output_tokens: int


class Limit(NamedTuple):
    """The turn fails with a usage limit. It is the last act."""

    seconds: float


class RejectResume(NamedTuple):
    pass


class Poison(NamedTuple):
    pass


Act = (
    Say
    | Think
    | ShowPlan
    | ToolStart
    | ToolRun
    | ToolEnd
    | Report
    | Permit
    | Ask
    | Wait
    | Crash
    | Garbage
    | Big
    | Stderr
    | Usage
    | Limit
    | RejectResume
    | Poison
)
Reply = str | None
"""What a dialect sends back: a Decision, an answer, or None for an act without reply."""
Performance = Generator[Act, Reply, None]


class Scene(NamedTuple):
    """What the performance can read."""

    workdir: str
    recall: Callable[[], list[str]]
    recite: Callable[[], list[tuple[str, str]]]
    model: str
    mode: str


_SPEAKING = (Say, Big)


def perform(message: str, scene: Scene) -> Performance:
    """All acts of a message. A newline separates the text of two verbs."""
    instructions = parse(message)
    if not instructions:
        yield from _words(greeting(scene.model, scene.mode))
        return
    spoke = False
    for verb, arguments in instructions:
        part = _words(misuse(verb)) if arguments is None else _PARTS[verb.name](arguments, scene)
        spoke_before, spoke_now = spoke, False
        reply: Reply = None
        while True:
            try:
                act = part.send(reply)
            except StopIteration:
                break
            if spoke_before and not spoke_now and isinstance(act, _SPEAKING):
                yield Say("\n")
            spoke_now = spoke_now or isinstance(act, _SPEAKING)
            reply = yield act
            if isinstance(act, Limit):
                return
        spoke = spoke or spoke_now


def _words(text: str) -> Performance:
    for piece in _pieces(text):
        yield Say(piece)


def _pieces(text: str) -> Iterator[str]:
    """The words of a text. A single word is split in two, so that every answer has several deltas."""
    words: list[str] = re.findall(r"\s*\S+\s*", text) or [text]
    if len(words) == 1 and len(text) > 1:
        middle = len(text) // 2
        words = [text[:middle], text[middle:]]
    yield from words


def _say(arguments: tuple[str, ...], _: Scene) -> Performance:
    yield from _words(arguments[0])


def _stream(arguments: tuple[str, ...], _: Scene) -> Performance:
    pause = Wait(int(arguments[1]) / 1000, paced=True) if arguments[1] else None
    for number in range(int(arguments[0])):
        if pause and number:
            yield pause
        yield Say(f"w{number} ")


def _think(arguments: tuple[str, ...], _: Scene) -> Performance:
    for piece in _pieces(arguments[0]):
        yield Think(piece)


def _plan(arguments: tuple[str, ...], _: Scene) -> Performance:
    contents = [content.strip() for content in arguments[0].split(";") if content.strip()]
    yield ShowPlan([(content, "pending") for content in contents])
    for now in range(len(contents)):
        done, rest = contents[:now], contents[now + 1 :]
        yield ShowPlan(
            [(content, "completed") for content in done]
            + [(contents[now], "in_progress")]
            + [(content, "pending") for content in rest]
        )
    yield ShowPlan([(content, "completed") for content in contents])


_KINDS = {
    "bash": "execute",
    "shell": "execute",
    "execute": "execute",
    "read": "read",
    "write": "edit",
    "edit": "edit",
    "delete": "delete",
    "move": "move",
    "grep": "search",
    "glob": "search",
    "search": "search",
    "webfetch": "fetch",
    "fetch": "fetch",
    "agent": "think",
}


def _started(name: str, title: str, given: dict[str, str]) -> ToolStart:
    # Random, so that an id is unique across all turns and processes of a session.
    return ToolStart(f"call_{os.urandom(6).hex()}", name, _KINDS.get(name.lower(), "other"), title, given)


def _tool(arguments: tuple[str, ...], _: Scene) -> Performance:
    name, text = arguments
    given = "command" if _KINDS.get(name.lower()) == "execute" else "text"
    tool = _started(name, f"{name} {text}".rstrip(), {given: text})
    yield tool
    yield ToolRun(tool.tool_id)
    yield ToolEnd(tool.tool_id, True, text or "ok")


def _edit(arguments: tuple[str, ...], scene: Scene) -> Performance:
    path, count = arguments[0], int((*arguments, "")[1] or 1)
    yield from _edited(path, lambda: plan_line(scene.workdir, path, count))


def _propose(arguments: tuple[str, ...], scene: Scene) -> Performance:
    path, count = arguments[0], int(arguments[1] or 1)
    yield from _edited(path, lambda: plan_line(scene.workdir, path, count), asks=True)


def _write(arguments: tuple[str, ...], scene: Scene) -> Performance:
    path, lines = arguments[0], arguments[1].split("|") if arguments[1] else []
    text = "".join(f"{line.removeprefix(' ').removesuffix(' ')}\n" for line in lines)
    yield from _edited(path, lambda: plan_text(scene.workdir, path, text))


def _edited(path: str, plan: Callable[[], Edit], *, asks: bool = False) -> Performance:
    tool = _started("Edit", f"Edit {path}", {"path": path})._replace(edit=_planned(plan))
    yield tool
    if asks and (decision := (yield Permit(tool))) != "allowed":
        yield ToolEnd(tool.tool_id, False, f"{decision} {path}")
        return
    yield ToolRun(tool.tool_id)
    try:
        # Planned again: another agent may have changed the file while a person decided.
        edit = plan()
        make(edit, path)
    except EditRefused as refused:
        yield ToolEnd(tool.tool_id, False, str(refused))
    else:
        yield ToolEnd(tool.tool_id, True, f"edited {path}", edit)


def _planned(plan: Callable[[], Edit]) -> Edit | None:
    try:
        return plan()
    except EditRefused:
        # Reported when the edit is attempted, as real tools do.
        return None


def _remove(arguments: tuple[str, ...], scene: Scene) -> Performance:
    yield from _ran(f"rm {arguments[0]}", f"removed {arguments[0]}", lambda: remove(scene.workdir, arguments[0]))


def _rename(arguments: tuple[str, ...], scene: Scene) -> Performance:
    path, to = arguments
    yield from _ran(f"mv {path} {to}", f"renamed {path} to {to}", lambda: rename(scene.workdir, path, to))


def _ran(command: str, said: str, run: Callable[[], None]) -> Performance:
    """A change that the agent makes in a shell, so that no tool reports it."""
    tool = _started("Bash", f"Bash {command}", {"command": command})
    yield tool
    yield ToolRun(tool.tool_id)
    try:
        run()
    except EditRefused as refused:
        yield ToolEnd(tool.tool_id, False, str(refused))
    else:
        yield ToolEnd(tool.tool_id, True, said)


def _delegate(arguments: tuple[str, ...], scene: Scene) -> Performance:
    """A sub-agent, whose tools are children of the tool that started it. That tool succeeds even if they fail, and
    reports the failure. With the task `hang`, the first tool never ends."""
    name, path = arguments[0], f"{arguments[0]}.md"
    task = arguments[1] or f"Write to {path}"
    prompt = f"{task}. You are {name}: look around first, write to {path}, and report."
    agent = _started("Agent", task, {"description": task, "prompt": prompt, "subagent_type": name})
    yield agent
    yield ToolRun(agent.tool_id)
    yield Report(agent.tool_id, "I look at what is there first.")
    said = f"There was no trouble. Look into {path}."
    for part in (_list((), scene), _edit((path,), scene)):
        for act in part:
            if isinstance(act, ToolEnd):
                yield Wait(None if task == "hang" else DELEGATED_TOOL_S)
                said = said if act.ok else f"There was trouble: {act.content}"
            yield act._replace(parent=agent.tool_id) if isinstance(act, ToolStart) else act
    yield Report(agent.tool_id, said)
    yield ToolEnd(agent.tool_id, True, said)


def _list(_: tuple[str, ...], scene: Scene) -> Performance:
    tool = _started("Bash", "Bash ls", {"command": "ls"})
    yield tool
    yield ToolRun(tool.tool_id)
    names = sorted(name for name in os.listdir(scene.workdir) if not name.startswith("."))
    yield ToolEnd(tool.tool_id, True, "\n".join(names[:LISTED_NAMES]) or "nothing is here")


def _permit(arguments: tuple[str, ...], _: Scene) -> Performance:
    name = arguments[0]
    tool = _started(name, f"Run {name}", {"name": name})
    yield tool
    decision = yield Permit(tool)
    said = f"{decision} {name}"
    if decision == "allowed":
        yield ToolRun(tool.tool_id)
    yield ToolEnd(tool.tool_id, decision == "allowed", said)
    yield from _words(said)


def _ask(arguments: tuple[str, ...], _: Scene) -> Performance:
    choices = [choice.strip() for choice in arguments[1].split("|") if choice.strip()]
    said = yield Ask(arguments[0].strip(), choices)
    yield from _words(said or "")


def _recall(_: tuple[str, ...], scene: Scene) -> Performance:
    messages = scene.recall()
    yield Say(f"recall {len(messages)}")
    for message in messages:
        yield Say(f"\n- {json.dumps(message, ensure_ascii=False)}")


def _recite(_: tuple[str, ...], scene: Scene) -> Performance:
    said = scene.recite()
    yield Say(f"recite {len(said)}")
    for role, text in said:
        yield Say(f"\n- {role}: {json.dumps(text, ensure_ascii=False)}")


def _sleep(arguments: tuple[str, ...], _: Scene) -> Performance:
    yield Wait(float(arguments[0]))


def _hang(_arguments: tuple[str, ...], _: Scene) -> Performance:
    yield Wait(None)


def _crash(arguments: tuple[str, ...], _: Scene) -> Performance:
    yield Crash(int(arguments[0] or 1) % 256)


def _garbage(_arguments: tuple[str, ...], _: Scene) -> Performance:
    yield Garbage()


def _big(arguments: tuple[str, ...], _: Scene) -> Performance:
    yield Big(int(arguments[0]))


def _stderr(arguments: tuple[str, ...], _: Scene) -> Performance:
    count = int(arguments[0])
    for first in range(0, count, STDERR_LINES_PER_ACT):
        numbers = range(first, min(first + STDERR_LINES_PER_ACT, count))
        yield Stderr("".join(STDERR_LINE.format(number) for number in numbers))


def _spawn(arguments: tuple[str, ...], _: Scene) -> Performance:
    # Imported here because the import is slow, and the agent has to start quickly.
    import subprocess

    child = subprocess.Popen(
        ["sleep", arguments[0]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _children.append(child)
    yield from _words(f"spawned {child.pid}")


_children: list[object] = []
"""Holds references, because Python warns when the object of a running child process is destroyed."""


def _usage(arguments: tuple[str, ...], _: Scene) -> Performance:
    yield Usage(int(arguments[0]), int(arguments[1]))


def _limit(arguments: tuple[str, ...], _: Scene) -> Performance:
    yield Limit(float(arguments[0]))


def _reject_resume(_arguments: tuple[str, ...], _: Scene) -> Performance:
    yield RejectResume()
    yield from _words("The next load of this session will be refused.")


def _poison(_arguments: tuple[str, ...], _: Scene) -> Performance:
    yield Poison()
    yield from _words("Every later turn of this session will fail as too long.")


_PARTS: dict[str, Callable[[tuple[str, ...], Scene], Performance]] = {
    "say": _say,
    "stream": _stream,
    "think": _think,
    "plan": _plan,
    "tool": _tool,
    "edit": _edit,
    "write": _write,
    "remove": _remove,
    "rename": _rename,
    "delegate": _delegate,
    "permit": _permit,
    "propose": _propose,
    "ask": _ask,
    "recall": _recall,
    "recite": _recite,
    "sleep": _sleep,
    "hang": _hang,
    "crash": _crash,
    "garbage": _garbage,
    "big": _big,
    "stderr": _stderr,
    "spawn": _spawn,
    "usage": _usage,
    "limit": _limit,
    "reject-resume": _reject_resume,
    "poison": _poison,
}
