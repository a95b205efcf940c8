"""Rules that answer permission requests: the first match decides; in doubt, a person is asked."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core import events as ev
from perdure.core.permissions import STRINGS_MAX, Rule, answer_by_rule, subject
from tests.core.stage import ALLOW, REJECT, prompt

ALWAYS = ev.PromptOption("always", "Always", "allow_always")
NEVER = ev.PromptOption("never", "Never", "reject_always")


def answered(rules: list[Rule], **given: Any) -> str | None:
    option = answer_by_rule(rules, prompt(1, **given))
    return option.option_id if option else None


def test_the_first_rule_that_matches_decides() -> None:
    rules = [Rule("Bash", "git push*", "ask"), Rule("Bash", "git *", "allow"), Rule("*", "*", "deny")]
    assert answered(rules, input={"command": "git push origin"}) is None
    assert answered(rules, input={"command": "git status"}) == "yes"
    assert answered(rules, input={"command": "rm"}) == "no"
    assert answered(rules, tool="Write", input={"file_path": "/a"}) == "no"
    assert answered([], input={}) is None


@pytest.mark.parametrize(
    ("action", "options", "expected"),
    [
        ("allow", [ALWAYS, ALLOW], "yes"),
        ("allow", [ALWAYS], "always"),
        ("allow", [REJECT], None),
        ("deny", [NEVER, REJECT], "no"),
        ("deny", [NEVER], "never"),
        ("deny", [ALLOW], None),
    ],
)
def test_a_rule_chooses_the_narrowest_option_of_its_kind_or_asks(
    action: Any, options: list[ev.PromptOption], expected: str | None
) -> None:
    assert answered([Rule("Bash", "*", action)], options=options) == expected


def test_a_title_can_restrict_a_request_but_never_allow_one() -> None:
    assert answered([Rule("Read", "*", "allow")], tool="Bash", title="Read") is None
    assert answered([Rule("Read", "*", "allow")], tool=None, title="Read") is None
    assert answered([Rule("Delete*", "*", "deny")], tool="other", title="Delete everything") == "no"
    assert answered([Rule("*", "*", "allow")], tool=None) == "yes"


def test_a_question_is_always_for_a_person() -> None:
    assert answered([Rule("*", "*", "allow")], kind="question") is None


@pytest.mark.parametrize(
    ("tool", "given", "expected"),
    [
        ("Bash", "ls", "ls"),
        ("Bash", {"command": "ls", "description": "look"}, "ls"),
        ("execute", {"command": "ls", "cwd": "/srv"}, "ls"),
        ("execute", {"command": "ls", "commands": ["ls"]}, "ls"),
        ("Edit", {"file_path": "/a", "old_string": "b", "new_string": "c"}, "/a"),
        ("edit", {"filepath": "/a", "diff": "..."}, "/a"),
        ("edit", {"filepath": "/a", "diff": "Index: /a\n--- /a\tbefore\n+++ /a\n@@ -1 +1 @@\n-b\n+c\n"}, "/a"),
        ("edit", {"filepath": "/srv/a", "diff": "--- a/srv/a\n+++ b/srv/a\n@@ -0,0 +1 @@\n+c\n"}, "/srv/a"),
        ("edit", {"filepath": "/srv/passwd", "diff": "--- a/passwd\n+++ b/passwd\n"}, None),
        ("MultiEdit", {"file_path": "/a", "edits": [{"old_string": "b", "new_string": "c"}]}, "/a"),
        ("edit", {"filepath": "/a", "diff": "--- /a\n+++ /etc/passwd\n"}, None),
        ("edit", {"filepath": "/a", "diff": "+++ b/../a\n"}, None),
        ("edit", {"filepath": "/a", "diff": ["+++ /a"]}, None),
        ("MultiEdit", {"file_path": "/a", "edits": [{"file_path": "/etc/passwd", "new_string": "c"}]}, None),
        ("MultiEdit", {"file_path": "/a", "edits": ["/etc/passwd"]}, None),
        ("WebFetch", {"url": "https://a.example", "prompt": "read"}, "https://a.example"),
        ("Bash", {"command": ["ls"]}, None),
        ("Bash", {"command": "ls", "path": "/a"}, None),
        ("Bash", {"command": "ls", "dangerouslyDisableSandbox": True}, None),
        ("execute", {"command": "ls", "commands": ["ls", "rm -rf /"]}, None),
        ("execute", {"command": "ls", "cmd": "rm -rf /"}, None),
        ("edit", {"path": "/a", "file_path": "/b"}, None),
        ("edit", {"tool": "write_file", "arguments": {"path": "/a"}}, None),
        ("mcp__shell__run", {"command": "ls"}, None),
        ("Bash", None, None),
    ],
)
def test_an_allow_pattern_is_compared_with_the_main_field_or_with_the_whole_input(
    tool: str, given: Any, expected: str | None
) -> None:
    assert subject(tool, given) == (json.dumps(given, sort_keys=True) if expected is None else expected)


def test_a_rule_for_one_command_allows_no_other_whatever_else_is_in_the_input() -> None:
    git = [Rule("*", "git *", "allow")]
    assert answered(git, tool="Bash", input={"command": "git status"}) == "yes"
    for tool in ("Bash", "execute", "run"):
        assert answered(git, tool=tool, input={"path": "git x", "command": ["rm", "-rf", "/"]}) is None
        assert answered(git, tool=tool, input={"query": "git x", "command": "rm -rf /"}) is None
        assert answered(git, tool=tool, input={"command": "git x", "cmd": "rm -rf /"}) is None


@given(
    st.sampled_from([";", "&&", "||", "|", "&", ">", "<", "`", "$(", "\n", "("]),
    st.text(max_size=5),
    st.text(max_size=5),
)
def test_a_star_never_matches_a_second_command(operator: str, before: str, after: str) -> None:
    command = {"command": f"git log {before}{operator}{after}rm -rf /"}
    assert answered([Rule("Bash", "git *", "allow")], input=command) is None
    assert answered([Rule("Bash", "*", "allow")], input=command) == "yes"
    assert answered([Rule("Bash", "git *", "deny")], input=command) == "no"


def test_a_pattern_may_contain_the_operators_that_it_allows() -> None:
    rule = [Rule("Bash", "git log * | head *", "allow")]
    assert answered(rule, input={"command": "git log --oneline | head -3"}) == "yes"
    assert answered(rule, input={"command": "git log --oneline | head -3 | sh"}) is None
    assert answered([Rule("Edit", "/srv/*", "allow")], tool="Edit", input={"file_path": "/srv/a (1).txt"}) == "yes"


@pytest.mark.parametrize("given", [{"command": ["rm", "-rf", "/"]}, {"arguments": {"run": "rm -rf /"}}, "rm -rf /"])
def test_a_deny_rule_matches_any_string_of_the_input(given: Any) -> None:
    rules = [Rule("*", "rm *", "deny"), Rule("*", "*", "allow")]
    assert answered(rules, tool="run", input=given) == "no"


@pytest.mark.parametrize("given", [["rm", 1], ["rm", None, {"a": ["b"]}], {"args": [["rm", True]]}])
def test_a_list_is_searched_as_one_line(given: Any) -> None:
    rules = [Rule("*", "rm *", "deny"), Rule("*", "*", "allow")]
    assert answered(rules, tool="run", input=given) == "no"


VAST = {"command": "rm -rf /", "junk": ["x"] * (STRINGS_MAX + 1)}


@given(st.permutations(["command", "junk", "more"]))
def test_ask_and_deny_rules_match_an_input_that_is_too_long_to_be_searched(order: list[str]) -> None:
    given = {**VAST, "more": {"a": ["y"]}}
    given = {name: given[name] for name in order}
    for pattern in ("rm *", "nothing like it"):
        assert answered([Rule("Bash", pattern, "deny"), Rule("Bash", "*", "allow")], input=given) == "no"
        assert answered([Rule("Bash", pattern, "ask"), Rule("Bash", "*", "allow")], input=given) is None
    assert answered([Rule("Read", "*", "deny"), Rule("Bash", "*", "allow")], input=given) == "yes"


def test_an_input_at_the_limit_is_searched() -> None:
    given = {"command": "ls", "junk": {str(number): "x" for number in range(STRINGS_MAX - 1)}}
    assert answered([Rule("Bash", "rm *", "deny"), Rule("Bash", "*", "allow")], input=given) == "yes"
    assert answered([Rule("Bash", "l?", "deny"), Rule("Bash", "*", "allow")], input=given) == "no"


SETS = ["[!;&|]", "[;]", "[!];]", "[];]", "[!]&|;<>`(\n]", "[a-z;]"]


@given(
    st.lists(st.sampled_from([*SETS, "*", "?", "a", "]"]), max_size=4).map("".join),
    st.text("ab]!", max_size=4),
    st.sampled_from(";&|\n"),
    st.text("ab;&|]! \n", max_size=6),
)
def test_an_operator_in_a_character_set_does_not_count(end: str, before: str, operator: str, after: str) -> None:
    command = {"command": f"git {before}{operator}{after}"}
    assert answered([Rule("Bash", f"git {end}*", "allow")], input=command) is None


@pytest.mark.parametrize("pattern", ["git [!;&|]*", "git [!]&;|]*", "git []&;|s]*", "git [s;][t&][|a]*"])
def test_a_set_that_excludes_operators_allows_none_through_the_star_after_it(pattern: str) -> None:
    assert answered([Rule("Bash", pattern, "allow")], input={"command": "git status"}) == "yes"
    assert answered([Rule("Bash", pattern, "allow")], input={"command": "git status; rm x & y | z"}) is None
    assert answered([Rule("Bash", pattern, "deny")], input={"command": "git status; rm x & y | z"}) == "no"


@pytest.mark.parametrize("pattern", ["git [;*", "git [!;*", "git [];*", "git [!];*"])
def test_an_unclosed_bracket_matches_itself(pattern: str) -> None:
    command = pattern.replace("*", " x")
    assert answered([Rule("Bash", pattern, "allow")], input={"command": command}) == "yes"
    assert answered([Rule("Bash", pattern, "allow")], input={"command": f"{command}; rm"}) is None


STEPS = st.lists(st.sampled_from(["a", "..b", "b..", "...", ".", "", ".."]), max_size=5)


@given(STEPS, st.sampled_from(["/", "\\"]))
def test_a_star_never_matches_a_parent_step_in_a_path(steps: list[str], slash: str) -> None:
    expected = "yes" if ".." not in steps else None
    path = slash.join(["/site", *steps, "x"])
    for pattern in ("/site*", "/sit[e]*", "/????*"):
        assert answered([Rule("Read", pattern, "allow")], tool="Read", input={"file_path": path}) == expected
        assert answered([Rule("run", pattern, "allow")], tool="run", input=path) == expected
    assert answered([Rule("Read", "*", "allow")], tool="Read", input={"file_path": path}) == "yes"
    assert answered([Rule("Read", "/site*", "deny")], tool="Read", input={"file_path": path}) == "no"


@pytest.mark.parametrize(
    ("tool", "pattern", "given", "expected"),
    [
        ("Read", "../*", {"file_path": "../a"}, "yes"),
        ("Read", "../*", {"file_path": "../a/.."}, None),
        ("Read", "*a*", {"file_path": "../a"}, None),
        ("Read", '*"/site/*', {"file_path": "/site/../etc", "path": "/site/a"}, None),
        ("Read", '*"a/*', {"file_path": "..", "path": "a/b"}, None),
        ("fetch", "https://a.example/b/*", {"url": "https://a.example/b/c?d=(1)&e"}, "yes"),
        ("fetch", "https://a.example/b/*", {"url": "https://a.example/b/../c"}, None),
        ("fetch", "https://a.example/b/*", {"url": "https://a.example/b/%2E./c"}, None),
        ("fetch", "https://a.example/b/*", {"url": "https://a.example/b/..?c"}, None),
        ("fetch", "https://a.example/b/*", {"url": "https://a.example/b/..#c"}, None),
        ("fetch", "https://a.example/b/*", {"url": "https://a.example/b/.\t./c"}, None),
        ("fetch", "*", {"url": "https://a.example/b/.\t./c"}, "yes"),
        ("Bash", "git diff *", {"command": "git diff a..b ../c"}, "yes"),
    ],
)
def test_a_pattern_may_contain_the_parent_steps_that_it_allows(
    tool: str, pattern: str, given: Any, expected: str | None
) -> None:
    assert answered([Rule(tool, pattern, "allow")], tool=tool, input=given) == expected


@pytest.mark.parametrize("tool", ["shell", "mcp__shell__run", "other", None])
def test_an_unknown_tool_may_be_a_shell(tool: str | None) -> None:
    git = [Rule("*", "git *", "allow")]
    assert answered(git, tool=tool, input="git status") == "yes"
    assert answered(git, tool=tool, input="git status; rm -rf /") is None
    whole = [Rule("*", '{"command": "git *"}', "allow")]
    assert answered(whole, tool=tool, input={"command": "git status"}) == "yes"
    for rest in ("; rm -rf /", "\nrm -rf /", "\rrm -rf /", " | sh"):
        assert answered(whole, tool=tool, input={"command": f"git status{rest}"}) is None


def test_searching_a_deeply_nested_input_takes_memory_in_proportion_to_its_size() -> None:
    nested: Any = "x" * 100_000
    for _ in range(100):
        nested = ["rm", nested, 1]
    tracemalloc.start()
    try:
        assert answered([Rule("*", "nothing", "deny"), Rule("*", "rm *", "deny")], input={"a": nested}) == "no"
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
