"""Groups through a real hub: those that finish first make a step, and an algorithm that is killed loses none."""

import asyncio

from algo.rollouts.hub_rollouts import ResumePoint
from algo.rollouts.in_flight import InFlight
from algo.rollouts.queue import RolloutQueue
from algo.rollouts.schedule import Schedule
from algo.werewolf.tasks import step_tasks
from store.schema import PolicyResources
from store.werewolf import GAME
from tests.support.algo.gated_play import GatedPlay, playing
from tests.support.settings import werewolf_config
from tests.support.waiting import until

STEPS = 4
CONFIG = werewolf_config(groups_per_step=2, rollouts_per_group=2, max_attempts=2, max_policy_lag=1)
RESOURCES = PolicyResources(run_name="run", version=0, endpoints=("http://127.0.0.1:1/v1",), model="policy")


class Algorithm:
    """What of the training loop has to do with groups in flight; ``state`` is what a checkpoint keeps of it."""

    def __init__(self, client, state=None, resumes=0):
        self.step, self.version, open_groups, begun = state or (0, 0, [], 0)
        per_step = CONFIG.rollout.groups_per_step
        lag = CONFIG.rollout.max_policy_lag
        self.schedule = Schedule(per_step, lag, STEPS * per_step, open_groups, begun)
        resumption = ResumePoint(self.version, resumes) if state else None
        self.queue = RolloutQueue(client, GAME, CONFIG.rollout, resumption)
        tasks = lambda step: step_tasks(CONFIG, step)  # noqa: E731
        self.in_flight = InFlight(self.queue, self.schedule, per_step, tasks, adopting=state is not None)

    async def play(self):
        """The groups of the next step, by the end of their ids."""

        async def nothing():
            pass

        played = await self.in_flight.play_step(
            self.version, RESOURCES.model_copy(update={"version": self.version}), nothing, lambda now: None
        )
        self.step += 1
        self.version += 1
        self.played = played
        return [group.removeprefix("run-step") for group in played.groups]

    @property
    def state(self):
        return self.step, self.version, self.schedule.open, self.schedule.begun


async def test_a_step_takes_the_groups_that_finish_first_and_counts_the_others_in_the_step_that_trains_them(client):
    play = GatedPlay()
    async with playing(client, play):
        algorithm = Algorithm(client)
        for step, deal in ((1, 1), (2, 0)):
            play.gate(step, deal).set()
        assert await algorithm.play() == ["0001-deal01", "0002-deal00"]
        assert algorithm.played.left_over == 2
        rollouts = algorithm.played.rollouts
        assert [game.outcome.game_id[-20:] for game in rollouts.finished] == [
            f"step{step:04d}-deal{deal:02d}-game{game:02d}"[-20:] for step, deal in ((1, 1), (2, 0)) for game in (0, 1)
        ]
        assert rollouts.turns_stored == 4

        # New weights; what is finished of the fresh groups waits, since the slow ones would be too old in a later step.
        play.version = 1
        second = asyncio.create_task(algorithm.play())
        play.gate(3, 0).set()
        play.gate(3, 1).set()
        await until(lambda: len(algorithm.queue.ended([task.task_id for task in step_tasks(CONFIG, 3)])) >= 4)
        assert not second.done()
        play.gate(1, 0).set()
        play.gate(2, 1).set()
        assert await second == ["0001-deal00", "0002-deal01"]
        assert {turn.policy_version for game in algorithm.played.rollouts.finished for turn in game.turns} == {0}
        assert algorithm.played.rollouts.turns_stored == 4

        play.gate(4, 0).set()
        play.gate(4, 1).set()
        assert [await algorithm.play(), await algorithm.play()] == [
            ["0003-deal00", "0003-deal01"],
            ["0004-deal00", "0004-deal01"],
        ]


async def test_games_of_weights_older_than_the_schedule_are_replayed(client):
    """A process that was killed had begun groups sooner than its successor does: left so, they would be stale later."""
    play = GatedPlay()
    play.wait = False
    async with playing(client, play):
        killed = Algorithm(client)
        await killed.play()
        assert killed.schedule.begun == 4  # those of the second step, too, for version 0
        play.version = 1
        algorithm = Algorithm(client, (1, 1, [], 2), resumes=1)
        groups = []
        for _ in range(2):
            groups += await algorithm.play()
            assert {turn.policy_version for game in algorithm.played.rollouts.finished for turn in game.turns} == {1}
        assert {"0002-deal00", "0002-deal01"} <= set(groups)


def test_what_a_process_played_is_good_up_to_the_version_to_which_every_later_one_went_back():
    # Begun; gone on with at version 4, then at 1, now at 3: the versions 2 to 4 of the first two processes were undone.
    resumption = ResumePoint(policy_version=3, number=3, before=(4, 1))
    assert [resumption.newest_version_of(process) for process in range(4)] == [1, 1, 3, 3]
