"""Checks whether a run's history is correct: functions that take recorded data and return the violations in it.

Above: run.py and the tests; `python -m tests.faults.checker HISTORY` checks a file again. Below: history.py. Nothing
here uses a node, a clock or a database. An empty list means that everything is correct.
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
"""If two records of an agent are further apart, it counts as paused in between."""
REST_LIMIT_S = 45.0
"""How long after the last fault it may take until nothing runs or waits, and every viewer has seen everything."""
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
    """All violations of a run."""
    found = [f"stuck: {record['what']}" for record in of(records, "stuck")]
    found += [
        f"it took {record['within_s']} s to come to rest"
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
    """The logs by session and node."""
    logs: dict[str, dict[str, Log]] = defaultdict(dict)
    for record in of(records, "log"):
        logs[record["session"]][record["node"]] = record["events"]
    return logs


# (a) Messages ------------------------------------------------------------------------------------------------------


def check_messages(session: str, operations: Sequence[Record], log: Log) -> list[str]:
    """Each acknowledged message is in the log exactly once, or the log shows that it was withdrawn."""
    found = []
    taken = Counter(event["message_id"] for event in log if event["type"] == "user_message")
    unqueued = {event["message_id"] for event in log if event["type"] == "message_unqueued"}
    sent = {record["op"] for record in operations if record["what"] == "send"}
    for message_id, count in taken.items():
        if count > 1:
            found.append(f"{session}: message {message_id} is in the log {count} times")
        if message_id not in sent:
            found.append(f"{session}: nobody sent message {message_id}")
    phases: dict[str, list[str]] = defaultdict(list)
    for record in operations:
        if record["what"] == "send":
            phases[record["op"]].append(record["phase"])
    for message_id, seen in phases.items():
        if seen[-1] == "ok" and not taken[message_id] and message_id not in unqueued:
            found.append(f"{session}: message {message_id} was acknowledged but is missing")
        if seen[-1] == "fail" and "unknown" not in seen and taken[message_id]:
            found.append(f"{session}: message {message_id} was refused but is in the log")
        if seen[-1] in ("invoke", "unknown"):
            found.append(f"{session}: message {message_id} never got a definite response")
    return found


def check_turns(session: str, log: Log) -> list[str]:
    """Turns are accepted, begin, produce text and end, one at a time. At the end none is open."""
    found = []
    turn: int | None = None
    begun = False
    for event in log:
        kind, number = event["type"], event["turn"]
        if kind == "user_message":
            if turn is not None:
                found.append(f"{session}: turn {number} was accepted at {event['seq']} during turn {turn}")
            turn, begun = number, False
        elif kind == "turn_start":
            if number != turn or begun:
                found.append(f"{session}: turn {number} began at {event['seq']}, out of order")
            begun = True
        elif kind == "turn_end":
            if number != turn:
                found.append(f"{session}: turn {number} ended at {event['seq']} during turn {turn}")
            turn = None
        elif kind == "assistant_text" and (number != turn or not begun):
            found.append(f"{session}: text of turn {number} at {event['seq']} during turn {turn}")
    if turn is not None:
        found.append(f"{session}: turn {turn} never ended")
    return found


# (b) Order ---------------------------------------------------------------------------------------------------------


def first_of(event: Event) -> int:
    return int(event.get("first_seq") or event["seq"])


def check_order(session: str, log: Log) -> list[str]:
    """Event numbers start at 1 and have no gaps or duplicates. A compacted event covers all its original numbers."""
    position = 0
    for event in log:
        if first_of(event) != position + 1:
            return [f"{session}: after {position} the log continues with {first_of(event)}"]
        position = event["seq"]
    return []


def check_times(session: str, log: Log) -> list[str]:
    """An event is never dated before events that its writer had read, whatever a node's clock says. The writer of a
    command has read all events except possibly the owner's last deltas."""
    found = []
    last: Event | None = None
    for before, event in pairwise([None, *log]):
        assert event is not None
        last = before if before is not None and before["type"] not in DELTAS else last
        read = before if before is not None and event["type"] in DELTAS else last
        if read is not None and event["at"] < read["at"]:
            found.append(f"{session}: event {event['seq']} is at {event['at']}, before {read['seq']} at {read['at']}")
    return found


def joined(log: Log) -> list[tuple[Any, ...]]:
    """A log's content, independent of compaction: (numbers, turn, text) for consecutive deltas, and every other event
    unchanged."""
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
    """The viewer saw each number once and in order across all its connections. A snapshot may skip ahead, but never
    back."""
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
            found.append(f"{where}: started with {record['type']} instead of a snapshot")
        elif record["first_seq"] != position + 1:
            found.append(f"{where}: after {position} came {record['first_seq']}")
        elif types.get(record["seq"]) != record["type"]:
            found.append(f"{where}: saw {record['type']} as {record['seq']}; the log has {types.get(record['seq'])}")
        position, begun = record["seq"], True
    return found


# (c) Writers -------------------------------------------------------------------------------------------------------


def check_words(session: str, log: Log) -> list[str]:
    """`stream N` prints w0 w1 w2 ... A turn's text must be a prefix of that, and all of it if the turn completed."""
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
            found.append(f"{session}: turn {turn} has the text {said[turn][-200:]!r} for stream {count}")
        elif ends.get(turn) == "end_turn" and len(words) != count:
            found.append(f"{session}: turn {turn} completed after {len(words)} of {count} words")
    return found


# (d) Agents --------------------------------------------------------------------------------------------------------


def intervals(pid: int, ticks: Iterable[float]) -> list[Interval]:
    """When a process was able to act, according to its records."""
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
    """No two agents of a session were able to act at the same time. Each session has its own directory."""
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
    """Each prompt was resolved once or is still open, and each acknowledged answer has resolved its prompt."""
    found = []
    asked = Counter(event["prompt_id"] for event in log if event["type"] == "pending_prompt")
    resolved = Counter(event["prompt_id"] for event in log if event["type"] == "prompt_resolved")
    for prompt_id in asked | resolved:
        if resolved[prompt_id] > 1:
            found.append(f"{session}: prompt {prompt_id} was resolved {resolved[prompt_id]} times")
        if asked[prompt_id] != 1:
            found.append(f"{session}: prompt {prompt_id} was asked {asked[prompt_id]} times")
        if not resolved[prompt_id] and prompt_id not in still_open:
            found.append(f"{session}: prompt {prompt_id} is lost; it is neither resolved nor open")
    answered = {record["op"] for record in operations if record["what"] == "answer" and record["phase"] == "ok"}
    lost = sorted(prompt_id for prompt_id in answered if not resolved[prompt_id])
    return found + [f"{session}: the answer to prompt {one} was acknowledged but is missing" for one in lost]


if __name__ == "__main__":
    violations = [line for name in sys.argv[1:] for line in check(read(Path(name)))]
    sys.stdout.write("".join(f"{line}\n" for line in violations))
    sys.exit(1 if violations else 0)
