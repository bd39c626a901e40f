"""Groups in flight after a kill, through a real hub; a whole run with kills: tests/algo/loop/test_train.py."""

from algo.rollouts.hub_rollouts import ResumePoint
from algo.rollouts.in_flight import InFlight
from algo.rollouts.queue import RolloutQueue
from algo.rollouts.schedule import Schedule
from algo.werewolf.tasks import step_tasks
from store.schema import PolicyResources
from store.werewolf import GAME
from tests.support.algo.playing import OneTurnPlay, alive, playing
from tests.support.settings import werewolf_config

CONFIG = werewolf_config(groups_per_step=2, rollouts_per_group=2, max_attempts=2, max_policy_lag=1)


async def test_games_of_weights_older_than_the_schedule_are_replayed(client):
    """A process that was killed had begun groups sooner than its successor does: left so, they would be stale later."""

    def process(begun, resumption=None):
        schedule, queue = Schedule(2, 1, 8, [], begun), RolloutQueue(client, GAME, CONFIG.rollout, resumption)
        tasks = lambda step: step_tasks(CONFIG, step)  # noqa: E731
        return schedule, InFlight(queue, schedule, 2, tasks, adopting=resumption is not None)

    def step(in_flight):
        fields = dict(run_name="run", version=play.version, endpoints=("http://127.0.0.1:1/v1",), model="policy")
        return in_flight.play_step(play.version, PolicyResources(**fields), alive, lambda now: None)

    play, groups = OneTurnPlay(), []
    async with playing(client, play):
        schedule, killed = process(0)
        await step(killed)
        assert schedule.begun == 4  # those of the second step, too, for version 0
        _, successor = process(2, ResumePoint(1, 1))
        for play.version in (1, 2):
            played = await step(successor)
            groups += played.groups
            assert {turn.policy_version for game in played.rollouts.finished for turn in game.turns} <= {1, 2}
    assert {"run-step0002-deal00", "run-step0002-deal01"} <= set(groups)


def test_what_a_process_played_is_good_up_to_the_version_to_which_every_later_one_went_back():
    # Begun; gone on with at version 4, then at 1, now at 3: the versions 2 to 4 of the first two processes were undone.
    resumption = ResumePoint(policy_version=3, number=3, before=(4, 1))
    assert [resumption.newest_version_of(process) for process in range(4)] == [1, 1, 3, 3]
