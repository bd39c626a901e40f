"""Ports that nothing listens at."""

import socket


def is_taken(port: int, host: str = "127.0.0.1") -> bool:
    """Whether something takes connections there."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port of one of this machine's addresses; "" for all of them. Another process may take it at any moment."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
