"""Where a free port is looked for."""

import errno
import socket

import pytest

from algo.machine import ports

GIVEN_TO_CONNECTIONS = 32_768  # and up, by Linux's default


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_a_free_port_is_none_that_a_connection_could_take_before_it_is_listened_on(host):
    found = {ports.free_port(host) for _ in range(100)}
    assert max(found) < GIVEN_TO_CONNECTIONS
    assert len(found) > 90, "two who look at once would find the same"


def test_a_taken_port_is_passed_over(monkeypatch):
    with socket.socket() as listener:
        taken = ports.free_port()
        listener.bind(("127.0.0.1", taken))
        listener.listen()
        monkeypatch.setattr(ports, "port_range", lambda: (taken, taken + 100))
        assert taken < ports.free_port() < taken + 100
        monkeypatch.setattr(ports, "port_range", lambda: (taken, taken + 1))
        with pytest.raises(OSError, match=f"every port from {taken} to {taken} is taken"):
            ports.free_port()


def test_an_address_of_another_machine_is_named_as_such():
    with pytest.raises(OSError) as raised:
        ports.free_port("192.0.2.1")
    assert raised.value.errno == errno.EADDRNOTAVAIL
