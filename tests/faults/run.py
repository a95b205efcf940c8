"""One seed is one run: nodes, clients and viewers, a period of faults, then peace, in which everything must come to
rest.

Above: test_faults.py; `python -m tests.faults.run SEED...` runs single seeds. Below: plan.py decides what happens,
nodes.py and database.py inject the faults, workload.py uses the nodes, checker.py checks the result. The history is in
a file; if a check fails, the message names the file and the seed.
"""

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from signal import SIGCONT, SIGSTOP
from typing import Any

import httpx2

from tests.faults import checker
from tests.faults.database import Database
from tests.faults.history import History, read
from tests.faults.nodes import REQUEST_TIMEOUT_S, FaultNode, Nodes, Supervisor, faketime
from tests.faults.plan import TROUBLE_S, Fault, Plan, make_plan
from tests.faults.workload import Answerer, Client, WorkloadViewer
from tests.harness import LiveServer, eventually

WORKERS_END_S = 15.0
CREATED_WITHIN_S = 20.0
LOGS_WITHIN_S = 15.0


class FaultViolation(AssertionError):
    """A run violated a guarantee."""


class FaultRun:
    def __init__(self, seed: int, folder: Path, *, plan: Plan | None = None, mutant: str = "") -> None:
        self.seed = seed
        self.plan = plan or make_plan(seed, can_fake_time=faketime() is not None)
        self._folder = folder
        self._mutant = mutant
        self.history = History(folder / f"history-{seed}.ndjson")
        self._over = threading.Event()
        self._random = Random(f"{seed} run")

    def play(self) -> list[str]:
        """Play the run and return the violations."""
        self.history.note("run", seed=self.seed, plan=self.plan._asdict())
        if faketime() is None:
            self.history.note("fault", what="skipped", why="no clock jumps: needs libfaketime (Debian: faketime)")
        try:
            self._play()
        finally:
            self.history.close()
        return checker.check(read(self.history.path))

    def run(self) -> None:
        """Play the run; raise FaultViolation if there are violations."""
        if violations := self.play():
            words = "\n  ".join(violations[:20])
            raise FaultViolation(f"seed {self.seed}, history {self.history.path}:\n  {words}")

    # The run -------------------------------------------------------------------------------------------------------

    def _play(self) -> None:
        plan = self.plan
        with ExitStack() as stack:
            database = stack.enter_context(Database(has_replica=plan.has_replica))
            self.nodes = nodes = stack.enter_context(
                Nodes(
                    self._folder,
                    database,
                    self._random,
                    count=plan.nodes,
                    takeover_s=plan.takeover_s,
                    clocks=plan.has_clocks,
                    shared_memory=plan.shared_memory,
                    mutant=self._mutant,
                )
            )
            self._http = stack.enter_context(httpx2.Client(timeout=REQUEST_TIMEOUT_S, trust_env=False, verify=False))
            sessions = [self._create(number) for number in range(plan.sessions)]
            with Supervisor(nodes, self.history.note), self._workers(sessions) as (clients, viewers):
                self._trouble()
                self._peace(sessions, clients, viewers)
            self._note_lifetimes()

    def _create(self, number: int) -> str:
        """On a busy machine a node may stop before any fault, because it was silent for too long. Restart it then."""
        node = self._random.choice(self.nodes.all)

        def created() -> str | None:
            if not node.is_up:
                node.revive()
            try:
                return node.create(workdir=self.nodes.directory(f"s{number}"), title=f"session {number}")
            except httpx2.HTTPError:
                return None

        return str(eventually(created, "a session", CREATED_WITHIN_S))

    @contextmanager
    def _workers(self, sessions: list[str]) -> Iterator[tuple[list[Client], list[WorkloadViewer]]]:
        def shared(name: str) -> tuple[Any, ...]:
            return self.nodes.all, self.history, Random(f"{self.seed} {name}"), self._over

        clients = [
            Client(f"c{number}", actions, sessions, *shared(f"client {number}"))
            for number, actions in enumerate(self.plan.clients)
        ]
        viewers = [
            WorkloadViewer(f"v{number}", sessions[session], *shared(f"viewer {number}"))
            for number, session in enumerate(self.plan.viewers)
        ]
        workers = [*clients, *viewers, Answerer(sessions, *shared("answerer"))]
        for worker in workers:
            worker.start()
        try:
            yield clients, viewers
        finally:
            self._over.set()
            for viewer in viewers:
                viewer.leave()
            for worker in workers:
                worker.join(WORKERS_END_S)

    # Trouble -------------------------------------------------------------------------------------------------------

    def _trouble(self) -> None:
        """Begin and end each fault at its time. `_over` is not set during this; waiting for it is only a sleep."""
        began_s = time.monotonic()
        due: list[tuple[float, int, Callable[[], None]]] = []
        for number, fault in enumerate(self.plan.faults):
            due.append((fault.at_s, number, lambda fault=fault: self._begin(fault)))  # type: ignore[misc]
            due.append((fault.at_s + fault.for_s, number, lambda fault=fault: self._end(fault)))  # type: ignore[misc]
        for at_s, _, act in sorted(due, key=lambda one: one[:2]):
            self._over.wait(max(0.0, began_s + min(at_s, TROUBLE_S + 4) - time.monotonic()))
            act()

    def _begin(self, fault: Fault) -> None:
        self._note_fault(fault, "begin")
        if fault.node < 0:
            self._hurt_database(fault)
        else:
            self._hurt(self.nodes[fault.node], fault)

    def _note_fault(self, fault: Fault, phase: str) -> None:
        about = fault._asdict()
        self.history.note("fault", planned_s=about.pop("at_s"), phase=phase, **about)

    def _hurt_database(self, fault: Fault) -> None:
        database = self.nodes.database
        match fault.what:
            case "restart_database":
                database.restart()
            case "kill_database":
                database.kill()
                database.start()
            case "lose_database":
                database.kill()
            case "fail_over":
                database.fail_over()
                for node in self.nodes:
                    node.proxy.lead_to(database.port)
            case _:
                raise ValueError(fault.what)

    @staticmethod
    def _hurt(node: FaultNode, fault: Fault) -> None:
        match fault.what:
            case "kill":
                node.crash()
            case "stop":
                node.signal(SIGSTOP)
            case "delay":
                node.proxy.delay(0, fault.amount)
            case "cut":
                node.proxy.cut(fault.amount)
            case "freeze":
                node.proxy.freeze()
            case "deafen":
                node.proxy.freeze("notifications")
            case "refuse":
                node.proxy.refuse(True)
                node.proxy.cut()
            case "clock":
                node.set_clock(fault.amount)
            case _:
                raise ValueError(fault.what)

    def _end(self, fault: Fault) -> None:
        self._note_fault(fault, "end")
        if fault.what == "lose_database":
            self.nodes.database.start()
        elif fault.node >= 0:
            self._heal(self.nodes[fault.node])

    @staticmethod
    def _heal(node: FaultNode) -> None:
        node.proxy.heal()
        node.signal(SIGCONT)
        node.should_run = True

    # Peace ---------------------------------------------------------------------------------------------------------

    def _peace(self, sessions: list[str], clients: list[Client], viewers: list[WorkloadViewer]) -> None:
        self.nodes.database.start()
        for node in self.nodes:
            self._heal(node)
        for viewer in viewers:
            viewer.stays = True
        began_s = time.monotonic()
        self.history.note("fault", what="peace")
        waits: list[str] = []

        def is_over() -> bool:
            waits[:] = self._what_waits(sessions, clients, viewers)
            return not waits

        try:
            eventually(is_over, lambda: "; ".join(waits), checker.REST_LIMIT_S)
            self.history.note("rest", within_s=round(time.monotonic() - began_s, 2))
        except AssertionError as error:
            self.history.note("stuck", what=str(error))
        self._note_logs(sessions)

    def _what_waits(self, sessions: list[str], clients: list[Client], viewers: list[WorkloadViewer]) -> list[str]:
        """Describe what is not at rest yet. Asks a random node for each session, as all must show the same."""
        found = [f"node {node.name} is not running" for node in self.nodes if not node.is_up]
        found += ["a client is not done" for client in clients if not client.is_done.is_set()]
        if found:
            return found
        rows = self._random.choice(self.nodes.all).ask(self._http, "/api/nodes")
        if rows is None:
            return ["the nodes can't be listed"]
        # A node that was declared dead runs for a moment after it wakes up. Then it stops and is restarted.
        found = [f"node {row['name']} is {row['state']}" for row in rows["nodes"] if row["state"] != "alive"]
        if found:
            return found
        for session in sessions:
            shown = self._random.choice(self.nodes.all).ask(self._http, f"/api/sessions/{session}")
            if shown is None:
                return [f"session {session} can't be read"]
            if shown["state"] not in ("idle", "ended") or shown["queue_length"] or shown["pending_prompts"]:
                found.append(f"session {session} is {shown['state']} with {shown['queue_length']} queued")
                continue
            ahead = [viewer for viewer in viewers if viewer.session == session and viewer.seq != shown["event_count"]]
            found += [f"a viewer of {session} is at {one.seq} of {shown['event_count']}" for one in ahead]
        return found

    def _note_logs(self, sessions: list[str]) -> None:
        for session in sessions:
            for node in self.nodes:
                events = eventually(
                    lambda node=node, session=session: node.events(self._http, session),  # type: ignore[misc]
                    f"the log of {session} on {node.name}",
                    LOGS_WITHIN_S,
                )
                self.history.note("log", session=session, node=node.name, events=events)
            prompts = self.nodes[0].ask(self._http, f"/api/sessions/{session}/prompts") or {"prompts": []}
            self.history.note("prompts", session=session, prompts=prompts["prompts"])

    def _note_lifetimes(self) -> None:
        note_lifetimes(self.nodes.lifetimes, self.history)


def note_lifetimes(folder: Path, history: History) -> None:
    for path in sorted(folder.iterdir()):
        ticks: dict[tuple[int, str], list[float]] = defaultdict(list)
        # The last line may be incomplete if its process was killed.
        for line in path.read_text().split("\n")[:-1]:
            pid, directory, at = line.split(" ")
            ticks[int(pid), directory].append(float(at))
        for (number, directory), noted in ticks.items():
            if Path(directory).parent.name == "work":
                history.note("lifetime", pid=number, directory=Path(directory).name, ticks=noted)


def main(seeds: list[str]) -> int:
    import tempfile

    LiveServer.is_warm = True
    failed = 0
    for seed in map(int, seeds):
        began_s = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix=f"perdure-fault-{seed}-"))
        try:
            FaultRun(seed, folder).run()
            words = "passed"
        except AssertionError as error:
            words, failed = str(error), failed + 1
        sys.stdout.write(f"seed {seed}: {words} ({time.monotonic() - began_s:.1f} s, {folder})\n")
        sys.stdout.flush()
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
