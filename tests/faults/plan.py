"""Makes a plan from a seed: how many nodes and sessions there are, who sends what and when, and which faults happen.

Above: run.py carries out the plan. Below: only Random(seed), so the same seed gives the same plan. Times are seconds
since the start of the run.
"""

from random import Random
from typing import NamedTuple

TROUBLE_S = 16.0
"""The period in which faults begin."""
CALM_S = 1.5
"""The time before the first fault."""
MESSAGES_PER_CLIENT = 7
CLIENTS = 3
NODE_FAULTS = ("kill", "kill", "stop", "stop", "delay", "cut", "cut", "freeze", "deafen", "refuse")
DATABASE_FAULTS = ("restart_database", "kill_database", "lose_database")


class Action(NamedTuple):
    """One thing that a client does. `session` and `node` are numbers; `what` is "send" or "abort"."""

    at_s: float
    what: str
    session: int
    node: int
    text: str = ""
    when_busy: str = "queue"


class Fault(NamedTuple):
    """`node` is a number, or -1 for the database. `amount` is a delay, a share of connections or a clock offset."""

    at_s: float
    what: str
    node: int
    for_s: float = 0.0
    amount: float = 0.0


class Plan(NamedTuple):
    nodes: int
    sessions: int
    takeover_s: float
    shared_memory: bool
    has_replica: bool
    has_clocks: bool
    clients: list[list[Action]]
    viewers: list[int]
    """The session that each viewer follows."""
    faults: list[Fault]


def make_plan(seed: int, *, can_fake_time: bool) -> Plan:
    random = Random(seed)
    nodes, sessions = random.randint(2, 3), random.randint(3, 5)
    takeover_s = random.choice((3.0, 4.0))
    shared_memory, has_replica = random.random() < 0.7, random.random() < 0.3
    wants_clocks = random.random() < 0.3
    clients = [_client(random, nodes, sessions) for _ in range(CLIENTS)]
    viewers = [random.randrange(sessions) for _ in range(sessions)]
    faults = _faults(random, nodes, takeover_s, has_replica=has_replica, has_clocks=wants_clocks)
    if not can_fake_time:
        faults = [fault for fault in faults if fault.what != "clock"]
    has_clocks = wants_clocks and can_fake_time
    return Plan(nodes, sessions, takeover_s, shared_memory, has_replica, has_clocks, clients, viewers, faults)


def _client(random: Random, nodes: int, sessions: int) -> list[Action]:
    actions = []
    for _ in range(MESSAGES_PER_CLIENT):
        at_s, session, node = random.uniform(0, TROUBLE_S), random.randrange(sessions), random.randrange(nodes)
        when_busy = random.choice(("queue", "queue", "queue", "interrupt", "reject"))
        actions.append(Action(at_s, "send", session, node, _text(random), when_busy))
        if random.random() < 0.15:
            actions.append(Action(at_s + random.uniform(0, 2), "abort", session, random.randrange(nodes)))
    return sorted(actions)


def _text(random: Random) -> str:
    return random.choice(
        (
            f"stream {random.randint(5, 80)} {random.randint(5, 60)}",
            f"stream {random.randint(5, 80)} {random.randint(5, 60)}",
            f"stream {random.randint(100, 300)} {random.randint(1, 20)}",
            f"say word{random.randint(0, 999)}",
            "permit Deploy",
            f"sleep {random.choice((0.2, 0.5, 1.5))}",
            "recall",
        )
    )


def _faults(random: Random, nodes: int, takeover_s: float, *, has_replica: bool, has_clocks: bool) -> list[Fault]:
    """Several faults at the same time, but only one for each node and one for the database."""
    free_at_s = dict.fromkeys(range(-1, nodes), CALM_S)
    faults: list[Fault] = []
    at_s = CALM_S
    while at_s < TROUBLE_S:
        subject = random.randrange(nodes) if random.random() < 0.8 else -1
        what = random.choice(NODE_FAULTS if subject >= 0 else DATABASE_FAULTS)
        if has_clocks and subject >= 0 and random.random() < 0.2:
            what = "clock"
        for_s = random.choice((random.uniform(0.1, 1.0), random.uniform(1.0, 1.2 * takeover_s), 2 * takeover_s))
        if what == "lose_database":
            for_s = takeover_s + random.uniform(0.5, 2.0)
        amount = {
            "delay": random.uniform(0.02, 0.4),
            "cut": random.choice((0.3, 0.6, 1.0)),
            "clock": random.choice((-86_400.0, -30.0, 30.0, 3_600.0, 86_400.0)),
        }.get(what, 0.0)
        if free_at_s[subject] <= at_s:
            faults.append(Fault(at_s, what, subject, for_s, amount))
            free_at_s[subject] = at_s + for_s + 0.5
        at_s += random.uniform(0.4, 2.0)
    if has_replica:
        # No other database faults then: after the failover there is no replica left.
        moment_s = random.uniform(CALM_S, TROUBLE_S)
        faults = [fault for fault in faults if fault.node >= 0]
        faults.append(Fault(moment_s, "fail_over", -1))
    return sorted(faults)
