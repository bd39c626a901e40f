"""Free ports."""

import errno
import random
import socket

# Below Linux's ports for outgoing connections (ip_local_port_range, by default from 32768), which could take the port
# before a server listens.
_FIRST, _END = 20_000, 32_768
_FEWEST_TO_CHOOSE_FROM = 2_000


def is_taken(port: int) -> bool:
    """Whether a server accepts connections at the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port of one of this machine's addresses; "" for all of them.

    Raises OSError if this machine has no such address, or every port is taken.
    """
    start, end = port_range()
    for port in range(start, end):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((host, port))
                return port
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
    raise OSError(errno.EADDRINUSE, f"every port from {start} to {end - 1} is taken")


def port_range() -> tuple[int, int]:
    """(first, end) of a search for a free port; the first is random, so that concurrent searches differ."""
    return random.SystemRandom().randrange(_FIRST, _END - _FEWEST_TO_CHOOSE_FROM), _END


def ray_node_address() -> tuple[str, int]:
    """This Ray node's address and a free port of all its addresses.

    A process of Ray that runs this imports neither torch nor verl.
    """
    import ray

    return ray.util.get_node_ip_address().strip("[]"), free_port("")
