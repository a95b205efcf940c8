"""The PostgreSQL store: the suites for all stores and for shared stores."""

from collections.abc import Callable

import pytest

from perdure.stores.postgres import PostgresStore
from perdure.stores.shared import SharedStore
from tests.conformance.erasing import ErasingSuite
from tests.conformance.jobs import JobsSuite
from tests.conformance.natives import NativesSuite
from tests.conformance.ownership import OwnershipSuite
from tests.conformance.searching import SearchSuite
from tests.conformance.sharing import SharingSuite
from tests.conformance.spending import SpendingSuite
from tests.conformance.stores import EveryStoreSuite
from tests.conformance.turns import TurnsSuite

pytestmark = pytest.mark.needs("postgresql")


class TestPostgresStore(
    EveryStoreSuite,
    SearchSuite,
    SpendingSuite,
    NativesSuite,
    TurnsSuite,
    ErasingSuite,
    OwnershipSuite,
    JobsSuite,
    SharingSuite,
):
    one_server = False

    @pytest.fixture
    def make_store(self, postgres_url: str) -> Callable[[], SharedStore]:
        return lambda: PostgresStore(postgres_url)
