"""Wake-ups reach every listener, and none that has stopped listening."""

from perdure.stores.wakeups import LocalWakeups


def test_every_other_listener_is_woken() -> None:
    wakeups = LocalWakeups()
    heard: list[tuple[str, str]] = []
    for who in ("one", "two"):
        wakeups.listen(who, lambda session_id, who=who: heard.append((who, session_id)))  # type: ignore[misc]
    wakeups.announce("s_1", "one")
    wakeups.announce("s_2", "nobody")
    assert heard == [("two", "s_1"), ("one", "s_2"), ("two", "s_2")]


def test_a_listener_that_stopped_is_not_called() -> None:
    wakeups = LocalWakeups()
    heard: list[str] = []
    wakeups.listen("other", lambda _: None)
    stop = wakeups.listen("one", heard.append)
    wakeups.announce("s_1", "other")
    stop()
    wakeups.announce("s_2", "other")
    assert heard == ["s_1"]


def test_a_listener_may_stop_while_it_is_woken() -> None:
    wakeups = LocalWakeups()
    heard: list[str] = []

    def once(session_id: str) -> None:
        heard.append(session_id)
        stop()

    stop = wakeups.listen("one", once)
    wakeups.listen("two", heard.append)
    wakeups.announce("s_1", "three")
    wakeups.listen("three", lambda _: None)
    wakeups.announce("s_2", "three")
    assert heard == ["s_1", "s_1", "s_2"]
