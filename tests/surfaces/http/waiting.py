"""Turns that wait for a person while the test looks at what else may happen in their directory."""

import contextlib
from collections.abc import Callable, Iterator

from tests.harness import eventually
from tests.surfaces.http.local import LocalServer
from tests.surfaces.http.test_changes import Scratch


def works_in(scratch: Scratch) -> list[str]:
    server = scratch.server
    found: list[str] = server.ask(lambda: server.server.engine.recorder.works_in(str(scratch.root)))
    return found


def waiting_turn(server: LocalServer, session: str) -> Callable[[], None]:
    """A turn that asks a person. Returns a function that answers and waits for its end."""
    server.send(session, "ask Go on? | yes")
    prompt = server.prompt(session)

    def answer() -> None:
        answers = {"answers": {prompt["questions"][0]["question_id"]: "yes"}}
        server.post(f"/api/sessions/{session}/prompts/{prompt['prompt_id']}", answers, expect=200)
        server.wait_idle(session)

    return answer


@contextlib.contextmanager
def without_snapshots(scratch: Scratch) -> Iterator[None]:
    """As in the middle of a rebase."""
    rebase = scratch.root / ".git" / "rebase-merge"
    rebase.mkdir()
    yield
    rebase.rmdir()


def keeps_a_restore_away(scratch: Scratch, other: str, answer: Callable[[], None]) -> None:
    """The other session's turn works here until it is answered. Only then can turn 1 be restored."""
    refused = scratch.post("restore", {"turn": 1}, expect=409)
    assert (refused["code"], other in refused["detail"]) == ("turn_active", True)
    answer()
    eventually(lambda: works_in(scratch) == [], "it is over")
    scratch.post("restore", {"turn": 1})
    assert set(scratch.files()) == {"a.txt"}
