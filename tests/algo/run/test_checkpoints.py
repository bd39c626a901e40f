"""Checkpoints: whole or not there, kept by age and by win rate, and only gone on from by the same run."""

import json
from functools import partial
from pathlib import Path

import pytest

from algo.run.checkpoints import (
    RunState,
    check_same_run,
    checkpoint_at,
    expired_checkpoints,
    fixed_settings,
    load_state,
    newest_checkpoint,
    save_checkpoint,
)
from algo.run.folder import open_run
from configs.loading import load_config
from configs.section import ConfigError


class FakeEngine:
    def select(self, policy):
        self.member = policy

    def save(self, directory, step):
        directory.mkdir(parents=True)
        (directory / "weights").write_text(str(step))

    def export(self, directory):
        directory.mkdir(parents=True)
        (directory / "model.safetensors").write_text(f"gathered again: {self.member}")


@pytest.fixture
def config(tmp_path):
    return load_config(None, [f"run.dir={tmp_path}", "checkpoint.keep=2"])


def save(config, step, win_rate=None, exported=Path("nowhere")):
    state = RunState(run_id="run-1", step=step, policy_version=step, score=win_rate)
    return save_checkpoint(config, FakeEngine(), state, exported)


def names(config):
    return sorted(path.name for path in (config.run_dir / "checkpoints").iterdir())


def test_the_newest_are_kept_and_the_last_is_gone_on_from(config):
    assert newest_checkpoint(config.run_dir) is None
    for step in (8, 9, 10, 11):
        save(config, step)
    assert names(config) == ["step-000010", "step-000011"]
    newest = newest_checkpoint(config.run_dir)
    state = load_state(newest)
    assert (state.step, state.run_id, (newest / "trainer" / "weights").read_text()) == (11, "run-1", "11")


def test_weights_that_were_written_for_vllm_are_not_gathered_again(config, tmp_path):
    exported = tmp_path / "exported"
    exported.mkdir()
    (exported / "model.safetensors").write_text("as pushed")
    folder = save(config, 1, exported=exported)
    assert (folder / "huggingface" / "model.safetensors").read_text() == "as pushed"
    assert (save(config, 2) / "huggingface" / "model.safetensors").read_text() == "gathered again: policy"


def test_the_best_checkpoints_are_also_kept(config):
    config = config.model_copy(update={"checkpoint": config.checkpoint.model_copy(update={"keep": 1, "keep_best": 2})})
    for step, win_rate in enumerate((0.2, 0.9, None, 0.5, 0.4), start=1):
        save(config, step, win_rate)
    assert names(config) == ["step-000002", "step-000004", "step-000005"]
    folders = [config.run_dir / "checkpoints" / name for name in names(config)]
    assert expired_checkpoints(folders, keep=3, keep_best=0) == []


