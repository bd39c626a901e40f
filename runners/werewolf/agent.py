"""Plays one attempt of a game rollout: reads its task and resources, seats the players, plays."""

import asyncio
import logging
import random
from pathlib import Path

from agentlightning import AttemptedRollout

from runners.errors import MissingResources, UnknownPlayer, UnusableTask
from runners.play import TurnSink
from runners.werewolf.api_models import ApiModels
from runners.werewolf.api_player import ApiPlayer
from runners.werewolf.brains import BRAINS
from runners.werewolf.game import Role, get_preset
from runners.werewolf.judge import Judge
from runners.werewolf.players import BrainPlayer, Player, PolicyPlayer
from runners.werewolf.policies import Policies
from runners.werewolf.policy_model import TokenExactChatModel, seed_of
from runners.werewolf.prompts_zh.system import check_templates, system_prompt
from runners.werewolf.table import play_game
from store.client import PatientStoreClient
from store.schema import TRAINED_POLICY, ChatEndpoint, GameTask, PolicyResources
from store.spans import ResultSpan

logger = logging.getLogger(__name__)

_RESOURCES_POLL_SECONDS = 2.0


class WerewolfPlay:
    """A ``runners.play.Play`` for Werewolf. One instance serves a whole runner process.

    tokenizer: folder of the policy's tokenizer; None takes the folder that the policy's server names, if it is on
        this machine, and else the server's own tokenizer.
    resources_patience_seconds: how long missing resources are waited for.
    """

    def __init__(
        self, client: PatientStoreClient, tokenizer: Path | None = None, resources_patience_seconds: float = 60.0
    ):
        self._client = client
        self._patience = resources_patience_seconds
        self._resources: dict[str, PolicyResources] = {}
        self._policies = Policies(tokenizer)
        self._api_models = ApiModels()
        self._judges: dict[ChatEndpoint, Judge] = {}

    async def __call__(self, rollout: AttemptedRollout, on_turn: TurnSink) -> ResultSpan:
        """Play the rollout's game. Raises CannotPlay, naming the task, preset, resources, player or server at fault."""
        try:
            task = GameTask.decode(rollout.input)
            preset = get_preset(task.preset, task.rules)
        except ValueError as error:
            raise UnusableTask(f"rollout {rollout.rollout_id} cannot be played by this runner: {error}") from error
        resources = await self._resources_of(rollout)
        try:
            check_templates(resources.prompt_templates)
        except ValueError as error:
            raise UnusableTask(f"the prompts of {resources.resources_id} cannot be used: {error}") from error
        needs_policy = any(TRAINED_POLICY in rule.players for rule in task.seating)
        server, tokens = await self._policies.serving(resources) if needs_policy else (None, None)

        def seat_player(seat: int, role: Role, name: str) -> Player:
            key = f"{task.sampling_seed}/{seat}"
            if name in BRAINS:
                return BrainPlayer(seat, BRAINS[name](random.Random(seed_of(key))))
            prompt = system_prompt(preset, seat, role, resources.prompt_templates)
            if name == TRAINED_POLICY:
                return PolicyPlayer(seat, TokenExactChatModel(server, tokens, task.limits, key), prompt)
            if name in resources.players:
                return ApiPlayer(seat, self._api_models.get(resources.players[name]), prompt)
            known = ", ".join((TRAINED_POLICY, *BRAINS, *resources.players))
            raise UnknownPlayer(f"game {task.game_id} seats {name!r}; this runner knows {known}")

        judge = None if resources.judge is None else self._judge_at(resources.judge)
        return await play_game(task, resources.version, seat_player, on_turn, judge, resources.prompt_templates)

    async def close(self) -> None:
        """Close the connections to the policy's servers and to the other models."""
        await self._policies.close()
        await self._api_models.close()

    def _judge_at(self, endpoint: ChatEndpoint) -> Judge:
        if endpoint not in self._judges:  # one for all games, since it remembers what it has been asked
            self._judges[endpoint] = Judge(self._api_models.get(endpoint))
        return self._judges[endpoint]

    async def _resources_of(self, rollout: AttemptedRollout) -> PolicyResources:
        resources_id = rollout.resources_id
        if resources_id is None:
            raise MissingResources(f"rollout {rollout.rollout_id} names no resources; was it enqueued by this system?")
        if resources_id not in self._resources:
            self._resources[resources_id] = await self._fetch(resources_id)
        return self._resources[resources_id]

    async def _fetch(self, resources_id: str) -> PolicyResources:
        waited = 0.0
        while True:
            found = list(await self._client.query_resources(resources_id=resources_id))
            if found:
                try:
                    return PolicyResources.decode(found[0])
                except ValueError as error:
                    raise MissingResources(str(error)) from error
            if waited >= self._patience:
                raise MissingResources(
                    f"the hub has no resources {resources_id!r} after {waited:.0f} s; "
                    f"`python -m algo.werewolf_verl` publishes them before it enqueues games"
                )
            if waited == 0.0:
                logger.warning("waiting for resources %r, which the hub does not have yet", resources_id)
            await asyncio.sleep(_RESOURCES_POLL_SECONDS)
            waited += _RESOURCES_POLL_SECONDS
