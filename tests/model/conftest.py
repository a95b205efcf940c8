"""A scripted model for each test that needs one. Other folders create the same fixture with `running()`."""

from collections.abc import Iterator

import pytest

from tests.model.server import ModelServer, running


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with running() as server:
        yield server
