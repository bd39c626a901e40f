"""Made-up learning runs for unit tests: their games were never played, and their numbers are chosen by the test."""

import json
from datetime import UTC, datetime

import numpy as np
from safetensors.numpy import save_file

from algo.evaluation.cross_table import Cell, CrossTable
from algo.evaluation.outcomes import EVALUATIONS_FOLDER, Evaluation
from algo.learning.record import LearningRecord, StageRun
from algo.werewolf.behaviour import Behaviour
from algo.werewolf.file_names import CROSS_TABLE_FILE
from algo.werewolf.samples import SampleGame, SampleSeat, SampleTurn
from configs.loading import as_yaml, load_config
from tests.support.algo.evaluations import make_game

PLAYERS = ("random", "scripted", "policy")


def make_learning_run(
    folder,
    seeds=(1,),
    wins=((8, 8), (4, 16)),
    deals=20,
    steps=4,
    sides=("good",),
    invalid=(0, 0),
    leaks=(0, 0),
    between=(),
    **sample,
):
    """A learning run's folder.

    wins: of ``deals`` games each, as the wolves (before, after) and as the good side (before, after). invalid, leaks:
    of the first seat of every game, before and after. between: steps with an evaluation that is like the one before.
    sample: see ``make_sample``.
    """
    folder.mkdir(exist_ok=True)
    for seed in seeds:
        make_seed(folder, seed, wins, deals, steps, sides, invalid, leaks, between, **sample)
    stages = [
        StageRun(stage="training", seed=seed, began=datetime(2026, 1, 1, tzinfo=UTC), seconds=600.0, exit_status=0)
        for seed in seeds
    ]
    LearningRecord(
        commands=["python -m algo.learn --made-up"], side="both" if len(sides) == 2 else sides[0], seeds=seeds,
        configuration="made_up.yaml", warm_start_configuration="made_up.yaml", overrides=(), steps=steps, deals=deals,
        cross_table_deals=10, versions={"python": "3.0"}, cpus=2, stages=stages,
    ).write(folder)  # fmt: skip
    return folder


def make_seed(folder, seed, wins, deals, steps, sides, invalid=(0, 0), leaks=(0, 0), between=(), **sample):
    training = folder / f"seed-{seed}"
    for step, when in ((0, 0), *((step, 0) for step in between), (steps, 1)):
        games = [
            make_game(
                result=side if deal < wins[number][when] else other,
                wolf="policy" if side == "wolf" else "scripted",
                good="policy" if side == "good" else "scripted",
                deal=2 * deal + 1,
                invalid=invalid[when],
                leaks=leaks[when],
            )
            for number, (side, other) in enumerate((("wolf", "good"), ("good", "wolf")))
            for deal in range(deals)
        ]
        evaluation = Evaluation(
            label=f"step {step}", player=f"policy@{step}", policy_version=step, preset="5p_tiny", seed=1,
            temperature=1.0, opponents={"scripted": 2 * deals}, games=games,
            behaviour={side: make_behaviour(side, deals, when) for side in ("wolf", "good")},
            samples=[make_sample(side, deal, when, **sample) for side in ("wolf", "good") for deal in (1, 3)],
        )  # fmt: skip
        evaluation.write(training / EVALUATIONS_FOLDER / f"step-{step:06d}.json")
    settings = [f"run.name=seed-{seed}", f"run.dir={folder}", f"run.seed={seed}", f"run.steps={steps}"]
    settings += [f"game.train_sides=[{', '.join(sides)}]", f"evaluation.deals={deals}"]
    settings += ["game.opponent=scripted"] if len(sides) == 1 else []
    config = load_config(None, [*settings, "evaluation.opponents=[scripted]"])
    (training / "config.yaml").write_text(as_yaml(config))
    write_steps(training, [step_metrics(step, seed, sides, steps) for step in range(1, steps + 1)])
    (training / "summary.json").write_text(json.dumps({"seconds_by_stage": {"play": 120.0, "update": 60.0}}))
    make_warm_start(folder, seed)
    cells = [
        Cell(wolf=wolf, good=good, games=10, wolf_wins=2 + 3 * row, good_wins=8 - 3 * row - column, draws=column)
        for row, wolf in enumerate(PLAYERS)
        for column, good in enumerate(PLAYERS)
    ]
    table = CrossTable(players=PLAYERS, preset="5p_tiny", seed=1, deals=10, model="made up", cells=cells)
    table.write(folder / f"seed-{seed}-cross-table" / CROSS_TABLE_FILE)


