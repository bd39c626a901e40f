"""Who plays whom: v3 is fixed, a run's own opponents stand behind it, and every model has the same chances."""

from algo.evaluation.panel import PANELS, matches_of
from algo.werewolf.matches import held_out_deals
from configs.werewolf import WerewolfConfig
from store.players import PLAYERS_WITHOUT_A_MODEL


def make_config(tmp_path, players=(), **evaluation):
    return WerewolfConfig(
        run={"dir": tmp_path, "name": "run"},
        evaluation={"deals": 7, **evaluation},
        players={name: {"model": "fake-model"} for name in players},
    )


def test_v3_is_fixed_and_the_runs_own_opponents_stand_behind_it(tmp_path):
    config = make_config(tmp_path, players=["strong"], opponents=["random", "strong"])
    found = matches_of(config, PANELS["v3"], "a", "model")
    assert found.conditions["opponents"] == ["random", "timid", "scripted", "expert", "initial", "strong"]
    assert {name for panel in PANELS.values() for name in panel.opponents} == {*PLAYERS_WITHOUT_A_MODEL, "initial"}
    # Policy and reference, either side, against all; the reference meets itself once; single seats for both.
    counts = {name: len(tasks) for name, tasks in found.by_name.items()}
    assert counts == {
        **dict.fromkeys(("random", "timid", "expert", "initial", "strong"), 28), "scripted": 21, "single seat": 14
    }  # fmt: skip
    assert len({task.game_id for task in found.tasks}) == len(found.tasks)
    assert {task.trainable for task in found.tasks} == {frozenset()}
    for number, (own, reference) in enumerate(zip(found.tasks[-14::2], found.tasks[-13::2], strict=True)):
        assert own.seed == reference.seed and own.sampling_seed == reference.sampling_seed
        assert own.seating[0].seat == reference.seating[0].seat == 1 + number % 5
    assert {task.study.probes for task in found.tasks} == {frozenset({"vote"})}


def test_another_models_games_are_others_with_the_same_chances(tmp_path):
    config = make_config(tmp_path)
    one, other = (matches_of(config, PANELS["v3"], "a", model) for model in ("x", "y"))
    assert {task.game_id for task in one.tasks}.isdisjoint(task.game_id for task in other.tasks)
    assert [task.sampling_seed for task in one.tasks] == [task.sampling_seed for task in other.tasks]
    assert one.digest == other.digest


def test_what_figures_hang_on_is_in_the_terms(tmp_path):
    changes = ({}, {"deals": 8}, {"seed": 2}, {"temperature": 0.5}, {"opponents": ["expert"]})
    digests = {matches_of(make_config(tmp_path, **more), PANELS["run"], "a", "").digest for more in changes}
    text = tmp_path / "system.txt"
    for words in ("你是玩家。", "你是狼人杀玩家。"):
        text.write_text(words, encoding="utf-8")
        config = make_config(tmp_path)
        prompted = config.model_copy(update={"game": config.game.model_copy(update={"prompts": {"system": text}})})
        digests.add(matches_of(prompted, PANELS["run"], "a", "").digest)
    assert len(digests) == 7


def test_of_an_opponent_the_conditions_have_how_it_plays_and_not_what_it_costs(tmp_path):
    def digest(**settings):
        evaluation = {"deals": 7, "opponents": ["other"]}
        config = WerewolfConfig(run={"dir": tmp_path, "name": "run"}, evaluation=evaluation, **settings)
        return matches_of(config, PANELS["run"], "a", "").digest

    by_api = {"model": "m", "endpoint": "http://127.0.0.1:1/v1"}
    cheap = {"tries": 1, "timeout_seconds": 9, "max_concurrent": 2, "requests_per_minute": 3.0, "api_key_env": "KEY"}
    usual = digest(players={"other": by_api})
    assert digest(players={"other": by_api | cheap}) == usual
    assert usual not in {digest(players={"other": by_api | more}) for more in ({"model": "n"}, {"temperature": 0.1})}
    folder = tmp_path / "weights"
    folder.mkdir()
    digests = []
    for written, settings in ((b"a", {}), (b"a", {"kv_cache_gb": 2.0}), (b"b", {})):
        (folder / "model.safetensors").write_bytes(written)
        digests.append(digest(frozen={"other": {"path": str(folder)} | settings}))
    assert digests[0] == digests[1] != digests[2]


def test_a_run_plays_the_sides_that_it_trains_and_cross_every_pair(tmp_path):
    config = make_config(tmp_path, opponents=["scripted", "random"])
    run = matches_of(config, PANELS["run"], "a", "")
    assert list(run.by_name) == ["scripted", "random"]
    assert [task.seed for task in run.by_name["scripted"]] == [deal for deal in held_out_deals(7, 1) for _ in "ab"]
    wolves = config.model_copy(update={"game": config.game.model_copy(update={"train_sides": ("wolf",)})})
    trained = {name: matches_of(wolves, panel, "a", "").by_name for name, panel in PANELS.items() if name != "cross"}
    sides = {(rule.side, *rule.players) for task in trained["run"]["random"] for rule in task.seating}
    assert sides == {("wolf", "policy"), ("good", "random")} and len(trained["run"]["random"]) == 7
    assert len(trained["held-out"]["expert"]) == 7 and len(trained["v3"]["expert"]) == 4 * 7
    cross = matches_of(config, PANELS["cross"], "a", "", ["policy", "random"])
    assert {name: len(tasks) for name, tasks in cross.by_name.items()} == {
        "policy, policy": 7, "policy, random": 14, "random, random": 7
    }  # fmt: skip
    names = ["base", "base-v2", "v2-lora", "lora"]
    tasks = matches_of(make_config(tmp_path, players=names), PANELS["cross"], "a", "", names).tasks
    assert len({task.game_id for task in tasks}) == len(tasks)
