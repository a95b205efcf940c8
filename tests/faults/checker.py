"""Whether a run's history is one that nodes may produce: functions from what was recorded to the violations in it.

Above: run.py and the tests; `python -m tests.faults.checker HISTORY` checks a file again. Below: history.py. Nothing
here knows a node, a clock or a database. An empty list is the good answer.
"""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.history import Record, of, read

PAUSED_S = 0.3
"""Between two notes of an agent that are further apart it was paused, or at least did not show that it was not."""
REST_LIMIT_S = 45.0
"""After the last fault is healed: nothing runs or waits any more, and every viewer has seen everything."""
WORD = re.compile(r"w(\d+) ")
DELTAS = ("assistant_text", "assistant_thinking")
STREAM = re.compile(r"stream (\d+) (\d+)")

Event = dict[str, Any]
Log = list[Event]


class Interval(NamedTuple):
    begin_s: float
    end_s: float
    pid: int


def check(records: list[Record]) -> list[str]:
    """Everything that is wrong with a run."""
    found = [f"stuck: {record['what']}" for record in of(records, "stuck")]
    found += [
        f"it came to rest only after {record['within_s']} s"
        for record in of(records, "rest")
        if record["within_s"] > REST_LIMIT_S
    ]
    logs = final_logs(records)
    for session, by_node in logs.items():
        found += check_same(session, by_node)
        log = next(iter(by_node.values()))
        operations = list(of(records, "op", session=session))
        found += check_order(session, log)
        found += check_times(session, log)
        found += check_turns(session, log)
        found += check_words(session, log)
        found += check_messages(session, operations, log)
        still_open = [one for record in of(records, "prompts", session=session) for one in record["prompts"]]
        found += check_prompts(session, operations, log, [prompt["prompt_id"] for prompt in still_open])
        seen = [record for record in records if record["kind"] in ("open", "frame") and record["session"] == session]
        for viewer in sorted({record["viewer"] for record in seen}):
            found += check_viewer(viewer, [record for record in seen if record["viewer"] == viewer], log)
    return found + check_lifetimes(of(records, "lifetime"))


def final_logs(records: list[Record]) -> dict[str, dict[str, Log]]:
    """By session and node."""
    logs: dict[str, dict[str, Log]] = defaultdict(dict)
    for record in of(records, "log"):
        logs[record["session"]][record["node"]] = record["events"]
    return logs


# (a) Messages ------------------------------------------------------------------------------------------------------


def check_messages(session: str, operations: Sequence[Record], log: Log) -> list[str]:
    """Each acknowledged message was taken once and its turn ended, or it was withdrawn where everybody sees it."""
    found = []
    taken = Counter(event["message_id"] for event in log if event["type"] == "user_message")
    unqueued = {event["message_id"] for event in log if event["type"] == "message_unqueued"}
    sent = {record["op"] for record in operations if record["what"] == "send"}
    for message_id, count in taken.items():
        if count > 1:
            found.append(f"{session}: message {message_id} was taken {count} times")
        if message_id not in sent:
            found.append(f"{session}: nobody sent message {message_id}")
    phases: dict[str, list[str]] = defaultdict(list)
    for record in operations:
        if record["what"] == "send":
            phases[record["op"]].append(record["phase"])
    for message_id, seen in phases.items():
        if seen[-1] == "ok" and not taken[message_id] and message_id not in unqueued:
            found.append(f"{session}: message {message_id} was acknowledged and is nowhere")
        if seen[-1] == "fail" and "unknown" not in seen and taken[message_id]:
            found.append(f"{session}: message {message_id} was refused and taken all the same")
        if seen[-1] in ("invoke", "unknown"):
            found.append(f"{session}: message {message_id} never got a definite answer")
    return found


