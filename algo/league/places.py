"""Where members of the pool are served: beside the policy's adapters, or by servers of their own."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from algo.league.state import Published, past_name
from algo.serving.policy import Serving
from store.schema import FrozenPolicy


def adapters_of(folders: Mapping[int, Path], team: Collection[str]) -> dict[str, Path]:
    """Adapters of versions as servers are told of them: their folders, by names in requests.

    folders: of versions; where a team learns, each has a folder for every policy of it.
    """
    if not team:
        return {past_name(version): folder for version, folder in folders.items()}
    return {_name_of(past_name(version), one): folder / one for version, folder in folders.items() for one in team}


def _name_of(past: str, policy: str) -> str:
    return f"{past}-{policy}"


class Places(Protocol):
    """What serves the members of a pool."""

    servers: int
    """Those that hold one member each; 0 where every member is served."""

    async def serve(self, published: Published, folders: Mapping[int, Path]) -> None:
        """Serve what is published. folders: of all versions that are needed. Raises ServingError."""

    def policies(self, published: Published) -> dict[str, FrozenPolicy]:
        """Where runners find whom they meet, by name."""

    async def check_alive(self) -> None:
        """To be called every few seconds while games are played. Raises ServingDied."""


class BesideThePolicy:
    """Adapters: every member is served by all of the policy's servers."""

    servers = 0

    def __init__(self, serving: Serving, team: Collection[str] = ()):
        """team: the policies that learn, where there are several: a member is what all of them were."""
        self._serving = serving
        self._team = team

    async def serve(self, published: Published, folders: Mapping[int, Path]) -> None:
        """Tell the servers of new members, and have them forget old ones."""
        await self._serving.serve_beside(adapters_of(folders, self._team))

    def policies(self, published: Published) -> dict[str, FrozenPolicy]:
        """Members spread over the servers, each at one of them, whose prefix cache knows its games."""
        endpoints = self._serving.endpoints
        return {
            name: FrozenPolicy(
                endpoint=endpoints[number % len(endpoints)],
                model=_name_of(name, next(iter(self._team))) if self._team else name,
                share=share,
                models={policy: _name_of(name, policy) for policy in self._team},
            )
            for number, (name, share) in enumerate(published.shares.items())
        }

    async def check_alive(self) -> None:
        """Nothing: the policy's servers are looked after."""


class OwnServers:
    """Whole weights: every server holds one member at a time."""

    def __init__(self, servings: Sequence[Serving], initial: int = 0):
        """servings: of one server each. initial: the version whose weights they were started with."""
        self._servings = servings
        self._held = [initial] * len(servings)
        self.servers = len(servings)

    async def serve(self, published: Published, folders: Mapping[int, Path]) -> None:
        """Give new weights to the servers that are to hold another member."""
        for number, version in enumerate(published.servers):
            if self._held[number] != version:
                await self._servings[number].push_weights(folders[version], version)
                self._held[number] = version

    def policies(self, published: Published) -> dict[str, FrozenPolicy]:
        """Each member at the server that holds it."""
        at = {past_name(version): self._servings[number] for number, version in enumerate(published.servers)}
        return {
            name: FrozenPolicy(endpoint=at[name].endpoints[0], model=at[name].model, share=share)
            for name, share in published.shares.items()
        }

    async def check_alive(self) -> None:
        """Start again what has died, with the weights that it held."""
        for serving in self._servings:
            await serving.check_alive()
