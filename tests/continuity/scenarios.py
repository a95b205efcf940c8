"""What may happen to a conversation, the same for every agent: each scenario says what the model must know afterwards.

Above: the matrix and the tests. Below: the stage. A scenario runs, and returns the sessions to check with all messages
of each. It knows nothing about specific agents.
"""

from collections.abc import Callable
from typing import NamedTuple

from tests.continuity.stage import Stage

LONG = "stream 3000 20"
"""A minute of text: long enough to be interrupted on any machine."""
SHORT = "stream 120 50"
WORDS = "".join(f"w{number} " for number in range(120))


class Said(NamedTuple):
    session: str
    texts: list[str]


class Verdict(NamedTuple):
    """The result of one cell."""

    held: bool
    plan: str
    reason: str
    detail: str = ""


def three_turns(stage: Stage) -> list[Said]:
    session = stage.session()
    said = ["say one", "say two", "say three"]
    for number, text in enumerate(said, 1):
        stage.turn(session, text)
        assert stage.text(session, number).endswith(text.removeprefix("say "))
    return [Said(session, said)]


def agent_killed_between_turns(stage: Stage) -> list[Said]:
    session, said = _two_turns(stage)
    stage.kill_agent(session)
    return [Said(session, said)]


def agent_killed_in_a_turn(stage: Stage) -> list[Said]:
    session, said = _two_turns(stage)
    number = stage.send(session, LONG)
    stage.until_said(session, number, "w3 ")
    stage.kill_agent(session)
    # An agent whose first process only starts the real one has time to report it as cancelled.
    stage.ended(session, number, "failed", "cancelled")
    return [Said(session, [*said, LONG])]


def server_restarted_between_turns(stage: Stage) -> list[Said]:
    session, said = _two_turns(stage)
    stage.server.stop()
    stage.server.restart()
    return [Said(session, said)]


def server_killed_in_a_turn(stage: Stage) -> list[Said]:
    session, said = _two_turns(stage)
    number = stage.send(session, SHORT)
    stage.until_said(session, number, "w3 ")
    stage.server.kill()
    stage.server.restart()
    stage.ended(session, number)
    assert stage.text(session, number).strip().endswith(WORDS.strip()), "the answer lacks words"
    return [Said(session, [*said, SHORT])]


def suspended_and_woken(stage: Stage) -> list[Said]:
    session = stage.session(limits={"idle_timeout_s": 1})
    for text in ("say one", "say two"):
        stage.turn(session, text)
        stage.suspended(session)
    return [Said(session, ["say one", "say two"])]


def two_sessions_at_once(stage: Stage) -> list[Said]:
    return _side_by_side(stage, [stage.session(), stage.session()])


def two_sessions_in_one_process(stage: Stage) -> list[Said]:
    said = _side_by_side(stage, [stage.session(shared=True), stage.session(shared=True)])
    assert len({stage.pid(session) for session, _ in said}) == 1, "each session has its own process"
    return said


def _side_by_side(stage: Stage, sessions: list[str]) -> list[Said]:
    said: list[list[str]] = [[], []]
    for _ in range(2):
        sent = []
        for session, texts in zip(sessions, said, strict=True):
            texts.append(f"say {len(texts)} of {sessions.index(session)}")
            sent.append((session, stage.send(session, texts[-1])))
        for session, number in sent:
            stage.ended(session, number)
    return [Said(session, texts) for session, texts in zip(sessions, said, strict=True)]


def cancelled_then_continued(stage: Stage) -> list[Said]:
    session, said = _two_turns(stage)
    number = stage.send(session, LONG)
    stage.until_said(session, number, "w3 ")
    stage.abort(session)
    stage.ended(session, number, "cancelled")
    return [Said(session, [*said, LONG])]


SCENARIOS: dict[str, Callable[[Stage], list[Said]]] = {
    "three turns": three_turns,
    "agent killed between turns": agent_killed_between_turns,
    "agent killed in a turn": agent_killed_in_a_turn,
    "server restarted between turns": server_restarted_between_turns,
    "server killed in a turn": server_killed_in_a_turn,
    "suspended and woken": suspended_and_woken,
    "two sessions at once": two_sessions_at_once,
    "two sessions in one process": two_sessions_in_one_process,
    "cancelled, then continued": cancelled_then_continued,
}


def play(stage: Stage, event: str) -> Verdict:
    """Run a scenario, then ask the model what it received. It holds if each message came once, in order."""
    verdict = Verdict(False, "", "")
    for session, texts in SCENARIOS[event](stage):
        found = stage.recalled(session)
        plan, reason = stage.plan(session)
        detail = "" if found == texts else f"said {texts}, and the model was told {found}"
        verdict = Verdict(found == texts, plan, reason, detail)
        if not verdict.held:
            break
    return verdict


def _two_turns(stage: Stage) -> tuple[str, list[str]]:
    session = stage.session()
    said = ["say one", "say two"]
    for text in said:
        stage.turn(session, text)
    return session, said
