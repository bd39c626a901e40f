"""Steps of a run on paper, for 12 players and Qwen3-8B on H100s: loops that wait for games beside one that overlaps.

A discrete-event simulation. Real are: the order and number of turns (games of scripted players at the real table),
which groups are begun and which make a step (``algo.rollouts.schedule`` and ``pacing``, as the product runs them),
settings (the configuration files), the memory that is left for the KV cache and the sizes of the model
(``algo.planning``). Assumed are the constants below. A server works off steps, each of one token for every running
request and a chunk of prompts; its prefix cache forgets what was used longest ago; a push empties it.
"""

import asyncio
import heapq
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean

from rich.console import Group as Lines
from rich.table import Table
from transformers import Qwen3Config

from algo.planning.machine import H100_GIB, Machine
from algo.planning.memory import recomputes
from algo.planning.model_shape import BYTES
from algo.planning.plan import make_plan
from algo.planning.seconds import REPLIES, UTILISATION
from algo.reports.charts import chart_style, color_of, finish, legend, panels, picture
from algo.rollouts.schedule import Schedule
from bench.recorded import record_game
from configs.loading import CONFIG_DIR, load_config
from configs.werewolf import WerewolfConfig

PRESET, RECORDED, STEPS, LEFT_OUT = "12p_sheriff", 8, 14, 3
H100 = Machine(8, H100_GIB, 1500.0, flops=7e14, bandwidth=3e12)
WORDS = 8.0
"""Tokens of the model's replies for each of a scripted player's: 200 a speech, 32 a choice, 10,000 a game."""
SPREAD = 0.6
"""Standard deviation of a reply's length, on a logarithmic scale; no reply is longer than ``rollout.reply_tokens``."""
CHUNK = 8192
"""Most tokens of prompts in one step of a server."""
LINK = 25e9
"""Bytes a second in which a server fetches a part of its KV cache from the machine's memory (PCIe 5, half used)."""
OVERHEAD = 0.002
"""Seconds of a server's step beside reading memory and computing."""
RUNNER = 0.03
"""Seconds that a runner and the network need between two rounds of questions."""
LOOK = 5.0
"""Seconds between two looks at the servers' load, as in ``RolloutQueue.watch``."""
PUBLIC = ("speech", "campaign_speech", "closing_speech", "last_words", "pk_speech")
NO_LAG, ALL_ON_GPU = "rollout.max_policy_lag=0", "serving.kv_offload_gb=0"
PICTURE = Path("runs/bench/overlap.png")
SHOWN = 6
"""The step in the picture."""


@dataclass(frozen=True)
class Turn:
    """One call as it was recorded. given: tokens added to its prompt, others' speeches apart; heard: those of these."""

    seat: int
    given: int
    heard: int
    reply: int


async def _record(seed: int, model_folder: Path) -> list[list[Turn]]:
    """A game's rounds: what is asked at once, before anyone has answered."""
    waiting: list[asyncio.Event] = []
    sizes: list[int] = []

    async def call() -> None:
        waiting.append(asyncio.Event())
        await waiting[-1].wait()

    async def answer() -> None:
        while True:
            known, quiet = len(waiting), 0
            while quiet < 100:  # turns of the event loop in which nobody asks anything more
                await asyncio.sleep(0)
                quiet, known = (quiet + 1 if len(waiting) == known else 0), len(waiting)
            if known:
                sizes.append(known)
                asked, waiting[:] = list(waiting), []
                for one in asked:
                    one.set()

    answering = asyncio.create_task(answer())
    _, spans = await record_game(PRESET, seed, model_folder, call)
    answering.cancel()
    rounds, said, heard = [], 0, dict.fromkeys(range(1, 13), 0)
    spans = deque(spans)
    for size in sizes:
        turns = [spans.popleft() for _ in range(size)]
        rounds.append([])
        for turn in turns:
            new = said - heard[turn.seat]
            heard[turn.seat] = said
            rounds[-1].append(Turn(turn.seat, max(len(turn.prompt_ids) - new, 1), new, len(turn.response_ids)))
        said += sum(len(turn.response_ids) for turn in turns if turn.decision in PUBLIC)
    return rounds


@dataclass(eq=False)
class Call:
    """A request: tokens to compute before the first token, and tokens to sample."""

    key: tuple[int, int]
    context: int
    new: int
    reply: int
    done: Callable[[], None]
    left: int = 0


