"""Any text arrives: any size and any characters, with noise before and beside it."""

import json

import pytest

from tests.end_to_end.claude.columns import DIALECT, REAL, Column, Stage
from tests.harness import no_holes

pytestmark = [pytest.mark.timeout(240), pytest.mark.needs("linux")]

MEGABYTE = 1_000_000
GROWTH_MAX_MB = 64
ERR_MAX_BYTES = 512 * 1024
ODD = "a\u0085b\u2028c\u2029d\x00e\U0001f600f\rg\u200b\ufeffh e\u0301 \u0627\u0644 i\x1b[0mj\x7fk"
LETS_ALL_RUN = 'permissions = [ { tool = "Bash", action = "allow" }, { tool = "Write", action = "allow" } ]'


def only(*columns: Column) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("column", columns, ids=lambda column: column.name)


def spelled(*pieces: str) -> str:
    """A message that makes the scripted model output these pieces, one delta each."""
    return f"spell {json.dumps(pieces)}"


def test_a_text_of_a_megabyte_arrives_completely_in_both_directions_in_bounded_memory(stage: Stage) -> None:
    session = stage.serve(alone=True).session()
    stage.turn(session, "say small")
    before = stage.server_rss_mb()
    text = "0123456789" * (MEGABYTE // 10 - 10)
    assert stage.turn(session, f"say {text}")["stop_reason"] == "end_turn"
    assert stage.server.text(session, 2) == text
    assert stage.turn(session, f"big {MEGABYTE}\nsay end")["stop_reason"] == "end_turn"
    said = stage.server.text(session, 3)
    assert said.endswith("x\nend") and set(said[:-4]) == {"x"}
    # The rehearsal agent counts the whole line.
    assert len(said) - 4 == MEGABYTE if stage.column.real else MEGABYTE - 1000 < len(said) < MEGABYTE
    assert stage.recalled(session) == ["say small", f"say {text}", f"big {MEGABYTE}\nsay end"]
    assert stage.server_rss_mb() - before < GROWTH_MAX_MB
    no_holes(stage.server.log(session))


@only(*DIALECT)
def test_a_tool_result_of_a_megabyte_is_stored_completely(stage: Stage) -> None:
    session = stage.serve(alone=True).session()
    stage.turn(session, "say small")
    before = stage.server_rss_mb()
    stage.turn(session, f"tool Look {'z' * (MEGABYTE - 100)}\nsay end")
    (result,) = stage.events(session, "tool_result")
    assert result["content"] == "z" * (MEGABYTE - 100)
    assert stage.server.text(session, 2) == "end"
    assert stage.server_rss_mb() - before < GROWTH_MAX_MB


@only(*REAL)
def test_a_tool_with_a_megabyte_of_input_or_output_is_shown_as_the_model_sees_it(stage: Stage) -> None:
    """The program itself stores a long output in a file, and passes only the start of it to the model."""
    session = stage.serve(alone=True, project=LETS_ALL_RUN).session(project="here")
    stage.turn(session, "say small")
    before = stage.server_rss_mb()
    command = f"head -c {MEGABYTE} /dev/zero | tr '\\0' z"
    assert stage.turn(session, f"bash {command}\nsay end")["stop_reason"] == "end_turn"
    (result,) = stage.events(session, "tool_result")
    told = stage.model.log.asked[-1].conversation.results[-1]
    assert result["content"] == told and "Output too large" in told and "zzzz" in told
    given = "0123456789" * (MEGABYTE // 10 - 100)
    path = stage.workdir / "given.txt"
    assert stage.turn(session, f"write {path} {given}\nsay end")["stop_reason"] == "end_turn"
    assert path.read_text() == given
    assert stage.events(session, "tool_use")[-1]["input"]["content"] == given
    assert stage.server.text(session, 3) == "end"
    assert stage.server_rss_mb() - before < GROWTH_MAX_MB


@pytest.mark.smoke
def test_unusual_characters_arrive_unchanged_in_message_and_answer(stage: Stage) -> None:
    session = stage.serve().session()
    assert stage.turn(session, f"say {ODD}")["stop_reason"] == "end_turn"
    assert stage.server.text(session, 1) == ODD
    lines = "first\r\nsay second\r\nthird\r\n"
    assert stage.turn(session, lines)["stop_reason"] == "end_turn"
    assert [event["text"] for event in stage.events(session, "user_message")] == [f"say {ODD}", lines]
    assert stage.recalled(session) == [f"say {ODD}", lines.rstrip("\n")]
    if stage.column.real:
        assert stage.model.log.asked[-1].conversation.user_texts[:2] == [f"say {ODD}", lines]
    no_holes(stage.server.log(session))


@only(*REAL)
def test_an_answer_with_line_ends_and_control_characters_is_stored_byte_for_byte(stage: Stage) -> None:
    session = stage.serve().session()
    pieces = [
        "one\r\n",
        "two\n\n",
        "\u2028three\u0085",
        ODD,
        "\x00\x01\x1f",
        '\\u0000 "quoted" ',
        "\U0001f469\u200d\U0001f680",
    ]
    stage.turn(session, spelled(*pieces))
    assert stage.server.text(session, 1) == "".join(pieces)
    assert stage.server.text(session, 1).encode() == "".join(pieces).encode()
    assert not stage.codes(session)
    assert stage.recalled(session) == [spelled(*pieces)]


@only(*REAL)
def test_half_an_emoji_in_an_answer_is_replaced_unless_the_other_half_follows(stage: Stage) -> None:
    session = stage.serve().session()
    stage.turn(session, spelled("before \ud83d", " between ", "\ude00 after"))
    assert stage.server.text(session, 1) == "before \ufffd between \ufffd after"
    stage.turn(session, spelled("joined \ud83d", "\ude00 again"))
    assert stage.server.text(session, 2) == "joined \U0001f600 again"
    assert stage.turn(session, "say still here")["stop_reason"] == "end_turn"
    assert not stage.codes(session)


def test_half_an_emoji_in_a_message_is_refused_before_it_is_stored(stage: Stage) -> None:
    session = stage.serve().session()
    body = b'{"text": "say half \\ud83d of it"}'
    answer = stage.server.http.post(f"/api/sessions/{session}/messages", content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert not stage.events(session, "user_message")
    stage.turn(session, "say whole")
    assert stage.recalled(session) == ["say whole"]


def test_noise_before_the_protocol_and_a_flood_beside_it_are_harmless(stage: Stage) -> None:
    noise = '[SandboxDebug] a line that some builds print\\n{"type":"assist\\n\\n\\377\\376\\n'
    stage.preface = f"printf '{noise}'; seq 200000 >&2"
    session = stage.serve().session()
    assert stage.turn(session, "say one")["stop_reason"] == "end_turn"
    assert stage.turn(session, "say two")["stop_reason"] == "end_turn"
    assert [stage.server.text(session, number) for number in (1, 2)] == ["one", "two"]
    told = [event for event in stage.events(session, "system") if event["code"] == "agent_noise"]
    assert told and "SandboxDebug" in told[0]["message"]
    # Reported once for each process, however much of it there is.
    assert len(told) == len(stage.events(session, "agent_launched"))
    if stage.column.streams:
        (kept,) = (stage.server.data / "launches").glob("*/err")
        assert 0 < kept.stat().st_size <= ERR_MAX_BYTES
    assert stage.recalled(session) == ["say one", "say two"]


@only(*DIALECT)
def test_broken_lines_during_a_turn_are_reported_and_skipped(stage: Stage) -> None:
    session = stage.serve().session()
    message = "say begin\ngarbage\nstderr 20000\nsay end"
    assert stage.turn(session, message)["stop_reason"] == "end_turn"
    assert stage.server.text(session, 1) == "begin\nend"
    assert set(stage.codes(session)) == {"agent_noise"}
    assert stage.recalled(session) == [message]
