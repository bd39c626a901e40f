"""Which model addresses a runner may call.

A run's resources contain the addresses, so any client that writes to the hub chooses them. To prevent server-side
request forgery (loopback services, cloud metadata, internet hosts), a runner calls only its hub's machine, private
networks, and addresses from its command line.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from aiohttp.abc import AbstractResolver, ResolveResult

from runners.errors import AddressRefused
from runners.keys import origin_of
from store.printable import printable
from store.schema import PolicyResources

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = frozenset(map(ipaddress.ip_address, ("100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")))
"""Metadata services of Alibaba, Oracle, AWS and Google that are not link-local."""


class Addresses:
    """The addresses that may be called.

    hub: URL of the hub; models may be served on its machine, and on this one where that is the same.
    allowed: further origins, e.g. ``https://models.example.org``. Raises ValueError for an invalid URL.
    """

    def __init__(self, hub: str, allowed: Iterable[str] = ()):
        for url in allowed:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise ValueError(f"{url!r} is not a URL, e.g. http://gpu-machine:8000")
        self._allowed = frozenset(map(origin_of, allowed))
        self._hub = urlsplit(hub).hostname or ""

    def allows(self, url: str) -> bool:
        """Whether the user allows a URL's origin by name."""
        return origin_of(url) in self._allowed

    async def check(self, resources: PolicyResources) -> None:
        """Raise AddressRefused, naming the remedy, for resources with a forbidden address."""
        for url in sorted(set(_called(resources))):
            try:
                await self.resolve(url)
            except ValueError as error:
                raise AddressRefused(f"the run's model server {printable(url)} is not a URL: {error}") from error

    async def resolve(self, url: str) -> list[str]:
        """The IP addresses of a URL's host, all allowed; none if its name or the hub's cannot be resolved.

        Raises AddressRefused.
        """
        host = urlsplit(url).hostname or ""
        found = await _found(host)
        if not self.allows(url):
            of_hub = await _found(self._hub)
            hub_is_here = any(map(_is_of_this_machine, of_hub))
            for address in found:
                of_this_machine = address.is_loopback or address.is_unspecified
                outside = address.is_global or address.is_link_local or address.is_multicast or address in _METADATA
                if address not in of_hub and (outside or (of_this_machine and not hub_is_here)):
                    if not of_hub and not _is_literal(host):
                        return []  # transient: the name may be the hub's machine
                    raise AddressRefused(
                        f"the run's model server {printable(url)} ({address}) is not allowed: this runner calls only "
                        f"its hub's machine and private networks. Start it with --allow-address "
                        f"{printable(origin_of(url))}, or set serving.public_urls of the run to addresses that other "
                        f"machines can reach"
                    )
        return list(dict.fromkeys(map(str, found)))


class CheckedResolver(AbstractResolver):
    """aiohttp's resolver for connections to the host of one URL.

    Connects to the address that was checked, since a name may resolve to another one each time.
    """

    def __init__(self, addresses: Addresses, url: str):
        self._addresses = addresses
        self._url = url

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises AddressRefused, and OSError for an unknown name."""
        found = await self._addresses.resolve(self._url)
        if not found:
            raise OSError(f"cannot resolve the name {printable(host)}")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in found
        ]

    async def close(self) -> None:
        """Nothing is open."""


def _called(resources: PolicyResources) -> Iterator[str]:
    """The addresses in resources, without those of providers and of keys, which ``ApiKeys`` checks."""
    yield from resources.endpoints
    yield from (url for policy in resources.policies for url in policy.endpoints)
    models = [*resources.players.values(), *([resources.judge] if resources.judge else [])]
    yield from (model.endpoint for model in models if model.endpoint and model.api_key_env is None)


async def _found(host: str) -> list[_Address]:
    """The addresses of a host; none if its name cannot be resolved."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [_unmapped(ipaddress.ip_address(address[0].partition("%")[0])) for *_, address in found]


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _unmapped(address: _Address) -> _Address:
    return getattr(address, "ipv4_mapped", None) or address


def _is_of_this_machine(address: _Address) -> bool:
    with socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True