class Server:
    """One vLLM on paper."""

    def __init__(
        self,
        clock: "Clock",
        kv_tokens: float,
        host_tokens: float,
        read: float,
        per_cached: float,
        per_token: float,
        per_fetched: float,
        slots: int,
    ):
        """read: seconds to read all weights; per_cached: and a cached token; per_token: to compute a prompt's token."""
        self._clock, self._kv, self._read, self._slots = clock, kv_tokens, read, slots
        self._per_cached, self._per_token = per_cached, per_token
        self.waiting: deque[Call] = deque()
        self._filling: deque[Call] = deque()
        self._decoding: list[tuple[int, int, Call]] = []
        self._cached: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._held = self._kept = self._tokens = self._order = 0
        self._host, self._per_fetched = host_tokens, per_fetched
        self._offloaded: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._away = self._fetching = 0
        self._link_free = 0.0
        self._paused = self._halted = False
        self.active = False
        self.computed = self.asked = 0
        self.busy = Spans(clock)

    @property
    def running(self) -> int:
        """Requests that it works on."""
        return len(self._filling) + len(self._decoding) + self._fetching

    def ask(self, call: Call) -> None:
        """A request comes."""
        self.waiting.append(call)
        self._go()

    def pause(self, keep: bool) -> None:
        """Begin no more requests; those under way are halted, or finished."""
        self._paused, self._halted = True, keep

    def forget(self) -> None:
        """New weights: what they had computed is to be computed anew, of halted requests, too."""
        self._cached.clear()
        self._offloaded.clear()
        self._kept = self._away = 0
        for ends_at, _, call in sorted(self._decoding, key=lambda entry: entry[1]):
            left = ends_at - self._tokens
            call.new, call.reply = call.new + call.reply - left, left
            self._filling.append(call)
        self._decoding.clear()
        for call in self._filling:
            call.left = call.context + call.new

    def resume(self) -> None:
        """Go on."""
        self._paused = self._halted = False
        self._go()

    def _admit(self) -> None:
        while self.waiting and not self._paused and self.running < self._slots:
            call = self.waiting[0]
            size = call.context + call.new + call.reply
            if self._held + size > self._kv and self.running:
                break
            self.waiting.popleft()
            known = self._cached.pop(call.key, 0)
            self._kept -= known
            offloaded = self._offloaded.pop(call.key, 0)
            self._away -= offloaded
            call.left = call.new if known or offloaded else call.context + call.new
            self.computed, self.asked = self.computed + call.left, self.asked + call.context + call.new
            self._held += size
            if known or not offloaded:
                self._filling.append(call)
            else:
                self._fetching += 1
                self._link_free = max(self._clock.now, self._link_free) + offloaded * self._per_fetched
                self._clock.after(self._link_free - self._clock.now, partial(self._fetched, call))
            while self._cached and self._held + self._kept > self._kv:
                key, tokens = self._cached.popitem(last=False)
                self._kept -= tokens
                if self._host:
                    self._offloaded[key] = tokens
                    self._away += tokens
            while self._away > self._host:
                self._away -= self._offloaded.popitem(last=False)[1]

    def _fetched(self, call: Call) -> None:
        self._fetching -= 1
        self._filling.append(call)
        self._go()

    def _go(self) -> None:
        if self.active or self._halted:
            return
        self._admit()
        if not self._filling and not self._decoding:
            self.busy.end()
            return
        self.busy.begin()
        self.active = True
        room, prompts = CHUNK, []
        for call in self._filling:
            taken = min(room, call.left)
            prompts.append((call, taken))
            room -= taken
            if not room:
                break
        cached = sum(call.context + call.new for *_, call in self._decoding)
        # With prompts to compute one token a step; else a few at once, which is the same in fewer events.
        steps = 1 if prompts else min(4, self._decoding[0][0] - self._tokens)
        seconds = OVERHEAD + max(self._read, (len(self._decoding)) * self._per_token) + cached * self._per_cached
        self._clock.after(steps * seconds + (CHUNK - room) * self._per_token, lambda: self._step_made(steps, prompts))

    def _step_made(self, steps: int, prompts: list[tuple[Call, int]]) -> None:
        self.active = False
        self._tokens += steps
        ended = []
        while self._decoding and self._decoding[0][0] <= self._tokens:
            ended.append(heapq.heappop(self._decoding)[2])
        for call, taken in prompts:
            call.left -= taken
            if call.left <= 0:
                self._filling.remove(call)
                self._order += 1
                heapq.heappush(self._decoding, (self._tokens + call.reply, self._order, call))
        for call in ended:
            size = call.context + call.new + call.reply
            self._held -= size
            self._cached[call.key] = size
            self._kept += size
            call.done()
        self._go()


