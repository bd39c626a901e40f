"""Plays games with given resources: creates the players of all seats and runs the table."""

import random
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from runners.addresses import Addresses
from runners.errors import UnknownPlayer, UnusableTask
from runners.keys import ApiKeys
from runners.play import TurnSink
from runners.policy.client import POLICY_TIMEOUT_SECONDS, seed_of
from runners.policy.connections import Policies
from runners.policy.model import TokenExactChatModel
from runners.werewolf.api.judge import JudgedGame
from runners.werewolf.api.player import ApiPlayer
from runners.werewolf.brains import BRAINS
from runners.werewolf.demonstrations import DemonstratingPlayer
from runners.werewolf.game import Role, get_preset, new_game
from runners.werewolf.players import BrainPlayer, Player, PolicyPlayer, Reminder
from runners.werewolf.prompts_zh.system import check_templates, system_prompt
from runners.werewolf.reminder import reminder
from runners.werewolf.replay import RepeatedReplies
from runners.werewolf.seating import players_by_seat
from runners.werewolf.table import play_game
from store.schema import TRAINED_POLICY, PolicyResources
from store.werewolf import GameTask, ResultSpan

if TYPE_CHECKING:
    from runners.werewolf.api.models import ApiModels


class WerewolfGames:
    """Plays games with given resources. One instance serves all games of an event loop.

    tokenizer: folder of the policy's tokenizer; None: the server's model folder if it exists on this machine, else the
        server's tokenizer routes.
    policy_timeout_seconds: how long to retry an unreachable policy server, also during a game.
    keys: of other models' endpoints; None: only endpoints without keys.
    addresses: the allowed addresses of models without a key.
    """

    def __init__(
        self,
        addresses: Addresses,
        tokenizer: Path | None = None,
        policy_timeout_seconds: float = POLICY_TIMEOUT_SECONDS,
        keys: ApiKeys | None = None,
    ):
        self.policies = Policies(addresses, tokenizer, policy_timeout_seconds)
        self._keys, self._addresses = keys, addresses

    async def play(
        self,
        task: GameTask,
        resources: PolicyResources,
        on_turn: TurnSink,
        guests: Mapping[str, Callable[[int], Player]] = MappingProxyType({}),
    ) -> ResultSpan:
        """Play one game; ``read_task`` has validated the task.

        guests: name -> factory of a seat's player, for players of this process, such as people.
        Raises CannotPlay, naming the prompts, player or server at fault.
        """
        preset = get_preset(task.preset, task.rules)
        try:
            check_templates(resources.prompt_templates)
        except ValueError as error:
            raise UnusableTask(f"the prompts of {resources.resources_id} cannot be used: {error}") from error
        deal = new_game(preset, task.seed)
        past_selves = resources.past_selves
        names = players_by_seat(task, {seat: deal.role_of(seat) for seat in preset.seats}, past_selves)
        try:
            policies = {
                seat: resources.policy_of(name, deal.role_of(seat).value, deal.role_of(seat).side.value)
                for seat, name in names.items()
                if name == TRAINED_POLICY or name in resources.frozen
            }
        except ValueError as error:
            raise UnknownPlayer(str(error)) from error
        past = task.past
        recorded = task.game_id if past is None else past.game_id
        served = {
            seat: await self.policies.serving(resources, names[seat], f"{recorded}/{seat}", policy)
            for seat, policy in policies.items()
        }
        chances: dict[int, random.Random] = {}  # seat -> the random generator of its player without a model
        if past is not None and (strangers := sorted({*names.values()} - BRAINS.keys() - {names[s] for s in served})):
            raise UnusableTask(f"game {task.game_id} cannot repeat the choices of {strangers[0]!r}")
        demonstrators = task.demonstrators.intersection(names.values())
        tokens = await self.policies.tokens(resources) if demonstrators else None

        def prompts_of(seat: int, role: Role) -> tuple[str, Reminder]:
            templates = resources.prompt_templates
            return system_prompt(preset, seat, role, templates), partial(reminder, seat, role, templates)

        def player_of(seat: int, role: Role, name: str) -> Player:
            key = f"{task.sampling_seed}/{seat}"
            if name in guests:
                return guests[name](seat)
            if name in BRAINS:
                began = task.sampling_seed if past is None else past.sampling_seed
                chances[seat] = random.Random(seed_of(f"{began}/{seat}"))
                return BrainPlayer(seat, BRAINS[name](chances[seat]))
            prompts = prompts_of(seat, role)
            if seat in served:
                server, own_tokens = served[seat]
                sampler = server if past is None else RepeatedReplies(server, past, seat)
                return PolicyPlayer(seat, TokenExactChatModel(sampler, own_tokens, task.limits, key), *prompts)
            if name in resources.players:
                return ApiPlayer(seat, self._api_models.get(resources.players[name]), *prompts)
            known = ", ".join((TRAINED_POLICY, *BRAINS, *resources.players, *resources.frozen))
            raise UnknownPlayer(f"game {task.game_id} seats {name!r}; this runner has {known}")

        def seat_player(seat: int, role: Role, name: str) -> Player:
            player = player_of(seat, role, name)
            if tokens is None or name not in demonstrators:
                return player
            return DemonstratingPlayer(player, tokens, task.limits, *prompts_of(seat, role))

        def reseed_players() -> None:
            for seat, chance in chances.items():
                chance.seed(seed_of(f"{task.sampling_seed}/{seat}"))

        judge = None if resources.judge is None else JudgedGame(self._api_models.get(resources.judge))
        learners = {
            seat: policy for seat, policy in policies.items() if policy is not None and names[seat] == TRAINED_POLICY
        }
        return await play_game(
            task,
            resources.version,
            seat_player,
            on_turn,
            judge,
            resources.prompt_templates,
            past_selves,
            learners,
            reseed_players,
        )

    async def context_tokens(self, resources: PolicyResources, player: str, demonstrated: bool) -> int | None:
        """The context limit of a player's server; None for a player that is not a policy. Raises CannotPlay.

        demonstrated: whether games are recorded in the policy's tokens, which requires its tokenizer.
        """
        if demonstrated:
            await self.policies.tokens(resources)
        if player != TRAINED_POLICY and player not in resources.frozen:
            return None
        server, _ = await self.policies.serving(resources, player)
        return await server.context_tokens()

    @cached_property
    def _api_models(self) -> "ApiModels":
        from runners.werewolf.api.models import ApiModels  # imports openai (25 MB), which other games do not need

        return ApiModels(self._keys, self._addresses)

    async def close(self) -> None:
        await self.policies.close()
        if "_api_models" in vars(self):
            await self._api_models.close()
