"""The fault injection tools work: a proxy delays, freezes and cuts; a database is killed and restarted, or fails over
without losing acknowledged data; a plan depends only on its seed."""

import socket
import time
from collections.abc import Iterator
from random import Random

import psycopg
import pytest

from tests.faults.database import Database
from tests.faults.plan import Plan, make_plan
from tests.faults.proxy import Proxy
from tests.harness import eventually

DELAY_S = 0.15
SILENCE_S = 0.2


class Echo:
    """An echo server that handles one connection at a time."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])

    def connect(self, proxy: Proxy) -> tuple[socket.socket, socket.socket]:
        """Both ends of a connection: near and far."""
        near = socket.create_connection(("127.0.0.1", proxy.port), 5)
        self.listener.settimeout(5)
        far, _ = self.listener.accept()
        far.settimeout(5)
        return near, far


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.listener.close()


def test_a_proxy_forwards_delays_freezes_cuts_and_refuses(echo: Echo) -> None:
    with Proxy(echo.port, Random(1)) as proxy:
        near, far = echo.connect(proxy)
        with near, far:
            near.sendall(b"one")
            assert far.recv(10) == b"one"
            proxy.delay(DELAY_S, DELAY_S)
            began_s = time.monotonic()
            far.sendall(b"two")
            assert near.recv(10) == b"two"
            assert time.monotonic() - began_s >= DELAY_S
            proxy.delay(0, 0)
            proxy.freeze()
            near.sendall(b"three")
            far.settimeout(SILENCE_S)
            with pytest.raises(TimeoutError):
                far.recv(10)
            proxy.thaw()
            assert far.recv(10) == b"three"
            proxy.cut()
            with pytest.raises(ConnectionResetError):
                near.recv(10)
        eventually(lambda: proxy.count == 0, "no connection is left")
        proxy.refuse(True)
        # The reset may already arrive while connecting.
        with pytest.raises(ConnectionResetError), socket.create_connection(("127.0.0.1", proxy.port), 5) as refused:
            refused.recv(10)


def test_a_proxy_can_freeze_only_notifications(echo: Echo) -> None:
    with Proxy(echo.port, Random(1)) as proxy:
        (near, far), (listener, notifier) = echo.connect(proxy), echo.connect(proxy)
        with near, far, listener, notifier:
            listener.sendall(b"Q\0\0\0\x0fLISTEN news\0")
            assert b"LISTEN" in notifier.recv(100)
            proxy.freeze("notifications")
            far.sendall(b"rows")
            assert near.recv(10) == b"rows"
            notifier.sendall(b"news")
            listener.settimeout(SILENCE_S)
            with pytest.raises(TimeoutError):
                listener.recv(10)
            proxy.thaw()
            assert listener.recv(10) == b"news"


def test_a_plan_depends_only_on_its_seed() -> None:
    def plans() -> list[Plan]:
        return [make_plan(seed, can_fake_time=True) for seed in range(50)]

    assert plans() == plans()
    made = {fault.what for plan in plans() for fault in plan.faults}
    assert {"kill", "stop", "freeze", "lose_database", "fail_over", "clock"} <= made, "each fault happens in some run"


@pytest.mark.full
@pytest.mark.needs("linux", "postgresql")
def test_a_failover_keeps_all_acknowledged_data_and_a_killed_database_restarts() -> None:
    with Database(has_replica=True) as database:
        first = database.port
        with Proxy(first, Random(1)) as proxy:
            url = database.url(proxy.port)
            database.ask("CREATE TABLE kept (one int)")
            database.ask("INSERT INTO kept VALUES (0)")
            database.fail_over()
            assert database.port != first
            proxy.lead_to(database.port)
            assert database.ask("SELECT count(*) FROM kept") == [(1,)]
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("INSERT INTO kept VALUES (1)")
                database.kill()
                with pytest.raises(psycopg.OperationalError):
                    connection.execute("SELECT 1")
            database.start()
            assert database.ask("SELECT count(*) FROM kept") == [(2,)]
            database.restart()
            assert database.ask("SELECT count(*) FROM kept") == [(2,)]
