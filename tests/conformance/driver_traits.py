"""What every driver's traits must guarantee: the attributes of drivers/base.py with which it answers the runtime.

Above: DriverConformance, and test_traits.py, which checks every registered driver. Below: drivers/base.py.
"""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.drivers import DRIVERS, PER_TURN, names, resolve
from perdure.drivers.base import LAUNCH_FOLDER, Driver, StartSession

NEWEST = "999999.0.0"
OF_A_FAMILY = ("probe", "shares", "is_preferred", "delivers_reasons", "login_hint")
"""The traits that the runtime asks for before it knows which driver of a family runs."""


def check_traits(driver: Driver) -> None:
    """Check all traits of a registered driver."""
    for check in (_name, _family, _process, _fallback, _sharing, _words, _probe, _command):
        check(driver)


def _name(driver: Driver) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9-]*", driver.name)
    assert DRIVERS[driver.name].name == driver.name
    assert driver.name in names()
    assert resolve(driver.name, PER_TURN) == resolve(driver.name) == driver.name


def _family(driver: Driver) -> None:
    if not driver.family:
        return
    assert driver.family not in DRIVERS and driver.family in names()
    members = {one.process_per_turn: one for one in DRIVERS.values() if one.family == driver.family}
    assert resolve(driver.family, PER_TURN) == members[True].name
    for mode in (None, "streaming", "anything"):
        assert resolve(driver.family, mode) == members[False].name
    assert members[driver.process_per_turn].name == driver.name, "a family can't choose between these drivers"
    for trait in OF_A_FAMILY:
        assert getattr(members[True], trait) == getattr(members[False], trait), trait


def _process(driver: Driver) -> None:
    # There is nothing to prewarm or to share if the process exits after the turn.
    assert not (driver.process_per_turn and (driver.prewarms or driver.shares))


def _fallback(driver: Driver) -> None:
    seen, at = {driver.name}, driver
    while at.fallback is not None:
        assert at.fallback in DRIVERS, f"{at.fallback} is not registered"
        assert at.fallback not in seen, "a session would switch back and forth"
        seen.add(at.fallback)
        at = DRIVERS[at.fallback]


def _sharing(driver: Driver) -> None:
    is_implemented = type(driver).join is not Driver.join
    assert is_implemented == driver.shares
    conversation = driver.begin("launch-1")
    for trait in ("joinable", "member", "native_session_id", "taken", "speaks"):
        assert hasattr(conversation, trait) or not driver.shares, trait


def _words(driver: Driver) -> None:
    # It continues a sentence, and is followed by a comma.
    assert driver.login_hint and not driver.login_hint.endswith(".") and "\n" not in driver.login_hint


def _probe(driver: Driver) -> None:
    probe = driver.probe
    assert probe.rules_version > 0
    assert probe.is_required or not (probe.oldest or probe.help_options), "its verdict would not be used"
    for code, output in ((1, NEWEST), (0, ""), (0, "hello")):
        verdict = probe.judge(code, output)
        assert verdict.state == "broken" and verdict.version is None
        assert verdict.reason is not None and verdict.reason.endswith(".")

    @settings(max_examples=100, deadline=None, database=None, derandomize=True)
    @given(
        st.integers(-20, 255),
        st.text(max_size=30) | st.from_regex(r"\d+\.\d+\.\d+ [a-z ()]*"),
        st.none() | st.lists(st.text(max_size=5) | st.sampled_from(["x", *probe.help_options])).map("\n".join),
    )
    def judges_anything(code: int, output: str, help_text: str | None) -> None:
        verdict = probe.judge(code, output, help_text)
        assert verdict == probe.judge(code, output, help_text)
        assert (verdict.reason is None) == (verdict.state == "ready")
        assert verdict.state == "broken" or verdict.version

    judges_anything()


def _command(driver: Driver) -> None:
    argv, order = ["/bin/agent", "--flag"], StartSession("/srv/site")
    command = driver.command(argv, order, "launch-1")
    assert argv == ["/bin/agent", "--flag"], "the configured command is changed"
    assert command == driver.command(argv, order, "launch-1")
    assert command.argv[:2] == argv
    used = {part.removeprefix(LAUNCH_FOLDER) for part in command.argv if part.startswith(LAUNCH_FOLDER)}
    assert used <= set(command.files)
