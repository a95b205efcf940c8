"""The same conversations with real processes: a real server, and the rehearsal agent in each of its three families.

Each message asks the agent which messages are in its context. The answer is compared with a simple list of what was
sent, edited and rewound. At the end the agent lists everything, including its answers, even incomplete ones.
"""

import json
from typing import Any, NamedTuple

from perdure.core import events as ev
from perdure.core.transcript import History
from tests.conversations import script
from tests.end_to_end.victims import kill
from tests.harness import LiveServer, eventually

FAMILIES = dict(zip(script.AGENTS, ("rehearsal", "rehearsal-stream", "rehearsal-resume"), strict=True))


class Shown(NamedTuple):
    number: int
    message: str
    ended: bool


class Violation(AssertionError):
    """An agent's context differs from what people see."""


class Play:
    def __init__(self, server: LiveServer) -> None:
        self.server = server
        self.session = server.create(agent=FAMILIES[script.AGENTS[0]])
        self.shown: list[Shown] = []
        self.count = 0
        self.poisoned: set[str] = set()
        """Agents whose native session was poisoned. Each may fail once."""

    def play(self, steps: list[script.Step]) -> None:
        for step in steps:
            getattr(self, f"_{type(step).__name__.lower()}")(step)
        self._recite()
        self.server.post(f"/api/sessions/{self.session}/stop", expect=200)

    # Steps ---------------------------------------------------------------------------------------------------------

    def _say(self, step: script.Say) -> None:
        self.count += 1
        tail = {
            "well": "recall",
            "cancelled": "hang",
            "crashed": "crash",
            "refuse": "reject-resume\nrecall",
            "poison": "poison\nrecall",
        }[step.ending]
        text = f"say answer {self.count}\n{tail}"
        taken = self.server.send(self.session, text, agent=FAMILIES[step.agent], fresh=step.fresh)
        if step.ending == "cancelled":
            # A poisoned session never answers it.
            eventually(
                lambda: self._said(taken["turn"]) or self.server.session(self.session)["state"] != "processing",
                "the turn has said something, or is over",
            )
            self.server.http.post(f"/api/sessions/{self.session}/abort")
        self._over(taken["turn"], text, step.ending)

    def _edit(self, step: script.Edit) -> None:
        if self.shown:
            self.count += 1
            index = step.place % len(self.shown)
            turn, text = self.shown[index], f"say edited {self.count}"
            message_id = self._turns()[turn.number]["message_id"]
            answer = self.server.http.patch(f"/api/sessions/{self.session}/messages/{message_id}", json={"text": text})
            assert answer.status_code == 200, answer.text
            self.shown[index] = turn._replace(message=text)

    def _rewind(self, step: script.Rewind) -> None:
        if self.shown:
            index = step.place % len(self.shown)
            self.server.post(f"/api/sessions/{self.session}/rewind", {"turn": self.shown[index].number}, expect=200)
            del self.shown[index:]

    def _retry(self, step: script.Retry) -> None:
        if self.shown:
            self.count += 1
            index = step.place % len(self.shown)
            body: dict[str, Any] = {"turn": self.shown[index].number, "agent": FAMILIES[step.agent]}
            text = self.shown[index].message
            if not text.endswith("recall"):
                body["text"] = text = f"say again {self.count}\nrecall"
            taken = self.server.post(f"/api/sessions/{self.session}/retry", body, expect=202)
            del self.shown[index:]
            # A retried `poison` poisons the session again.
            self._over(taken["turn"], text, "poison" if "poison" in text.split("\n") else "well")
            assert self._turns()[taken["turn"]]["context"] == "fresh"

    def _suspend(self, _: script.Suspend) -> None:
        self.server.stop()
        self.server.restart()

    def _restart(self, _: script.Restart) -> None:
        self.server.kill()
        self.server.restart()

    def _kill(self, _: script.Kill) -> None:
        pid = self.server.session(self.session)["pid"]
        if pid is not None:
            kill(pid)
            # A message that is sent before the server notices goes to the dead process, and its turn fails.
            eventually(lambda: self.server.session(self.session)["pid"] != pid, "the server knows that it is dead")

    def _fork(self, step: script.Fork) -> None:
        if self.shown:
            last = self.shown[step.place % len(self.shown)].number
            made = self.server.post(f"/api/sessions/{self.session}/fork", {"turn": last}, expect=201)
            self.server.post(f"/api/sessions/{self.session}/stop", expect=200)
            self.session = made["id"]
            self.shown = [turn for turn in self.shown if turn.number <= last]
            assert [turn["turn"] for turn in made["turns"]] == [turn.number for turn in self.shown]

    # What must hold --------------------------------------------------------------------------------------------------

    def _over(self, number: int, text: str, ending: script.Ending) -> None:
        self.server.wait_idle(self.session)
        turn = self._turns()[number]
        self.shown.append(Shown(number, text, turn["stop_reason"] == "end_turn"))
        if turn["stop_reason"] == "end_turn":
            said = self.server.text(self.session, number)
            held = [json.loads(line[2:]) for line in said.split("\n") if line.startswith("- ")]
            self._same([turn.message for turn in self.shown], held, turn)
        elif turn["stop_reason"] == "failed" and ending != "crashed":
            assert turn["agent"] in self.poisoned, (turn, self.server.log_tail())
            self.poisoned.discard(turn["agent"])
        if ending == "poison" and turn["stop_reason"] == "end_turn":
            self.poisoned.add(turn["agent"])

    def _recite(self) -> None:
        """The agent's context, messages and answers, equals what people see."""
        for _ in range(2):
            taken = self.server.send(self.session, "recite")
            self.server.wait_idle(self.session)
            turn = self._turns()[taken["turn"]]
            if turn["stop_reason"] == "end_turn":
                break
            self.shown.append(Shown(taken["turn"], "recite", False))
            assert turn["agent"] in self.poisoned, turn
        history = History()
        for event in self.server.log(self.session):
            history.fold(ev.decode(json.dumps(event).encode()))
        wanted: list[tuple[str, str]] = []
        for shown in self.shown:
            wanted.append(("user", shown.message))
            wanted += [("assistant", one.text) for one in history.said([shown.number])[1:] if one.text]
        lines = self.server.text(self.session, taken["turn"]).split("\n")[1:]
        held = [(role[2:], json.loads(text).strip("\n")) for role, _, text in (line.partition(": ") for line in lines)]
        self._same([*wanted, ("user", "recite")], held, turn)

    def _turns(self) -> dict[int, Any]:
        return {turn["turn"]: turn for turn in self.server.session(self.session)["turns"]}

    def _said(self, number: int) -> bool:
        turns = self.server.get(f"/api/sessions/{self.session}/transcript?from_turn={number}")["turns"]
        return any(part["type"] == "text" for turn in turns for part in turn["parts"])

    def _same(self, wanted: list[Any], held: list[Any], turn: Any) -> None:
        if held != wanted:
            plan = f"{turn['context']} ({turn['context_reason']})"
            raise Violation(f"turn {turn['turn']}, {plan}:\n  people see    {wanted}\n  the agent has {held}")
