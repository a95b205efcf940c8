"""A scripted model for each test that asks for one. Other folders make the same fixture from `running()`."""

from collections.abc import Iterator

import pytest

from tests.model.server import ModelServer, running


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with running() as server:
        yield server
