"""Mistakes of a public implementation, by reading it and by 2,000 random games against it: none is made here.

Each test's docstring says what went wrong there. The others are held by the scenarios and by the tables of replies, and
the one about training by tests/algo/advantages/test_estimators.py.
"""

import random

from agentscope.model import ChatResponse

from runners.policy.model import SampledTurn
from runners.werewolf.brains import RandomBrain
from runners.werewolf.game import PRESETS, Role, Side, deal
from runners.werewolf.players import BrainPlayer, PolicyPlayer
from runners.werewolf.prompts_zh.record import render_events
from runners.werewolf.prompts_zh.system import system_prompt
from runners.werewolf.table import play_game
from store.token_spans import context_digest
from tests.support.game.game_playing import TEST_PRESETS, herd_steps
from tests.support.game.game_scripts import check, twelve
from tests.support.tasks import game_task


def test_mistake_07_nobody_is_never_a_name():
    """ "None得票最多" was announced; a night of 空刀 asked the witch to save "None" and burned the antidote."""
    nobody = "night_actions: 9,10,11,12=pass; witch_action:; exile_vote:; night_actions: 9,10,11,12=5"
    check(twelve(nobody, sheriff=False), "told=0,5 options=save subject=5 count=-")
    for preset in TEST_PRESETS:
        *_, (_, _, finished) = herd_steps(preset, 3, 3)
        assert "None" not in render_events(finished.events)


async def test_mistake_11_no_private_reply_is_broadcast():
    """Private replies leaked through an auto-broadcast left on."""
    private = 0

    class Listener(BrainPlayer):
        async def observe(self, msg):
            nonlocal private
            # The referee alone speaks to the table; a reply passed on would be the player's own message.
            event = msg.metadata["event"]
            assert msg.role == "system" and event.visible_to(self.seat)
            private += event.audience is not None
            await super().observe(msg)

    task = game_task(preset="12p_sheriff", seed=4, seating=dict.fromkeys(Side, "random"), trainable=[])
    await play_game(task, 0, lambda seat, role, name: Listener(seat, RandomBrain(random.Random(seat))), print)
    assert private > 50


class Mumbler:
    """A model that answers every question with the same words, which say nothing of what was asked."""

    def __init__(self, reply: str) -> None:
        self._reply = reply
        self._context: list[int] = []

    async def __call__(self, conversation) -> ChatResponse:
        sampled = SampledTurn(
            0, len(self._context), context_digest(self._context), (1,), (2,), (-1.0,), "stop", 0.0, 0.0
        )
        self._context += [1, 2]
        return ChatResponse(content=[{"type": "text", "text": self._reply}], metadata={"sampled": sampled})


async def test_mistakes_12_and_13_no_reply_stops_a_game_and_no_prompt_says_who_is_what():
    """Reaching the round limit made the rollout fail, and a reply without structured data crashed the game; roles for
    the reward were parsed out of the decoded prompt."""

    def misled(seat, role, name):
        return PolicyPlayer(seat, Mumbler("我是狼人。"), system_prompt(PRESETS["9p"], seat, Role.WOLF))

    task = game_task(preset="9p", seed=4, trainable=["wolf", "good"], rules={"round_limit": 2})
    turns = []
    result = await play_game(task, 0, misled, lambda turn, *times: turns.append(turn))
    assert result.result == "draw" and result.days == 2
    assert {seat.outcome for seat in result.seats} == {0.0}
    assert all(seat.defaulted_decisions > 0 for seat in result.seats) and any(not turn.valid for turn in turns)
    roles = {seat: role.value for seat, role in enumerate(deal(PRESETS["9p"], 4), 1)}
    assert {seat.seat: seat.role for seat in result.seats} == roles
    assert {(turn.seat, turn.role, turn.side) for turn in turns} == {
        (seat, role, Role(role).side.value) for seat, role in roles.items()
    }
