"""Which addresses are this machine alone."""

import pytest

from store.addresses import is_loopback, leads_to_loopback

HERE = ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LocalHost"]
ELSEWHERE = ["0.0.0.0", "::", "192.168.0.1", "localhost.evil", "127.evil.example", "127.0.0.1.evil.example", ""]


@pytest.mark.parametrize("host", HERE)
def test_this_machine(host):
    assert is_loopback(host)
    address = f"[{host}]" if host == "::1" else host
    assert leads_to_loopback(f"http://{address}:4747/v1")


@pytest.mark.parametrize("host", ELSEWHERE)
def test_others(host):
    assert not is_loopback(host)
    assert not leads_to_loopback(f"http://{'[::]' if host == '::' else host}:4747/v1")
