"""What ``--local`` starts; how processes end with each other is tested in tests/algo/machine."""

import importlib
import sys

import pytest

from algo.machine.processes import Processes
from algo.run.local import runner_permissions
from configs.loading import load_config
from configs.werewolf import WerewolfConfig
from runners.werewolf.__main__ import parse_arguments as game_runner
from tests.support.processes import exit_status

PLAYERS = (
    "players={friend: {model: m, endpoint: https://api.example.com/v1, api_key_env: FRIEND_KEY}, "
    "open: {model: m, endpoint: https://open.example.com/v1}}"
)


@pytest.mark.parametrize(
    ("command", "suffix"), [("werewolf_verl", ""), ("werewolf_sft", "-warm-start"), ("evaluate", "-evaluation")]
)
def test_a_command_runs_again_with_a_hub_and_a_runner_of_its_own(command, suffix, tmp_path, monkeypatch):
    started, model = {}, tmp_path / "model"
    monkeypatch.setattr(Processes, "start", lambda self, name, command, logs, *grace: started.update({name: command}))
    monkeypatch.setattr(Processes, "wait_for", lambda self, name: 3 if name == list(started)[-1] else 0)
    model.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (model / name).write_text("{}")
    (model / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    module = importlib.import_module(f"algo.{command}")
    settings = [f"run.dir={tmp_path}", "run.name=tried", f"model.path={model}", "evaluation.deals=1", PLAYERS]
    arguments = ["--local", "5", *(part for one in settings for part in ("--set", one))]
    (tmp_path / f"tried{suffix}").mkdir()
    (tmp_path / f"tried{suffix}/run.json").touch()
    monkeypatch.setattr("sys.argv", [command, *arguments])
    assert module.main() == 3
    hub, runner, again = started.values()
    assert again[:3] == [sys.executable, "-m", f"algo.{command}"]
    child = module.parse_arguments(again[3:])
    config = load_config(child.config, child.overrides, WerewolfConfig)
    assert (child.local, config.run.name, config.model.path) == (0, "tried", model)
    assert config.store.url == f"http://127.0.0.1:{hub[-1]}" and str(config.serving.port) not in (hub[-1], "8000")
    assert runner[2] == "runners.werewolf"
    playing = game_runner(runner[3:])
    assert (playing.store, playing.n) == (config.store.url, 5)
    assert "FRIEND_KEY=https://api.example.com/v1" in runner
    assert playing.allow_address == ["https://open.example.com/v1"]
    assert (tmp_path / f"tried{suffix}-2/logs").is_dir()  # where the child will find its name taken, too
    monkeypatch.setattr("sys.argv", [command, *arguments, "--set", "run.dir=/dev/null"])
    assert exit_status(module.main) == 2


def test_the_runner_may_call_the_servers_that_a_configuration_attaches_to():
    servers = ["serving.mode=attach", "serving.urls=[http://8.8.8.8:8000]", "frozen={old: {url: http://8.8.4.4:1}}"]
    assert runner_permissions(
        load_config(None, servers, WerewolfConfig), load_config(None, [PLAYERS], WerewolfConfig)
    ) == [
        "--api-key",
        "FRIEND_KEY=https://api.example.com/v1",
        *("--allow-address", "http://8.8.4.4:1"),
        *("--allow-address", "http://8.8.8.8:8000"),
        *("--allow-address", "https://open.example.com/v1"),
    ]
    own = ["players={openai: {model: m, api_key_env: OPENAI_KEY}}"]
    assert runner_permissions(load_config(None, own, WerewolfConfig)) == [
        *("--api-key", "OPENAI_KEY=https://api.openai.com/v1")
    ]
    behind = [*servers[:2], "serving.public_urls=[http://9.9.9.9:80]"]
    assert runner_permissions(load_config(None, behind)) == ["--allow-address", "http://9.9.9.9:80"]
