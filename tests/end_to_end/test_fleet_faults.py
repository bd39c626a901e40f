"""Any process may die: runners, hub and algorithm are killed with SIGKILL while they play, and every game is
read exactly once. Kills come after a seeded number of model calls, so each hits games that are under way."""

import asyncio
import itertools
import random
import signal

import pytest

from algo.werewolf.tasks import step_tasks
from tests.support.hub.fleet import RUN, Kept, SlowVllm, algorithm, finished_once, own_deaths, read_journal, runner
from tests.support.hub.hub_process import HubProcess, StockHub
from tests.support.settings import werewolf_config

pytestmark = pytest.mark.timeout(900)

BATCHES, SEED = 7, 5
DEALS, GAMES_PER_DEAL = 5, 4
GAMES = BATCHES * DEALS * GAMES_PER_DEAL
RUNNERS, GAMES_AT_ONCE = 3, 6
LONGEST_CALL_SECONDS = 0.3
KILLS = 20
ANY_PROCESS = ["runner"] * 5 + ["algorithm"] * 2 + ["hub"] * 3
ALL_BUT_THE_HUB = ["runner"] * 7 + ["algorithm"] * 3
CALLS_BETWEEN_KILLS = (8, 48)
OWN_DEATHS = 0.1
STALLED_SECONDS = 100.0


def config_of(seed):
    """The policy plays the wolf of five, whose calls take a moment each; the others are scripted and answer at once."""
    return werewolf_config(
        RUN,
        seed,
        groups_per_step=DEALS,
        rollouts_per_group=GAMES_PER_DEAL,
        train_sides=("wolf",),
        opponent="scripted",
        timeout_seconds=60,
        unresponsive_seconds=3,
        max_attempts=30,
    )


class Fleet:
    """A hub, three runners and an algorithm, kept alive, and a policy that the test itself serves."""

    def __init__(self, hub, folder, tiny_model, tiny_tokenizer, seed):
        self.hub, self.folder = hub, folder
        self.journal = folder / "journal.jsonl"
        self._algorithms_log = folder / "algorithm.log"
        self.chance = random.Random(seed)
        self.policy = SlowVllm(tiny_tokenizer, self.chance, LONGEST_CALL_SECONDS)
        self.hub_deaths = 0
        self.seed = seed
        self._model = tiny_model

    async def __aenter__(self):
        await self.hub.start()
        endpoint = await self.policy.start()
        arguments = ["--store", self.hub.url, "--n", str(GAMES_AT_ONCE), "--tokenizer", str(self._model)]
        self.runners = [
            Kept(f"runner-{n}", lambda n=n: runner(self.folder / f"runner-{n}.log", *arguments)) for n in range(RUNNERS)
        ]
        starts = itertools.count()
        self.algorithm = Kept(
            "algorithm",
            lambda: algorithm(
                self._algorithms_log,
                self.journal,
                self.hub.url,
                endpoint,
                config_of(self.seed),
                BATCHES,
                OWN_DEATHS,
                next(starts),
            ),
            has_an_end=True,
        )
        return self

    async def __aexit__(self, *_):
        for kept in (*self.runners, self.algorithm):
            kept.kill()
        self.hub.kill()
        await self.policy.stop()

    async def play(self, victims):
        """All games, while processes of these kinds are killed."""
        async with asyncio.TaskGroup() as group:
            keeping = [group.create_task(kept.keep()) for kept in self.runners]
            training = group.create_task(self.algorithm.keep())
            # Counted by deaths: now and then a kill comes at the moment of the algorithm's own death.
            while (number := sum(self.deaths()[0].values())) < KILLS:
                for _ in range(self.chance.randint(*CALLS_BETWEEN_KILLS)):
                    assert await self._next_call(training), f"the games were over after {number} kills"
                await self._kill(number, self.chance.choice(victims))
            while await self._next_call(training):
                pass
            for kept in self.runners:
                kept.interrupt()
            await asyncio.wait(keeping)

    async def _next_call(self, training):
        """Whether the policy was called again, before the algorithm had read all games."""
        call = asyncio.create_task(self.policy.calls.acquire())
        done, _ = await asyncio.wait([call, training], timeout=STALLED_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        call.cancel()
        assert done, f"nothing happened for {STALLED_SECONDS:.0f} s; see the logs in {self.folder}"
        return not training.done()

    async def _kill(self, number, kind):
        if kind == "hub":
            self.hub.kill()
            assert self.hub.process.exitcode == -signal.SIGKILL, self.hub.log.read_text()
            self.hub_deaths += 1
            await self.hub.start()
            name = kind
        else:
            victim = self.algorithm if kind == "algorithm" else self.chance.choice(self.runners)
            await victim.die()
            name = victim.name
        written = len(read_journal(self.journal)) if self.journal.exists() else 0
        print(f"kill {number + 1}: {name}, {written} of {BATCHES} batches read")

    def deaths(self):
        """How often processes of each kind were killed, and how often the algorithm killed itself."""
        own = own_deaths(self._algorithms_log) if self._algorithms_log.exists() else 0
        return {
            "runner": sum(kept.deaths for kept in self.runners),
            "algorithm": self.algorithm.deaths - own,
            "hub": self.hub_deaths,
        }, own


async def check(fleet):
    """How many rollouts were cancelled; the others have all ended once."""
    tasks = {task.game_id for batch in range(BATCHES) for task in step_tasks(config_of(fleet.seed), batch)}
    assert len(tasks) == GAMES
    finished, cancelled = await finished_once(fleet.hub.url, fleet.journal, tasks, BATCHES)
    attempts = sum(rollout.attempt.sequence_id for rollout, _ in finished)
    killed, own = fleet.deaths()
    print(f"{GAMES} games in {attempts} attempts; killed: {killed}, and the algorithm's own deaths: {own}")
    assert attempts > GAMES + KILLS / 4, "kills hit nothing that was under way"
    assert sum(killed.values()) >= KILLS, killed
    return cancelled


@pytest.mark.slow  # a minute
async def test_any_process_may_die(tmp_path, tiny_model, tiny_tokenizer):
    async with Fleet(HubProcess(tmp_path), tmp_path, tiny_model, tiny_tokenizer, SEED) as fleet:
        await fleet.play(ANY_PROCESS)
        assert not await check(fleet)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("hub", "victims"), [(HubProcess, ANY_PROCESS), (StockHub, ALL_BUT_THE_HUB)])
async def test_other_seeds(tmp_path, tiny_model, tiny_tokenizer, seed, hub, victims):
    async with Fleet(hub(tmp_path), tmp_path, tiny_model, tiny_tokenizer, seed) as fleet:
        await fleet.play(victims)
        await check(fleet)