def check_turns(session: str, log: Log) -> list[str]:
    """A turn is accepted, begins, speaks and ends, one after the other; in the end none is open."""
    found = []
    turn: int | None = None
    begun = False
    for event in log:
        kind, number = event["type"], event["turn"]
        if kind == "user_message":
            if turn is not None:
                found.append(f"{session}: turn {number} was accepted at {event['seq']} while turn {turn} ran")
            turn, begun = number, False
        elif kind == "turn_start":
            if number != turn or begun:
                found.append(f"{session}: turn {number} began at {event['seq']}, out of order")
            begun = True
        elif kind == "turn_end":
            if number != turn:
                found.append(f"{session}: turn {number} ended at {event['seq']}, and turn {turn} ran")
            turn = None
        elif kind == "assistant_text" and (number != turn or not begun):
            found.append(f"{session}: somebody spoke in turn {number} at {event['seq']}, and turn {turn} ran")
    if turn is not None:
        found.append(f"{session}: turn {turn} never ended")
    return found


# (b) Order ---------------------------------------------------------------------------------------------------------


def first_of(event: Event) -> int:
    return int(event.get("first_seq") or event["seq"])


def check_order(session: str, log: Log) -> list[str]:
    """Numbers from 1, without a gap and without a double. What was joined counts as what it was made of."""
    position = 0
    for event in log:
        if first_of(event) != position + 1:
            return [f"{session}: after {position} the log goes on with {first_of(event)}"]
        position = event["seq"]
    return []


def check_times(session: str, log: Log) -> list[str]:
    """An event is never dated before what its writer has read, whatever a node's clock says. A command's writer has
    read all events but the last deltas of the owner."""
    found = []
    last: Event | None = None
    for before, event in pairwise([None, *log]):
        assert event is not None
        last = before if before is not None and before["type"] not in DELTAS else last
        read = before if before is not None and event["type"] in DELTAS else last
        if read is not None and event["at"] < read["at"]:
            found.append(f"{session}: event {event['seq']} is of {event['at']}, and {read['seq']} of {read['at']}")
    return found


def joined(log: Log) -> list[tuple[Any, ...]]:
    """What a log says, however much of it was joined by compaction: (numbers, turn and text) of deltas in a row, and
    every other event as it is."""
    made: list[tuple[Any, ...]] = []
    for event in log:
        if event["type"] not in DELTAS:
            made.append((event["seq"], event))
            continue
        about = (event["type"], event["turn"], event.get("block"))
        if made and made[-1][1] == about and made[-1][0][1] + 1 == first_of(event):
            made[-1] = ((made[-1][0][0], event["seq"]), about, made[-1][2] + event["delta"])
        else:
            made.append(((first_of(event), event["seq"]), about, event["delta"]))
    return made


def check_same(session: str, by_node: dict[str, Log]) -> list[str]:
    (first, log), *others = by_node.items()
    different = [node for node, other in others if joined(other) != joined(log)]
    return [f"{session}: nodes {first} and {node} show different logs" for node in different]


def check_viewer(viewer: str, seen: Sequence[Record], log: Log) -> list[str]:
    """It saw each number once, in order, over all its connections; a snapshot takes it ahead, and never back."""
    types: dict[int, str] = {}
    for event in log:
        for seq in range(first_of(event), event["seq"] + 1):
            types[seq] = event["type"]
    found = []
    position = 0
    begun = False
    for record in seen:
        if record["kind"] == "open":
            continue
        where = f"viewer {viewer} of {record['session']} at {record['at_s']} s"
        if record["type"] == "snapshot":
            if record["seq"] < position:
                found.append(f"{where}: a snapshot goes back from {position} to {record['seq']}")
        elif not begun:
            found.append(f"{where}: it began with {record['type']} instead of a snapshot")
        elif record["first_seq"] != position + 1:
            found.append(f"{where}: after {position} came {record['first_seq']}")
        elif types.get(record["seq"]) != record["type"]:
            found.append(f"{where}: it saw {record['type']} as {record['seq']}; the log has {types.get(record['seq'])}")
        position, begun = record["seq"], True
    return found


# (c) Writers -------------------------------------------------------------------------------------------------------


