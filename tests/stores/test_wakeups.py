"""Wake-ups reach whoever listens, and nobody who stopped listening."""

from perdure.stores.wakeups import LocalWakeups


def test_every_listener_hears_of_a_session() -> None:
    wakeups = LocalWakeups()
    first: list[str] = []
    second: list[str] = []
    wakeups.listen(first.append)
    wakeups.listen(second.append)
    wakeups.announce("s_1")
    assert (first, second) == (["s_1"], ["s_1"])


def test_one_that_stopped_listening_hears_nothing_more() -> None:
    wakeups = LocalWakeups()
    heard: list[str] = []
    stop = wakeups.listen(heard.append)
    wakeups.announce("s_1")
    stop()
    wakeups.announce("s_2")
    assert heard == ["s_1"]


def test_a_listener_may_stop_while_it_is_told() -> None:
    wakeups = LocalWakeups()
    heard: list[str] = []

    def once(session_id: str) -> None:
        heard.append(session_id)
        stop()

    stop = wakeups.listen(once)
    wakeups.listen(heard.append)
    wakeups.announce("s_1")
    wakeups.announce("s_2")
    assert heard == ["s_1", "s_1", "s_2"]
