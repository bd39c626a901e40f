"""The configuration: what is shipped can be read, what is wrong is named."""

from pathlib import Path
from typing import get_args

import pytest

from configs.schema import CONFIG_DIR, Config, ConfigError, GameConfig, PromptName, RulesConfig, load_config
from runners.werewolf.game import OPTIONS, PRESETS, get_preset
from runners.werewolf.prompts_zh.system import SYSTEM_TEMPLATES


@pytest.mark.parametrize("path", sorted(CONFIG_DIR.glob("*.yaml")), ids=lambda path: path.name)
def test_every_shipped_configuration_is_valid_and_says_what_it_needs(path):
    load_config(path)
    assert path.read_text().startswith("#")


def test_every_setting_is_described_or_has_a_plain_name():
    undescribed = [
        f"{section}.{name}"
        for section, field in Config.model_fields.items()
        for name, setting in field.annotation.model_fields.items()
        if not setting.description
    ]
    assert len(undescribed) <= 8, undescribed


def test_presets_rules_and_prompts_are_those_of_the_game():
    """The configuration is a leaf and may not import the game, so it repeats these names."""
    assert get_args(GameConfig.model_fields["preset"].annotation) == tuple(PRESETS)
    assert tuple(RulesConfig.model_fields) == OPTIONS
    for preset in PRESETS.values():
        rules = RulesConfig.model_validate({name: getattr(preset, name) for name in OPTIONS})
        assert get_preset(preset.name, rules.chosen()) == preset
    assert set(get_args(PromptName)) == set(SYSTEM_TEMPLATES)


def test_rules_and_prompts_are_checked_before_a_run(tmp_path):
    path = tmp_path / "wolf.txt"
    path.write_text("狠一点")
    config = load_config(None, ["game.rules={win_rule: parity}", f"game.prompts={{wolf: {path}}}"])
    assert config.game.rules.chosen() == {"win_rule": "parity"} and config.game.prompts == {"wolf": path}
    for override, message in (
        ("game.rules={win_role: parity}", "unknown key 'game.rules.win_role': did you mean 'win_rule'"),
        ("game.preset=8p", "game.preset: .*12p_sheriff"),
        (f"game.prompts={{wolff: {path}}}", "game.prompts.wolff"),
        ("game.prompts={wolf: nowhere.txt}", "game.prompts.wolf: .*does not point to a file"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_config(None, [override])


def test_overrides_are_typed_by_their_setting():
    config = load_config(None, ["run.steps=7", "serving.public_url=http://h:1", "game.train_sides=[wolf]"])
    assert (config.run.steps, config.serving.public_url, config.game.train_sides) == (7, "http://h:1", ("wolf",))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("run.stepz=3", "unknown key 'run.stepz': did you mean 'steps'"),
        ("gme.preset=x", "unknown key 'gme': did you mean 'game'"),
        ("run.zzz=3", "unknown key 'run.zzz': valid keys here: name, dir, steps, seed"),
        ("run.steps=0", "run.steps: .*greater than or equal to 1.*got 0"),
        ("run.steps=many", "run.steps: .*integer"),
        ("run.name=../x", "run.name"),
        ("serving.mode=attach", "serving.url"),
        ("serving.host=0.0.0.0", "serving.host"),
        ("steps=3", "section.key=value"),
        ("run.steps", "section.key=value"),
        ("run.steps=[", "not valid YAML"),
    ],
)
def test_what_is_wrong_is_named(override, message):
    with pytest.raises(ConfigError, match=message):
        load_config(None, [override])


@pytest.mark.parametrize(
    ("text", "message"),
    [("- a", "must be a mapping"), ("run: [", "not valid YAML"), ("run: 3", "run"), ("x: 1", "unknown key 'x'")],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(path)
    assert "mine.yaml" in str(caught.value)


def test_a_missing_file_is_named_with_what_there_is():
    with pytest.raises(ConfigError, match=r"none\.yaml.*tiny_cpu\.yaml"):
        load_config(Path("none.yaml"))


def test_an_empty_file_is_all_defaults(tmp_path):
    (tmp_path / "empty.yaml").write_text("")
    assert load_config(tmp_path / "empty.yaml") == Config()
