"""Hosts and origins are parsed strictly."""

import pytest

from perdure.core.addresses import host_name, host_of, is_loopback, is_origin


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("Localhost", "localhost"),
        ("localhost:80", "localhost"),
        ("localhost:", "localhost"),
        ("[::1]:7433", "[::1]"),
        ("[0:0::1]", "[::1]"),
        ("a_b-c.example", "a_b-c.example"),
        ("[::1]evil.com", None),
        ("[fe80::1%eth0]", None),
        ("localhost:65536", None),
        ("a b", None),
        ("", None),
    ],
)
def test_a_host_is_parsed_with_and_without_a_port(given: str, name: str | None) -> None:
    assert host_name(given) == name


def test_a_person_may_omit_the_brackets_of_an_ipv6_address() -> None:
    assert (host_of("::1"), host_of("fe80::1"), host_of("Perdure.example:8443")) == (
        "[::1]",
        "[fe80::1]",
        "perdure.example",
    )


def test_loopback_addresses_are_recognised() -> None:
    assert all(is_loopback(host) for host in ("localhost", "127.0.0.1", "127.1.2.3", "::1"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "192.168.1.1", "example.com", ""))


@pytest.mark.parametrize("origin", ["https://team.example.com", "http://localhost:5173", "http://[::1]:3000"])
def test_a_valid_origin_is_written_as_browsers_send_it(origin: str) -> None:
    assert is_origin(origin)


@pytest.mark.parametrize(
    "text",
    [
        "*",
        "null",
        "",
        "team.example.com",
        "https://",
        "https://team.example.com/",
        "https://team.example.com/app",
        "https://team.example.com:443",
        "http://localhost:80",
        "https://Team.example.com",
        "https://*.example.com",
        "https://a@b.example",
        "ftp://team.example.com",
        "https://team.example.com:99999",
        "https://[::1",
    ],
)
def test_anything_else_is_no_origin(text: str) -> None:
    assert not is_origin(text)
