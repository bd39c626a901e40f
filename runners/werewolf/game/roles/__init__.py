"""One file per role, with the role's name; ``card`` defines its content."""

from collections.abc import Mapping
from importlib import import_module

from runners.werewolf.game.roles.card import Card
from runners.werewolf.game.types import Role

CARDS: Mapping[Role, Card] = {role: import_module(f"{__name__}.{role.value}").CARD for role in Role}