class Clock:
    """Simulated time, and what happens in it."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        """Have something happen."""
        self._number += 1
        heapq.heappush(self._events, (self.now + seconds, self._number, event))

    def until(self, reached: Callable[[], bool]) -> None:
        """Let time pass until something holds."""
        while not reached():
            self.now, _, event = heapq.heappop(self._events)
            event()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        over = []
        self.after(seconds, lambda: over.append(True))
        self.until(lambda: bool(over))


@dataclass
class Spans:
    """When something was busy."""

    clock: Clock
    all: list[tuple[float, float]] = field(default_factory=list)
    since: float | None = None

    def begin(self) -> None:
        if self.since is None:
            self.since = self.clock.now

    def end(self) -> None:
        if self.since is not None:
            self.all.append((self.since, self.clock.now))
            self.since = None

    def share(self, start: float, end: float) -> float:
        """Of a time."""
        spans = self.all + ([(self.since, self.clock.now)] if self.since is not None else [])
        return sum(max(0.0, min(end, b) - max(start, a)) for a, b in spans) / (end - start)


@dataclass(frozen=True)
class Loop:
    """A way to make steps. first_come: the groups that finish first make a step; else those begun for it. keep: replies
    are halted while weights arrive; else they are finished first."""

    name: str
    config: WerewolfConfig
    first_come: bool
    keep: bool


class Simulation:
    """One run of a loop."""

    def __init__(self, loop: Loop, games: list[list[list[Turn]]], seed: int):
        self.loop, self.clock, self._luck = loop, Clock(), random.Random(seed)
        self._games = games
        config, rollout = loop.config, loop.config.rollout
        plan = make_plan(config, H100, seats=12)
        shape, size = plan.shape, BYTES[config.model.dtype]
        self._estimate = plan.seconds
        self.servers = [
            Server(
                self.clock,
                plan.kv_tokens,
                config.serving.kv_offload_gb * 2**30 / (size * shape.kv_per_token),
                size * shape.parameters / H100.bandwidth,
                size * shape.kv_per_token / H100.bandwidth,
                shape.flops(1000, 1000, 0) / 1000 / (H100.flops * UTILISATION),
                size * shape.kv_per_token / LINK,
                config.serving.max_concurrent_sequences,
            )
            for _ in range(config.serving.server_count)
        ]
        self._flops = shape.flops
        self.trainer, self.runners = Spans(self.clock), Spans(self.clock)
        self.per_step, self.per_group = rollout.groups_per_step, rollout.rollouts_per_group
        lag, most = rollout.max_policy_lag, rollout.max_groups_in_flight
        self.schedule = Schedule(self.per_step, lag, (STEPS + lag + 1) * self.per_step, most=most)
        self._left: dict[int, int] = {}
        self._tokens: dict[int, list[int]] = {}
        self.finished: list[int] = []
        self.playing = 0
        self.in_play: list[tuple[float, int]] = []
        self.version = 0
        self.ends: list[float] = []
        self.lags: list[float] = []
        self.seconds: list[float] = []

    def run(self) -> None:
        """Make the steps."""
        config, trainer = self.loop.config, self.clock
        saving_until = 0.0
        for step in range(STEPS):
            self._begin()
            while (chosen := self._chosen(step)) is None:
                known, look = len(self.finished), trainer.now + LOOK
                over: list[bool] = []
                trainer.after(LOOK, lambda over=over: over.append(True))
                trainer.until(lambda known=known, over=over: len(self.finished) > known or bool(over))
                if trainer.now >= look:
                    self._begin()
            begun = {group.number: group.version for group in self.schedule.open}
            self.lags.append(fmean(self.version - begun[number] for number in chosen))
            assert max(self.version - begun[number] for number in chosen) <= config.rollout.max_policy_lag
            self.schedule.take(chosen)
            trainer.sleep(self._estimate.get("sleep and wake", 0.0) / 2)
            trainer.sleep(max(0.0, saving_until - trainer.now))  # the checkpoint before holds the trainer
            self.trainer.begin()
            trainer.sleep(self._update_seconds(chosen) + self._estimate.get("offloaded weights", 0.0))
            self.trainer.end()
            trainer.sleep(self._estimate.get("sleep and wake", 0.0) / 2)
            self._push()
            self.version += 1
            if (step + 1) % config.checkpoint.every_steps == 0:
                saving = self._estimate["checkpoint, beside the next"] * config.checkpoint.every_steps
                saving_until = trainer.now + saving
            self.ends.append(trainer.now)

    def _chosen(self, step: int) -> list[int] | None:
        if self.loop.first_come:
            return self.schedule.choose(self.finished, self.version)
        own = range(step * self.per_step, (step + 1) * self.per_step)
        return list(own) if set(own) <= set(self.finished) else None

    def _begin(self) -> None:
        for group in self.schedule.begin(self.schedule.room, self.version):
            self._left[group.number], self._tokens[group.number] = self.per_group, []
            for game in range(self.per_group):
                self._play(group.number, group.number * self.per_group + game)

    def _play(self, group: int, number: int) -> None:
        rounds = iter(self._luck.choice(self._games))
        contexts = dict.fromkeys(range(1, 13), 0)
        words = self._luck.lognormvariate(0, 0.15) * WORDS
        self._count(+1)
        started = self.clock.now

        def next_round() -> None:
            turns = next(rounds, None)
            if turns is None:
                self._count(-1)
                self.seconds.append(self.clock.now - started)
                self._left[group] -= 1
                self._tokens[group] += contexts.values()
                if not self._left[group]:
                    self.finished.append(group)
                return
            open_calls = len(turns)

            def answered() -> None:
                nonlocal open_calls
                open_calls -= 1
                if not open_calls:
                    self.clock.after(RUNNER, next_round)

            for turn in turns:
                limit = self.loop.config.rollout.reply_tokens
                noise = self._luck.lognormvariate(-(SPREAD**2) / 2, SPREAD)
                reply = max(2, min(limit, round(turn.reply * words * noise)))
                new = turn.given + round(turn.heard * words)
                context = contexts[turn.seat]
                if context + new + reply > self.loop.config.rollout.context_tokens:
                    context = context // 4  # a new segment, from a recap
                contexts[turn.seat] = context + new + reply
                server = self.servers[(number + turn.seat) % len(self.servers)]
                server.ask(Call((number, turn.seat), context, new, reply, answered))

        next_round()

    def _count(self, change: int) -> None:
        self.playing += change
        self.in_play.append((self.clock.now, self.playing))
        (self.runners.begin if self.playing else self.runners.end)()

    def _update_seconds(self, groups: list[int]) -> float:
        lengths = [length for group in groups for length in self._tokens[group]]
        training = self.loop.config.training
        passes = training.epochs * (4 if recomputes(training) else 3) + 1
        forward = self._flops(sum(lengths), fmean(lengths), REPLIES * sum(lengths)) / (H100.flops * UTILISATION)
        return passes * forward / training.ranks

    def _push(self) -> None:
        for server in self.servers:
            server.pause(self.loop.keep)
        self.clock.until(lambda: not any(s.active or (s.running and not self.loop.keep) for s in self.servers))
        for server in self.servers:
            server.busy.end()
        self.clock.sleep(self._estimate["push"])
        for server in self.servers:
            server.forget()
            server.resume()


def _qwen3_8b(folder: Path) -> Path:
    """Its config.json, which has all sizes."""
    layers = dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, head_dim=128)
    heads = dict(num_attention_heads=32, num_key_value_heads=8)
    Qwen3Config(vocab_size=151936, tie_word_embeddings=False, **layers, **heads).save_pretrained(folder)
    return folder


def _loops(folder: Path) -> list[list[Loop]]:
    """What is compared, on the same GPUs each; the first is what the others are compared with."""

    def config(name: str, *settings: str) -> WerewolfConfig:
        return load_config(CONFIG_DIR / f"{name}.yaml", [f"model.path={folder}", *settings], WerewolfConfig)

    own, two = "qwen3_8b", ("serving.servers=2", "training.ranks=6", "serving.kv_offload_gb=225")
    return [
        [
            Loop("8 shared, lag 0", config(f"{own}_shared"), False, False),
            Loop("3 + 5, lag 1, own", config(own), False, False),
            Loop("3 + 5, lag 1, first", config(own), True, True),
            Loop("… 12 groups at most", config(own, "rollout.max_groups_in_flight=12"), True, True),
            Loop("… lag 2", config(own, "rollout.max_policy_lag=2"), True, True),
            Loop("… nothing offloaded", config(own, ALL_ON_GPU), True, True),
            Loop("2 + 6, lag 1, first", config(own, *two), True, True),
            Loop("… nothing offloaded", config(own, *two, ALL_ON_GPU), True, True),
        ],
        [
            Loop("8 + 24, lag 0", config("several_nodes", NO_LAG), False, False),
            Loop("… nothing offloaded", config("several_nodes", NO_LAG, ALL_ON_GPU), False, False),
            Loop("8 + 24, lag 1, own", config("several_nodes"), False, False),
            Loop("8 + 24, lag 1, first", config("several_nodes"), True, True),
        ],
    ]


def measure(model_folder: Path) -> Lines:
    """Simulate all loops with the same games; draws one step of the first and of the third into ``PICTURE``."""
    games = [asyncio.run(_record(seed, model_folder)) for seed in range(RECORDED)]
    columns = ("games/h", "ratio", "step", "game", "servers", "trainer", "runners", "lag", "anew")
    tables, drawn = [], []
    for loops in _loops(_qwen3_8b(model_folder.parent / "Qwen3-8B")):
        table = Table(title=f"{PRESET}, Qwen3-8B on H100s, simulated", title_justify="left")
        table.add_column("loop", no_wrap=True)
        for column in columns:
            table.add_column(column, justify="right")
        first = None
        for loop in loops:
            run = Simulation(loop, games, seed=1)
            run.run()
            drawn.append(run)
            start, end = run.ends[LEFT_OUT - 1], run.ends[-1]
            step = (end - start) / (STEPS - LEFT_OUT)
            rate = 3600 * run.per_step * run.per_group / step
            first = first or rate
            idle = [1 - fmean(server.busy.share(start, end) for server in run.servers)]
            idle += [1 - run.trainer.share(start, end), 1 - run.runners.share(start, end)]
            anew = sum(server.computed for server in run.servers) / sum(server.asked for server in run.servers)
            shown = [f"{rate:.0f}", f"{rate / first:.2f}", f"{step:.0f}", f"{fmean(run.seconds):.0f}"]
            shown += [f"{share:.0%}" for share in idle]
            table.add_row(loop.name, *shown, f"{fmean(run.lags[LEFT_OUT:]):.2f}", f"{anew:.0%}")
        tables.append(table)
    _draw(drawn[0], drawn[2])
    recorded = fmean(sum(map(len, game)) for game in games), fmean(len(game) for game in games)
    said = (
        "GPUs: shared by vLLM and the trainer (qwen3_8b_shared.yaml), vLLM's + the trainer's (qwen3_8b.yaml; 8 + 24: "
        "several_nodes.yaml). own: a step waits for its own games, and vLLM drains before new weights; first: for "
        "those that finish first, and vLLM goes on. step, game: seconds. servers, trainer, runners: share of time "
        "in which they had nothing to do. lag: updates, mean over groups. anew: prompt tokens computed, of all.\n"
        f"{RECORDED} recorded games, {recorded[0]:.0f} calls in {recorded[1]:.0f} rounds; replies {WORDS:g} "
        f"times a scripted player's. One step of the first and the third loop: {PICTURE}"
    )
    return Lines(*tables, said)


def _draw(before: Simulation, after: Simulation) -> None:
    """One step of each: when servers and trainer were busy, and how many games were in play."""
    with chart_style():
        figure, axes = panels(2, 1, height=2.6)
        for axis, run in zip(axes, (before, after), strict=True):
            start, end = run.ends[SHOWN - 1], run.ends[SHOWN]
            rows = [("trainer", run.trainer, color_of(1))]
            rows += [(f"vLLM {n + 1}", server.busy, color_of(0)) for n, server in enumerate(run.servers)]
            for place, (_, spans, color) in enumerate(rows):
                inside = [(max(a, start) - start, min(b, end) - max(a, start)) for a, b in spans.all if b > start]
                axis.broken_barh([(a, b) for a, b in inside if b > 0], (place - 0.4, 0.8), color=color)
            axis.set_yticks(range(len(rows)), [name for name, *_ in rows])
            axis.grid(False)
            play = axis.twinx()
            counts = [(time - start, count) for time, count in run.in_play if start <= time <= end]
            play.step(*zip(*counts, strict=True), where="post", color="#222222", lw=1.2, label="games in play")
            play.set_ylim(0, None)
            finish(axis, run.loop.name, percent=False, below="seconds of a step")
            axis.set_xlim(0, max(r.ends[SHOWN] - r.ends[SHOWN - 1] for r in (before, after)))
            legend(figure, [play]) if run is after else None
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        PICTURE.write_bytes(picture(figure, "overlap", "").png)
