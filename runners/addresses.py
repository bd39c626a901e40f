"""Which addresses a runner calls models at.

A run's resources name them, and come from a hub: whoever can write to the hub chooses them. A runner must not call what
answers its own machine alone (a service on loopback, the cloud's metadata), nor any host of the internet. So it calls
its hub's machine, private networks, and the addresses that it is started with.
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
"""Where clouds (Alibaba, Oracle, AWS, Google) give a machine its credentials, of those that are not link-local."""


class Addresses:
    """The addresses that may be called.

    hub: URL of the hub; models may be served on its machine, and on this one where that is the same.
    allowed: origins besides, e.g. ``https://models.example.org``. Raises ValueError for one that is no URL.
    """

    def __init__(self, hub: str, allowed: Iterable[str] = ()):
        for url in allowed:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise ValueError(f"--allow-address {url!r} is no address like http://gpu-machine:8000")
        self._allowed = frozenset(map(origin_of, allowed))
        self._hub = urlsplit(hub).hostname or ""

    def allows(self, url: str) -> bool:
        """Whether the user allows a URL's origin by name."""
        return origin_of(url) in self._allowed

    async def check(self, resources: PolicyResources) -> None:
        """Raise AddressRefused, which names the remedy, for resources with an address that is not to be called."""
        for url in sorted(set(_called(resources))):
            await self.resolve(url)

    async def resolve(self, url: str) -> list[str]:
        """The IP addresses of a URL's host, all of which may be called; none where its name or the hub's is unknown.

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
                        return []  # for a moment: the name may be the hub's machine, and is looked up again
                    raise AddressRefused(
                        f"the run names a model's server at {printable(url)} ({address}), and this runner calls "
                        f"only its hub's machine and private networks: start it with --allow-address "
                        f"{printable(origin_of(url))} to allow that, or set serving.public_urls of the run to the "
                        f"addresses by which other machines reach its servers"
                    )
        return list(dict.fromkeys(map(str, found)))


class CheckedResolver(AbstractResolver):
    """aiohttp's resolver for connections to the host of one URL.

    A name may stand for another address at each look: the one that is checked is the one that is connected to.
    """

    def __init__(self, addresses: Addresses, url: str):
        self._addresses = addresses
        self._url = url

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises AddressRefused, and OSError for a name that is not known."""
        found = await self._addresses.resolve(self._url)
        if not found:
            raise OSError(f"the name {printable(host)} is not known")
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
    """The addresses that resources name, but for those of providers and of keys, which have rules of their own."""
    yield from resources.endpoints
    yield from (url for policy in resources.policies for url in policy.endpoints)
    models = [*resources.players.values(), *([resources.judge] if resources.judge else [])]
    yield from (model.endpoint for model in models if model.endpoint and model.api_key_env is None)


async def _found(host: str) -> list[_Address]:
    """The addresses of a host; none where its name is not known, so that nothing can be called either."""
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