def check_words(session: str, log: Log) -> list[str]:
    """`stream N` says w0 w1 w2 ...: a turn's words are a beginning of that, and all of it if it ended well."""
    found = []
    wanted: dict[int, int] = {}
    said: dict[int, str] = defaultdict(str)
    ends: dict[int, str] = {}
    for event in log:
        if event["type"] == "user_message" and (match := STREAM.fullmatch(event["text"])):
            wanted[event["turn"]] = int(match[1])
        elif event["type"] == "assistant_text":
            said[event["turn"]] += event["delta"]
        elif event["type"] == "turn_end":
            ends[event["turn"]] = event["stop_reason"]
    for turn, count in wanted.items():
        words = [int(number) for number in WORD.findall(said[turn])]
        if words != list(range(len(words))) or len(words) > count or WORD.sub("", said[turn]).strip():
            found.append(f"{session}: turn {turn} says {said[turn][-200:]!r} for stream {count}")
        elif ends.get(turn) == "end_turn" and len(words) != count:
            found.append(f"{session}: turn {turn} ended well after {len(words)} of {count} words")
    return found


# (d) Agents --------------------------------------------------------------------------------------------------------


def intervals(pid: int, ticks: Iterable[float]) -> list[Interval]:
    """When a process was able to act, from its notes."""
    ordered = sorted(ticks)
    if not ordered:
        return []
    made, begin_s = [], ordered[0]
    for before_s, after_s in pairwise(ordered):
        if after_s - before_s >= PAUSED_S:
            made.append(Interval(begin_s, before_s, pid))
            begin_s = after_s
    return [*made, Interval(begin_s, ordered[-1], pid)]


def check_lifetimes(lifetimes: Iterable[Record]) -> list[str]:
    """No two agents of one session were able to act at the same time. A session has a directory of its own."""
    by_directory: dict[str, list[Interval]] = defaultdict(list)
    for record in lifetimes:
        by_directory[record["directory"]] += intervals(record["pid"], record["ticks"])
    found = []
    for directory, alive in by_directory.items():
        last: Interval | None = None
        for one in sorted(alive):
            if last is not None and one.pid != last.pid and one.begin_s < last.end_s:
                both_s = min(one.end_s, last.end_s) - one.begin_s
                found.append(f"{directory}: agents {last.pid} and {one.pid} both acted for {both_s:.3f} s")
            last = one if last is None or one.end_s > last.end_s else last
    return found


# (e) Prompts -------------------------------------------------------------------------------------------------------


def check_prompts(session: str, operations: Sequence[Record], log: Log, still_open: Sequence[str]) -> list[str]:
    """Each prompt was resolved once, or can still be answered; an acknowledged answer has resolved its prompt."""
    found = []
    asked = Counter(event["prompt_id"] for event in log if event["type"] == "pending_prompt")
    resolved = Counter(event["prompt_id"] for event in log if event["type"] == "prompt_resolved")
    for prompt_id in asked | resolved:
        if resolved[prompt_id] > 1:
            found.append(f"{session}: prompt {prompt_id} was resolved {resolved[prompt_id]} times")
        if asked[prompt_id] != 1:
            found.append(f"{session}: prompt {prompt_id} was asked {asked[prompt_id]} times")
        if not resolved[prompt_id] and prompt_id not in still_open:
            found.append(f"{session}: prompt {prompt_id} is lost: neither resolved nor open")
    answered = {record["op"] for record in operations if record["what"] == "answer" and record["phase"] == "ok"}
    lost = sorted(prompt_id for prompt_id in answered if not resolved[prompt_id])
    return found + [f"{session}: the answer to prompt {one} was acknowledged and is nowhere" for one in lost]


if __name__ == "__main__":
    violations = [line for name in sys.argv[1:] for line in check(read(Path(name)))]
    sys.stdout.write("".join(f"{line}\n" for line in violations))
    sys.exit(1 if violations else 0)