@pytest.mark.parametrize("moment", ["engine.save", "copy", "state", "flush", "rename"])
def test_a_write_that_is_cut_short_leaves_the_checkpoint_before(config, monkeypatch, moment):
    save(config, 1)

    def power_failure(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        if moment == "engine.save":
            broken.setattr(FakeEngine, "save", power_failure)
        elif moment == "copy":
            broken.setattr(FakeEngine, "export", power_failure)
        elif moment == "rename":
            broken.setattr(Path, "rename", power_failure)
        else:
            name = {"state": "algo.run.checkpoints.write_atomically", "flush": "algo.machine.disk.sync"}[moment]
            broken.setattr(name, power_failure)
        with pytest.raises(KeyboardInterrupt):
            save(config, 2)
    assert load_state(newest_checkpoint(config.run_dir)).step == 1
    save(config, 2)
    assert names(config) == ["step-000001", "step-000002"]


def test_what_a_kill_leaves_of_an_expired_checkpoint_is_none_and_goes(config, monkeypatch):
    for step in (1, 2):
        save(config, step)

    def killed(folder, ignore_errors=False):
        (folder / "state.json").unlink(missing_ok=ignore_errors)
        if not ignore_errors:
            raise KeyboardInterrupt

    with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
        broken.setattr("algo.run.checkpoints.shutil.rmtree", killed)
        save(config, 3)
    save(config, 4)
    assert names(config) == ["step-000003", "step-000004"]
    (config.run_dir / "checkpoints" / "step-000001").mkdir()  # as earlier versions left it
    with pytest.raises(ConfigError, match="does not exist"):
        checkpoint_at(config.run_dir / "typo")
    with pytest.raises(ConfigError, match=f"holds the runs {config.run_dir.name}: name one"):
        checkpoint_at(config.run_dir.parent)
    with pytest.raises(ConfigError, match="no checkpoint of step 1"):
        checkpoint_at(config.run_dir, 1)


def test_a_run_goes_on_only_with_what_it_began_with(config):
    settings = json.loads(json.dumps(fixed_settings(config)))
    check_same_run(settings, config, config.run_dir)
    for override, message in (
        ("run.seed=2", "run.seed: deals and sampling"),
        ("rollout.groups_per_step=7", "rollout.groups_per_step: rollouts in flight"),
        ("training.ranks=2", "training.ranks"),
        ("training.optimizer=muon", "training.optimizer"),
        ("model.dtype=bfloat16", "model.dtype"),
    ):
        with pytest.raises(ConfigError, match=f"(?s)another {message}.*huggingface"):
            check_same_run(settings, load_config(None, [override]), config.run_dir)
    for override in ("run.steps=99", "training.learning_rate=1e-5", "rollout.timeout_seconds=900", "serving.port=8009"):
        check_same_run(settings, load_config(None, [override]), config.run_dir)


@pytest.mark.parametrize(
    ("overrides", "remedy"),
    [
        (["model.dtype=bfloat16"], ', or set model.dtype="float32"'),
        (["rollout.groups_per_step=7"], ", or set rollout.groups_per_step=4"),
        (["run.seed=2"], ", or set run.seed=1"),
        (["rollout.groups_per_step=7", "rollout.rollouts_per_group=9"], ""),
    ],
)
def test_a_single_setting_may_be_set_as_it_was(config, overrides, remedy):
    began = load_config(None, ["model.dtype=float32", "rollout.groups_per_step=4"])
    other = load_config(None, ["model.dtype=float32", "rollout.groups_per_step=4", *overrides])
    with pytest.raises(ConfigError, match=f"huggingface{remedy}$"):
        check_same_run(json.loads(json.dumps(fixed_settings(began))), other, config.run_dir)


@pytest.mark.parametrize(
    ("damaged", "remedy"),
    [
        ("checkpoints/step-000010/state.json", "move its folder away to resume from the checkpoint before it"),
        ("run.json", "start a new run with another run.name"),
    ],
)
def test_a_state_that_cannot_be_read_is_named_with_the_remedy(config, damaged, remedy):
    open_run(config, resume=True).lock.close()
    save(config, 10)
    file = config.run_dir / damaged
    file.write_text(file.read_text()[:-9])
    with pytest.raises(ConfigError, match=f"{file} is damaged.*: {remedy}"):
        load_state(file.parent)


def test_a_run_goes_on_with_the_prompts_that_it_read_when_it_was_opened(tmp_path):
    prompt = tmp_path / "wolf.txt"
    prompt.write_text("bold")
    opened = open_run(load_config(None, [f"run.dir={tmp_path}", f"game.prompts.wolf={prompt}"]), resume=True)
    for step, edit in enumerate((partial(prompt.write_text, "shy"), prompt.unlink), start=1):
        edit()
        opened.state.step = step
        save_checkpoint(opened.config, FakeEngine(), opened.state, tmp_path / "nowhere")
    opened.lock.close()
    prompt.write_text("shy")
    without = load_config(None, [f"run.dir={tmp_path}"])
    for other in (opened.config, without):
        with pytest.raises(ConfigError, match=r"another game\.prompts: .*huggingface$"):
            open_run(other, resume=True)
    moved = tmp_path / "moved.txt"
    moved.write_text("bold")
    again = load_config(None, [f"run.dir={tmp_path}", f"game.prompts.wolf={moved}"])
    assert open_run(again, resume=True).state.step == 2


@pytest.mark.parametrize("changed", ["config.json", "tokenizer.json", "weights"])
def test_a_run_goes_on_only_with_the_model_that_it_began_with(tmp_path, changed):
    model = tmp_path / "model"
    model.mkdir()
    config = load_config(None, [f"run.dir={tmp_path}", f"model.path={model}"])

    def resume():
        opened = open_run(config, resume=True)
        save_checkpoint(opened.config, FakeEngine(), opened.state, tmp_path / "nowhere")
        opened.lock.close()

    resume()  # as of an earlier version, without digests
    for content in ("first", None):  # the folder may be lost meanwhile: a checkpoint has the weights
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            (model / name).write_text(content) if content else (model / name).unlink()
        resume()
    (model / {"weights": "model.safetensors"}.get(changed, changed)).write_text("second")
    with pytest.raises(ConfigError, match=rf"another model in model\.path: .* has other {changed} .*another run\.name"):
        resume()


def test_a_run_of_an_earlier_version_with_fewer_settings_goes_on(tmp_path):
    config = load_config(None, [f"run.dir={tmp_path}"])
    opened = open_run(config, resume=False)
    del opened.state.settings["game"]["balanced_deals"]
    opened.state.step = 2
    save_checkpoint(config, FakeEngine(), opened.state, tmp_path / "nowhere")
    opened.lock.close()
    with pytest.raises(ConfigError, match=r"another game\.balanced_deals"):
        open_run(load_config(None, [f"run.dir={tmp_path}", "game.balanced_deals=true"]), resume=True)
    assert open_run(config, resume=True).state.step == 2


def test_a_run_goes_on_where_its_model_and_itself_have_moved(tmp_path):
    (tmp_path / "old" / "model").mkdir(parents=True)
    (tmp_path / "old" / "model" / "config.json").write_text("{}")
    for place in ("old", "new"):
        config = load_config(None, [f"run.dir={tmp_path / place}", f"model.path={tmp_path / place / 'model'}"])
        opened = open_run(config, resume=place == "new")
        assert opened.state.step == (2 if place == "new" else 0)
        opened.state.step = 2
        save_checkpoint(config, FakeEngine(), opened.state, tmp_path / "nowhere")
        opened.lock.close()
        if place == "old":
            (tmp_path / "old").rename(tmp_path / "new")


TEAM = "policies={wolves: {side: wolf}, villagers: {side: good}}"


def test_of_several_policies_each_has_its_model(tmp_path):
    config = load_config(None, [f"run.dir={tmp_path}", TEAM, "model.lora_rank=4"])
    pushed = tmp_path / "pushed"
    for member in config.learners:
        (pushed / member).mkdir(parents=True)
        (pushed / member / "adapter_model.safetensors").write_text(member)
    folder = save_checkpoint(config, FakeEngine(), RunState(run_id="run-1", step=1), pushed)
    assert not (folder / "huggingface").exists()
    for member in config.learners:
        own = folder / "policies" / member
        assert (own / "adapters/adapter_model.safetensors").read_text() == member
        assert (own / "huggingface/model.safetensors").read_text() == f"gathered again: {member}"


def test_who_learns_is_fixed_within_a_run_and_how_fast_is_not(tmp_path):
    one, team = load_config(None), load_config(None, [TEAM])
    faster = load_config(None, [TEAM, "policies.wolves.learning_rate=0.5"])
    check_same_run(fixed_settings(team), faster, tmp_path)
    swapped = load_config(None, ["policies={villagers: {side: good}, wolves: {side: wolf}}"])
    other_rule = load_config(None, ["policies={wolves: {roles: [wolf]}, villagers: {side: good}}"])
    # Also a run of before there were teams, and one that lost its section.
    for before, now in ((team, swapped), (team, other_rule), (one, team), (team, one)):
        with pytest.raises(ConfigError, match="cannot be resumed with other policies: restore"):
            check_same_run(fixed_settings(before), now, tmp_path)
