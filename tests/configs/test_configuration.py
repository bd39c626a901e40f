"""The configuration: what is shipped can be read, what is wrong is named."""

from pathlib import Path

import pytest

from configs.agents import AgentConfig
from configs.loading import CONFIG_DIR, load_config
from configs.roles_and_decks import DECKS, Role
from configs.section import ConfigError
from configs.sections.game import FRAME, REMINDER, RulesConfig
from configs.sections.policies import learner_of
from configs.sections.training import fastest_precision
from configs.werewolf import WerewolfConfig
from runners.werewolf.game import OPTIONS, PRESETS, get_preset
from runners.werewolf.prompts_zh.system import REPLACEABLE


@pytest.mark.parametrize("path", sorted(CONFIG_DIR.glob("*.yaml")), ids=lambda path: path.name)
def test_every_shipped_configuration_is_valid_and_says_what_it_needs(path):
    load_config(path, schema=AgentConfig if path.name.startswith("agent_") else WerewolfConfig)
    assert path.read_text().startswith("#")


def test_a_configuration_extends_a_shipped_one_or_one_beside_it(tmp_path):
    (tmp_path / "mine.yaml").write_text("extends: demo\nrun: {name: mine}")
    (tmp_path / "next.yaml").write_text("extends: mine.yaml\nrun: {steps: 3}")
    (tmp_path / "w.txt").write_text("{rules}")
    (tmp_path / "mine.yaml").open("a").write("\ngame: {prompts: {system: w.txt}}")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "mine.yaml").write_text("extends: ../mine.yaml")
    assert load_config(tmp_path / "below" / "mine.yaml").game.prompts["system"] == tmp_path / "w.txt"
    demo, found = load_config("demo"), load_config(tmp_path / "next.yaml")
    assert (found.run.name, found.run.steps, found.game.preset) == ("mine", 3, demo.game.preset)
    (tmp_path / "next.yaml").write_text("extends: next.yaml")
    with pytest.raises(ConfigError, match=r"next\.yaml extends itself"):
        load_config(tmp_path / "next.yaml")


def test_an_override_changes_no_other_section_with_the_same_alias(tmp_path):
    (tmp_path / "mine.yaml").write_text("reward: {wolf: &same {win: 0.3}, good: *same}")
    reward = load_config(tmp_path / "mine.yaml", ["reward.wolf.win=2"]).reward
    assert (reward.wolf.win, reward.good.win) == (2, 0.3)


def test_presets_rules_and_prompts_are_those_of_the_game():
    """The configuration is a leaf and may not import the game, so it repeats these names."""
    assert tuple(DECKS) == tuple(PRESETS)
    assert tuple(RulesConfig.model_fields) == OPTIONS
    for preset in PRESETS.values():
        rules = RulesConfig.model_validate({name: getattr(preset, name) for name in OPTIONS})
        assert get_preset(preset.name, rules.chosen()) == preset
    assert {FRAME, REMINDER, *Role} == set(REPLACEABLE)


