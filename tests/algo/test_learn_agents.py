"""What ``python -m algo.learn_agents`` starts, in which order, and how it ends; with stand-ins for what it starts.

The real processes run in tests/end_to_end/test_agents.py.
"""

import json
import sys

import pytest

from algo import agent_verl, learn_agents
from algo.learn_agents import begin, command_line, parse_arguments, training_command
from configs.agents import AgentConfig
from configs.loading import CONFIG_DIR, load_config
from configs.section import ConfigError
from tests.support.agents.agent_evaluations import evaluation_of, ones

SERVICE = """
import http.server, pathlib, sys
pathlib.Path(sys.argv[2]).write_text(sys.argv[1])
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.fixture
def settings(tmp_path):
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps({"question": number}) + "\n" for number in range(20)))
    (tmp_path / "service.py").write_text(SERVICE)
    noted = tmp_path / "noted"
    noted.mkdir()
    return {
        "agents.train": tasks,
        "evaluation.tasks": 3,
        "model.path": tmp_path / "model",
        "local.model": "{python} -c \"import os; os.makedirs('{model}'); open('{model}/config.json', 'w')\"",
        "local.service": f"{{python}} {tmp_path}/service.py {{port}} {noted}/service",
        "local.runner": "--service http://127.0.0.1:{port}/chat --n 3",
    }


def options_of(tmp_path, settings, *more):
    config = tmp_path / "given.yaml"
    config.write_text("run: {name: sums}\n")
    overrides = [part for name, value in settings.items() for part in ("--set", f"{name}={json.dumps(str(value))}")]
    return ["--config", str(config), *overrides, "--directory", str(tmp_path / "learned"), *more]


def test_it_begins_with_its_settings_written_down_and_goes_on_with_them_alone(tmp_path, settings):
    given = options_of(tmp_path, settings)
    config, directory = begin(parse_arguments(given))
    assert load_config(directory / "config.yaml", schema=AgentConfig) == config and config.evaluation.tasks == 3
    assert begin(parse_arguments(["--directory", str(directory)])) == (config, directory)
    with pytest.raises(ConfigError, match="goes on with the settings that it began with"):
        begin(parse_arguments(given))
    with pytest.raises(ConfigError, match="name a configuration"):
        begin(parse_arguments([]))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"evaluation.tasks": 0}, "set evaluation.tasks above 0"),
        ({"local.runner": ""}, "local.runner must say which agent"),
        ({"local.runner": "--n {ports}"}, "local.runner '--n {ports}' is no command line"),
        ({"agents.train": "/nowhere"}, "agents.train: cannot read"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_before_anything_starts(tmp_path, settings, changes, told):
    with pytest.raises(ConfigError) as error:
        begin(parse_arguments(options_of(tmp_path, settings | changes)))
    assert told in str(error.value) and not (tmp_path / "learned").exists()


def test_commands_are_split_as_a_shell_would(tmp_path):
    split = command_line("{python} -m 'a b' {port}", {"port": "5"}, "local.service")
    assert split == [sys.executable, "-m", "a b", "5"]
    with pytest.raises(ConfigError, match=r"local\.service"):
        command_line("'open", {}, "local.service")


def test_a_seeds_training_is_a_command_that_the_algorithm_takes(tmp_path, settings):
    _, directory = begin(parse_arguments(options_of(tmp_path, settings)))
    options = agent_verl.parse_arguments(list(training_command(None, directory, "http://127.0.0.1:9", 7)[3:]))
    config = load_config(options.config, options.overrides, AgentConfig)
    assert (config.run.seed, config.run_dir, config.store.url) == (7, directory / "seed-7", "http://127.0.0.1:9")
    assert options.resume == "auto"


@pytest.mark.parametrize("name", ["service", "math", "tau2", "tau2_airline"])
def test_shipped_commands_can_be_read(name):
    local = load_config(CONFIG_DIR / f"agent_{name}.yaml", schema=AgentConfig).local
    for setting in ("model", "service", "runner"):
        if (text := getattr(local, setting)) is not None:
            assert command_line(text, {"port": "5", "model": "folder"}, setting)


def test_it_makes_the_model_starts_the_service_trains_every_seed_and_reports(tmp_path, settings, monkeypatch, capsys):
    """Hub, runner and training are stand-ins: the first two wait, the third leaves evaluations."""
    waiting = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(learn_agents, "start_hub", lambda processes, logs: "http://127.0.0.1:9")
    monkeypatch.setattr(learn_agents, "runner_command", lambda *arguments: [*waiting, *arguments])

    def training(config, directory, hub, seed):
        for step, right in ((0, 20), (4, 80)):
            evaluation = evaluation_of(step, ones(right, of=100))
            evaluation.write(directory / f"seed-{seed}" / "evaluations" / f"step-{step:06d}.json")
        return [sys.executable, "-c", f"raise SystemExit({3 if seed == 9 else 0})"]

    monkeypatch.setattr(learn_agents, "training_command", training)
    monkeypatch.setattr("sys.argv", ["learn_agents", *options_of(tmp_path, settings, "--seeds", "2", "1")])
    assert learn_agents.main() == 0
    assert (tmp_path / "model" / "config.json").exists() and (tmp_path / "noted" / "service").read_text().isdigit()
    said = capsys.readouterr()
    assert "training with seed 1 (2 of 2)" in said.err and said.out.count("+0.600") == 2
    report = (tmp_path / "learned" / "report.html").read_text()
    assert report.index("seed-1") < report.index("seed-2") and '<td class="text">yes</td>' in report
    monkeypatch.setattr("sys.argv", ["learn_agents", "--directory", str(tmp_path / "learned"), "--seeds", "9"])
    assert learn_agents.main() == 3
    assert "--directory" in capsys.readouterr().err
