"""The flags of the `claude` command that programs use, and the rules for combining them.

Above: claude.py runs with these flags. Below: nothing; it reads no files and no sessions.
A flag that the real one doesn't know is an error here too, with the same message: testing a driver against an agent
that accepts anything would prove nothing. It is not meant for people, so it has no help.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

OUTPUT_FORMATS = ("text", "json", "stream-json")
INPUT_FORMATS = ("text", "stream-json")
PERMISSION_MODES = ("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan")
BYPASS = "bypassPermissions"


class BadFlags(Exception):
    """Invalid flags. The message is written to stderr, and the exit code is 1."""


class Flags(NamedTuple):
    prompt: str = ""
    version: bool = False
    print_mode: bool = False
    output_format: str = "text"
    input_format: str = "text"
    verbose: bool = False
    partial: bool = False
    replay: bool = False
    prompt_tool: str = ""
    model: str = ""
    permission_mode: str = "default"
    skip_permissions: bool = False
    session_id: str = ""
    resume: str | None = None
    """An empty string if the flag has no value."""
    continue_last: bool = False
    fork: bool = False
    no_persistence: bool = False
    max_turns: int = 0
    """0: no limit."""
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()

    @property
    def streams(self) -> bool:
        """Messages arrive on stdin one by one."""
        return self.input_format == "stream-json"


class _Option(NamedTuple):
    """`takes`: no value, one value, an optional value, or all words up to the next flag. Without `field`: ignored."""

    usage: str
    takes: str
    field: str = ""
    choices: tuple[str, ...] = ()


_SWITCH, _ONE, _MAYBE, _MANY = "nothing", "one", "maybe", "many"

_OPTIONS = (
    _Option("-v, --version", _SWITCH, "version"),
    _Option("-p, --print", _SWITCH, "print_mode"),
    _Option("--output-format <format>", _ONE, "output_format", OUTPUT_FORMATS),
    _Option("--input-format <format>", _ONE, "input_format", INPUT_FORMATS),
    _Option("--verbose", _SWITCH, "verbose"),
    _Option("--include-partial-messages", _SWITCH, "partial"),
    _Option("--replay-user-messages", _SWITCH, "replay"),
    _Option("--permission-prompt-tool <tool>", _ONE, "prompt_tool"),
    _Option("--model <model>", _ONE, "model"),
    _Option("--permission-mode <mode>", _ONE, "permission_mode", PERMISSION_MODES),
    _Option("--dangerously-skip-permissions", _SWITCH, "skip_permissions"),
    _Option("--session-id <uuid>", _ONE, "session_id"),
    _Option("-r, --resume [value]", _MAYBE, "resume"),
    _Option("-c, --continue", _SWITCH, "continue_last"),
    _Option("--fork-session", _SWITCH, "fork"),
    _Option("--no-session-persistence", _SWITCH, "no_persistence"),
    _Option("--max-turns <turns>", _ONE, "max_turns"),
    _Option("--allowedTools, --allowed-tools <tools...>", _MANY, "allowed_tools"),
    _Option("--disallowedTools, --disallowed-tools <tools...>", _MANY, "disallowed_tools"),
    _Option("--allow-dangerously-skip-permissions", _SWITCH),
    _Option("--include-hook-events", _SWITCH),
    _Option("--strict-mcp-config", _SWITCH),
    _Option("--exclude-dynamic-system-prompt-sections", _SWITCH),
    _Option("--bare", _SWITCH),
    _Option("--safe-mode", _SWITCH),
    _Option("--settings <file-or-json>", _ONE),
    _Option("--setting-sources <sources>", _ONE),
    _Option("--system-prompt <prompt>", _ONE),
    _Option("--append-system-prompt <prompt>", _ONE),
    _Option("--fallback-model <model>", _ONE),
    _Option("--effort <level>", _ONE),
    _Option("--json-schema <schema>", _ONE),
    _Option("--max-budget-usd <amount>", _ONE),
    _Option("--max-thinking-tokens <tokens>", _ONE),
    _Option("-d, --debug [filter]", _MAYBE),
    _Option("--add-dir <directories...>", _MANY),
    _Option("--mcp-config <configs...>", _MANY),
    _Option("--tools <tools...>", _MANY),
)


def _named(options: Sequence[_Option]) -> dict[str, _Option]:
    words = ((word.rstrip(","), option) for option in options for word in option.usage.split())
    return {word: option for word, option in words if word.startswith("-")}


_BY_NAME = _named(_OPTIONS)


def parse(argv: Sequence[str]) -> Flags:
    """Parse the arguments. Raises BadFlags for those that the real command would reject."""
    values: dict[str, Any] = {}
    prompts: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--":
            prompts += words
            break
        if not word.startswith("-") or word == "-":
            prompts.append(word)
            continue
        name, equals, attached = word.partition("=")
        option = _BY_NAME.get(name)
        if option is None or (equals and option.takes == _SWITCH):
            raise BadFlags(f"error: unknown option '{word}'")
        value = _value(option, attached if equals else None, words)
        if option.field:
            values[option.field] = (*values.get(option.field, ()), *value) if option.takes == _MANY else value
    if prompts:
        values["prompt"] = prompts[0]
    return Flags(**values)


def _value(option: _Option, attached: str | None, words: list[str]) -> Any:
    if option.takes == _SWITCH:
        return True
    taken = [attached] if attached is not None else []
    limit = 1 if option.takes != _MANY else len(words)
    # A required value may look like a flag; an optional one may not.
    while len(taken) < limit and words and (not words[0].startswith("-") or (option.takes == _ONE and not taken)):
        taken.append(words.pop(0))
    if not taken and option.takes != _MAYBE:
        raise BadFlags(f"error: option '{option.usage}' argument missing")
    value = taken[0] if taken else ""
    if option.choices and value not in option.choices:
        allowed = ", ".join(option.choices)
        raise BadFlags(f"error: option '{option.usage}' argument '{value}' is invalid. Allowed choices are {allowed}.")
    if option.takes == _MANY:
        return tuple(part.strip() for one in taken for part in one.split(",") if part.strip())
    if option.field == "max_turns":
        if not value.isdecimal() or int(value) == 0:
            raise BadFlags(f"error: option '{option.usage}' argument '{value}' is invalid. Must be a positive number.")
        return int(value)
    return value


def check(flags: Flags, is_uuid: bool, is_root: bool, environment: Mapping[str, str]) -> None:
    """Check the rules of the real command. `is_uuid`: whether the requested session id is a UUID. Raises BadFlags."""
    bypass = flags.skip_permissions or flags.permission_mode == BYPASS
    resumes = flags.resume is not None or flags.continue_last
    stream_out = flags.output_format == "stream-json"
    rules = (
        (
            bypass and is_root and environment.get("IS_SANDBOX") != "1",
            "--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons",
        ),
        (
            bool(flags.session_id) and resumes and not flags.fork,
            "Error: --session-id can only be used with --continue or --resume if --fork-session is also specified.",
        ),
        (bool(flags.session_id) and not is_uuid, "Error: Invalid session ID. Must be a valid UUID."),
        (not flags.print_mode, "Error: the rehearsal agent has no interactive mode. Use --print."),
        (
            flags.streams and not stream_out,
            "Error: --input-format=stream-json requires output-format=stream-json.",
        ),
        (
            flags.replay and not (flags.streams and stream_out),
            "Error: --replay-user-messages requires both --input-format=stream-json and --output-format=stream-json.",
        ),
        (
            flags.partial and not stream_out,
            "Error: --include-partial-messages requires --print and --output-format=stream-json.",
        ),
        (
            stream_out and not flags.verbose,
            "Error: When using --print, --output-format=stream-json requires --verbose",
        ),
        (
            flags.prompt_tool not in ("", "stdio"),
            f"Error: MCP tool {flags.prompt_tool} (passed via --permission-prompt-tool) not found.",
        ),
        (
            flags.resume == "",
            "Error: --resume requires a valid session ID or session title when used with --print.",
        ),
    )
    for broken, message in rules:
        if broken:
            raise BadFlags(message)