def write_steps(training, steps):
    """steps: the metrics of each, from step 1."""
    lines = [json.dumps({"step": number, "data": metrics}) for number, metrics in enumerate(steps, start=1)]
    (training / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def step_metrics(step, seed, sides, steps):
    wave = 0.03 * np.sin(step + 2 * seed)
    metrics = {"turns/valid_share": 0.9 + 0.1 * step / steps}
    for side, roles in (("wolf", ("wolf",)), ("good", ("seer", "villager"))):
        if side in sides:
            share = 0.2 + 0.4 * step / steps + wave
            metrics |= {f"policy/{side}/games": 40.0, f"policy/{side}/wins": float(round(40 * share))}
            metrics |= {f"reward/{side}": 2 * share - 1, f"reward/dim/identity_leak/{side}": abs(wave) / 10}
            metrics |= {f"reward/role/{role}": 2 * share - 1 + len(role) / 100 for role in roles}
    return metrics


def make_warm_start(folder, seed):
    model = folder / f"seed-{seed}-warm-start" / "huggingface"
    model.mkdir(parents=True)
    save_file({"embedding": np.zeros((30, 40), np.float32), "head": np.zeros(34, np.float32)}, model / "m.safetensors")
    summary = {"held_out_loss": [7.2, 1.6 + 0.01 * seed, 0.7, 0.4], "seconds": {"play": 30.0, "imitate": 90.0}}
    summary |= {"games": {"learned_from": 200, "held_out": 16}, "demonstrator": "scripted"}
    (model.parent / "summary.json").write_text(json.dumps(summary))


def make_behaviour(side, games, when):
    wolf = side == "wolf"
    return Behaviour(
        games=games,
        kills={"seer": 5 + 10 * when, "villager": 20 - 10 * when, "nobody": 5} if wolf else {},
        checks={} if wolf else {"wolf": 8 + 4 * when, "good": 10 - 4 * when, "nobody": 2},
        votes={"wolf": 10 + 20 * when, "good": 30 - 20 * when, "nobody": 4},
        claims={"wolf": {"seer": 3, "none": 17}} if wolf else {"seer": {"seer": 1 + 9 * when, "none": 9 - 9 * when}},
    )


def make_sample(
    side, deal, when, reply="我是预言家，查验3号是狼人，请投3号。", thought="", transcript="第一夜\n平安夜"
):
    other = "good" if side == "wolf" else "wolf"
    result = side if when else other
    seats = []
    for seat, role in enumerate(("wolf", "seer", "villager", "villager", "villager"), start=1):
        of_side = "wolf" if role == "wolf" else "good"
        turns = (
            SampleTurn(day=1, decision="speech", thought=thought, reply=reply, error=None, target=None),
            SampleTurn(day=1, decision="exile_vote", thought=thought, reply="乱码", error="no seat named", target=None),
            SampleTurn(day=1, decision="exile_vote", thought=thought, reply="投3号", error=None, target=3),
        )
        own = of_side == side
        seats.append(
            SampleSeat(
                seat=seat, role=role, side=of_side, policy="policy" if own else "scripted",
                reward=(1.0 if when else -1.25) if own else None, turns=turns if own else (),
            )
        )  # fmt: skip
    players = {side: "policy", other: "scripted"}
    return SampleGame(
        game_id=f"sample-{side}-{deal}-{when}", deal=deal, players=players, result=result, days=2,
        transcript=transcript, seats=seats,
    )  # fmt: skip
