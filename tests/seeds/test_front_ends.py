"""Only a front end from the origin in a docs page's block may use the API with the token."""

import tomllib
from collections.abc import Callable

import pytest

from tests.harness import LiveServer
from tests.seeds.conftest import block_of

Serve = Callable[..., LiveServer]


@pytest.mark.smoke
@pytest.mark.parametrize("page", ["teamhq.md", "open-design.md", "sdc.md"])
def test_a_front_end_on_an_allowed_origin_works_with_the_token(serve: Serve, page: str) -> None:
    server = serve(page)
    [origin] = tomllib.loads(block_of(page))["server"]["allowed_origins"]
    asked = {"origin": origin, "access-control-request-method": "POST"}
    preflight = server.http.request("OPTIONS", "/api/sessions", headers={**asked, "authorization": ""})
    assert preflight.status_code == 204 and "Authorization" in preflight.headers["access-control-allow-headers"]
    answer = server.http.get("/api/sessions", headers={"origin": origin})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, origin)
    assert "access-control-allow-credentials" not in answer.headers
    refused = server.http.get("/api/sessions", headers={"origin": "http://localhost:3001"})
    assert refused.status_code == 403 and "access-control-allow-origin" not in refused.headers