@pytest.mark.parametrize(
    "setting",
    [
        "api_key_env: sk-secret-1",
        "api_key: sk-secret-1",
        "endpoint: 'https://sk-secret-1@example.com/v1'",
        "endpoint: 'https://example.com/v1?key=sk-secret-1'",
        "tries: 0, endpoint: 'https://u:sk-secret-1@example.com/v1'",
    ],
)
def test_a_key_in_the_wrong_place_is_refused_and_not_shown(setting):
    with pytest.raises(ConfigError, match=r"players\.strong") as caught:
        load_config(None, [f"players.strong={{model: m, {setting}}}"])
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run: {steps: 1}\nrun: {steps: 2}", "'run' occurs twice"),
        ("- a", "must be a mapping"),
        ("run: [", "not valid YAML"),
        ("x: 1", "unknown key 'x'"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(path)
    assert "mine.yaml" in str(caught.value)


def test_mappings_may_be_merged_and_their_values_overridden(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("""
frozen:
  one: &one {path: m, kv_cache_gb: 0.3}
  two: &two {<<: *one, path: n}
  three: {<<: *two, kv_cache_gb: 0.4}
""")
    frozen = load_config(path).frozen.values()
    assert [(str(one.path), one.kv_cache_gb) for one in frozen] == [("m", 0.3), ("n", 0.3), ("n", 0.4)]


def test_files_are_relative_to_the_configuration_and_those_of_overrides_to_the_working_folder(tmp_path, monkeypatch):
    for folder in ("run", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "wolf.txt").write_text(folder)
    (tmp_path / "run" / "mine.yaml").write_text("game: {prompts: {wolf: wolf.txt}}")
    (tmp_path / "run" / "copy.yaml").write_bytes((CONFIG_DIR / "demo.yaml").read_bytes())
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("HOME", str(tmp_path / "run"))
    assert load_config(None, ["game.prompts.wolf=~/wolf.txt"]).game.prompts["wolf"].read_text() == "run"
    monkeypatch.setenv("HOME", "/home/me")
    run = load_config(None, ["run.dir=~/runs", "run.seed=010"]).run
    assert (str(run.dir), run.seed) == ("/home/me/runs", 10)
    training = load_config(None, ["training.rollout_correction.rollout_is_threshold=0.5_5"]).training
    assert training.rollout_correction.rollout_is_threshold == "0.5_5"  # two bounds, not YAML's 0.55
    prompts = load_config(Path("../run/mine.yaml"), ["game.prompts.seer=wolf.txt"]).game.prompts
    assert (prompts["wolf"].read_text(), prompts["seer"].read_text()) == ("run", "elsewhere")
    assert "{role}" in load_config(Path("../run/copy.yaml")).game.prompts["system"].read_text()


@pytest.mark.parametrize("name", ["gemma_cpu", "gemma_cpu.yaml", "configs/gemma_cpu.yaml", "configs/gemma_cpu"])
def test_a_shipped_configuration_is_found_by_name_unless_the_working_folder_has_one(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert load_config(name).run.name == "gemma"
    (tmp_path / "configs").mkdir()
    (tmp_path / name).write_text("run: {name: mine}")
    assert load_config(name).run.name == "mine"


def test_the_first_policy_that_matches_a_seat_plays_it():
    team = load_config(None, ["policies={seers: {roles: [seer]}, others: {side: good}, wolves: {}}"]).team
    assert [learner_of(team, role) for role in (Role.SEER, Role.VILLAGER, Role.WOLF)] == ["seers", "others", "wolves"]
    assert [learner_of({}, role) for role in (Role.SEER, Role.WOLF)] == [None, None]


def test_who_is_imitated_does_not_change_with_the_roles():
    assert load_config(None, ["warm_start.selection.roles=[wolf]"]).warm_start.selection.losers == 0.0


SIDES = "policies={wolves: {side: wolf, learning_rate: 0.01}, villagers: {side: good}}"
WOLVES, VILLAGERS = "policies={wolves: {side: wolf}}", "policies={w: {side: wolf}, v: {roles: [villager]}}"


@pytest.mark.parametrize(
    "overrides",
    [
        "players.strong={model: big}; game.opponent=strong; game.train_sides=[wolf]",
        "judge.model=big; reward.judge_score=1",
        "game.seating=[{role: seer, players: {expert: 1}}, {side: wolf, players: {policy: 0.8, scripted: 0.2}}]",
        "league.every_steps=2; game.seating=[{side: wolf, players: {policy: 0.4, past: 0.4, scripted: 0.2}}]",
        "league.every_steps=2; game.opponent=past; rollout.max_policy_lag=1; model.lora_rank=8",
        "game.train_sides=[good]; game.opponent=scripted; selection.roles=[seer]",
        "game.rules={win_rule: parity}",
        "advantage={credit: branch, branching: {share: 0.3, continuations: 4}}; rollout.groups_per_step=4",
        "advantage.branching.share=0.1; rollout.max_policy_lag=1",
        "watch={sampling/entropy/good: {below: 0.01, steps: 5, stop: true}}",
        f"{SIDES}; serving.devices=[2, 3]",
        f"{SIDES}; serving.devices=[2]; model.lora_rank=8",
        # Who is never seated needs no policy.
        f"{WOLVES}; game.train_sides=[wolf]; game.opponent=scripted",
        f"{VILLAGERS}; game.seating=[{{role: seer, players: {{expert: 1}}}}]",
    ],
)
def test_what_fits_together_is_taken(overrides):
    load_config(None, overrides.split("; "))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        # Who plays.
        ("game.opponent=scriptd", "game.opponent: unknown player 'scriptd': did you mean 'scripted'"),
        ("game.seating=[{players: {policy: 1}}, {players: {strongg: 1}}]", r"game\.seating\.1.*did you mean 'strong'"),
        ("game.seating=[{role: guard, players: {strong: 1}}]", "'5p_tiny' deals no 'guard'"),
        ("game.seating=[{seat: 6, players: {strong: 1}}]", "game.seating.0: preset '5p_tiny' has seats 1 to 5, not 6"),
        ("game.seating=[{side: good, role: wolf, players: {strong: 1}}]", "'wolf' is never of side 'good'"),
        ("game.seating=[{players: {strong: 0}}]", "shares must be positive"),
        ("game.seating=[{side: wolf, players: {strong: 1}}]", "train_sides has 'wolf', but .* never lets the policy"),
        ("game.seating=[{players: {strong: 1}}, {players: {policy: 1}}]", "train_sides has 'wolf'"),
        ("game.seating=[{role: wolf, players: {strong: 1}}]", "train_sides has 'wolf'"),
        ("game.train_sides=[wolf, wolf]", "game.train_sides: names a side twice"),
        ("players.policy={model: m}", "'policy' cannot name a player"),
        ("players.past-000001={model: m}", "'past-000001' cannot name a player"),
        ("frozen.initial={path: x}", "'initial' cannot name"),
        ("frozen.old={model: m}", "set either path"),
        ("evaluation.opponents=[scriptd]", "did you mean 'scripted'"),
        # Models of others.
        ("players.weak={model: m, endpoint: 'example.com/v1'}", "begins with http"),
        ("players.weak={model: m, timeout_seconds: 60}", "players.weak: 3 tries of 60 s .*unresponsive_seconds"),
        ("judge={model: m}", "no reward uses the judge"),
        # Several policies that learn.
        (WOLVES, "none plays the seer, which the policy may be seated as"),
        # Evaluations seat the policy on both sides.
        (f"{WOLVES}; game.train_sides=[wolf]; game.opponent=random; evaluation.deals=2", "none plays the seer"),
        # One seat of a role is not all of them.
        (f"{VILLAGERS}; game.seating=[{{seat: 2, players: {{expert: 1}}}}]", "none plays the seer"),
        ("policies={w: {side: wolf}, g: {side: good}, s: {roles: [seer]}}", "policies.s plays no role"),
        ("policies={w: {roles: [witch]}, others: {}}", "policies.w.roles: 'witch' is not dealt"),
        ("policies={w: {roles: [wolff]}, others: {}}", "roles: 'wolff' is not dealt: did you mean 'wolf'"),
        ("policies={w: {roles: [seer], side: wolf}, others: {}}", "policies.w plays no role: none is dealt"),
        ("policies={policy: {}}", "'policy' cannot name a player"),
        ("policies={policy-base: {}}", "policies has 'policy-base', a name that"),
        (f"{SIDES}; frozen.wolves.path=runs/tiny_model", "policies has 'wolves', a name that"),
        (f"{SIDES}; game.opponent=past; league.every_steps=1", "would need servers for each"),
        (f"{SIDES}; serving.mode=attach; serving.urls=[http://h:1]", "or train adapters"),
        (f"{SIDES}; serving.public_urls=[http://h:1]", r"remove serving\.urls .* or train adapters"),
        (f"{SIDES}; training.device=cuda; serving.weight_transfer=nccl", "sends the weights of one policy"),
        (f"{SIDES}; serving.devices=[0]", "1 GPUs; 2 servers need 1"),
        (f"{SIDES}; serving.port=65535", "serving.port is too high for the servers of all policies"),
        # The pool.
        ("game.opponent=past", "game.opponent: 'past' needs a pool of past selves: set league.every_steps"),
        ("league.every_steps=2", "a pool that no game uses: name 'past' in game.opponent or game.seating"),
        ("league.every_steps=2; game.opponent=past; evaluation.opponents=[past]", "unknown player 'past'"),
        ("league.every_steps=2; game.opponent=past; rollout.max_policy_lag=1", "Set it to 0, or train adapters"),
        ("league={size: 2, servers: 3}", r"servers \(3\) must not exceed size \(2\)"),
        ("league.devices=[0, 1]", "2 GPUs for 1 servers"),
        # Branches.
        ("advantage.credit=branch; rollout.max_policy_lag=1", "set rollout.max_policy_lag to 0"),
        ("advantage.credit=branch; reference.kl=reward", "set reference.kl to loss or none"),
        ("advantage.credit=branch; rollout.groups_per_step=1", "share=0.5 of 1 groups of 4 are 0 branches, fewer than"),
        ("advantage={credit: branch, branching: {continuations: 9}}", "of 2 groups of 4 are 4 branches, fewer than"),
        ("advantage.credit=branch; game={opponent: strong}", "game.opponent: .* 'strong', a model behind an API"),
        ("advantage.credit=branch; judge.model=m; reward.judge_score=1", "judge exclude each other"),
        # Rules and prompts.
        ("game.preset=8p", "game.preset: .*12p_sheriff"),
        ("game.prompts={wolf: nowhere.txt}", "game.prompts.wolf: .*does not point to a file"),
        # Serving, training and what is trained on.
        ("serving.mode=attach", "serving.urls"),
        ("serving.urls=[http://h:1]", "serving.urls needs serving.mode=attach"),
        ("serving.public_urls=[http://h:1/v1]", "remove /v1"),
        ("serving.public_urls=[http://h:80800]", "a port between 1 and 65535"),
        ("serving.public_urls=[http://u:p@h]", "must have no user"),
        ("serving.devices=[0, 1]", "2 GPUs; 1 servers need 1"),
        ("serving.weight_transfer=nccl", "needs GPUs"),
        ("training.device=cuda; serving.weight_transfer=nccl; model.lora_rank=8", "use folder for adapters"),
        ("training.device=cuda; serving.kv_offload_gb=1; rollout.max_policy_lag=1", "exclude each other"),
        (
            "training.device=cuda; serving.share_gpus=true; serving.servers=8; training.ranks=4; "
            "serving.weight_transfer=ipc",
            "a training rank on each of the 8 serving GPUs",
        ),
        ("model.attn_implementation=sdpaa", "'eager', 'sdpa' or 'flash_attention_2'"),
        ("training.adam_betas=[0.9, 1.0]", "training.adam_betas: .*at least 0 and below 1"),
        ("training.adam_betas=[-0.1, 0.9]", "training.adam_betas: .*at least 0 and below 1"),
        ("training.sequence_parallel=2", "multiple of sequence_parallel"),
        ("training.max_tokens_per_micro_batch=100", r"\(100\) times sequence_parallel .* max_sequence_tokens"),
        ("reference={kl: reward, penalty: k3+}", "set penalty to k3, or kl to loss"),
        ("reference={kl: loss, penalty: k1}", r"set penalty to k1\+"),
        ("training.rollout_correction.rollout_rs=token_k1", "set both"),
        ("selection.roles=[guard]", "'guard', a role that preset '5p_tiny' does not deal"),
        ("selection.roles={guard: 0.5}", "'guard', a role that preset '5p_tiny' does not deal"),
        ("selection.roles={seer: 1.5}", "selection.roles.*less than or equal to 1"),
        (
            "game.train_sides=[good]; game.opponent=scripted; selection.roles=[wolf]",
            "a side that game.train_sides excludes",
        ),
        ("selection={winners: 0, losers: 0}", "winners and losers are both 0"),
        ("checkpoint.keep_best=1; evaluation.every_steps=10", "needs evaluations"),
        ("checkpoint.keep_best=1; evaluation.deals=2", "needs evaluations"),
        ("checkpoint={keep_best: 1, every_steps: 2}; evaluation={deals: 2, every_steps: 3}", "multiple of checkpoint"),
        ("rollout.context_tokens=16384", "max_sequence_tokens"),
        ("watch={turns/valid_share: {steps: 5}}", "set below, above, or both"),
        # Overrides themselves.
        ("run.steps=true", "run.steps: .*must not be true or false"),
        ("run.steps=1:30", r"run.steps: .*\(got '1:30'\)"),
        ("game.preset.x=1", "'preset' is not a section"),
        ("steps=3", "section.key=value"),
    ],
)
def test_what_is_wrong_is_named(overrides, message):
    with pytest.raises(ConfigError, match=message):
        load_config(None, ["players.strong={model: big}", *overrides.split("; ")])


@pytest.mark.parametrize(
    ("flags", "precision"),
    [("avx2 fma", "float32"), ("avx512f avx512vl", "float32"), ("avx2 avx512_bf16", "bfloat16"), ("", "float32")],
)
def test_auto_is_bfloat16_only_on_a_cpu_with_instructions_for_it(flags, precision):
    assert fastest_precision(f"model name : CPU of bfloat16fans\nflags : {flags}\n") == precision
    config = load_config(None, ["model.dtype=auto", "warm_start.dtype=auto"])
    assert config.model.dtype == config.warm_start.dtype != "auto"
