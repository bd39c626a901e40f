"""agentlightning's own Trainer with ``AgentVerl`` and ``GatewayRunner``: its hub, its runner processes, a fake of vLLM.

What the algorithm does with what is played is another test's (tests/end_to_end/test_agents_training.py).
"""

import json

import pytest
from agentlightning import Trainer, rollout
from openai import AsyncOpenAI

from algo.agents.algorithm import AgentVerl
from algo.agents.workload import Agents
from algo.machine.ports import free_port
from algo.rollouts.queue import RolloutQueue
from configs.agents import AgentConfig
from configs.section import ConfigError
from runners.agents.lightning import GatewayRunner
from store.agents import AGENTS
from store.client import connect
from store.schema import PolicyResources
from tests.support.agents.fakes_agents import FakeChatVllm
from tests.support.algo.playing import alive


@rollout
async def agent(task, llm):
    async with AsyncOpenAI(base_url=llm.endpoint, api_key="none") as client:
        asked = [{"role": "user", "content": task["question"]}]
        answer = await client.chat.completions.create(model=llm.model, messages=asked)
        return float(answer.choices[0].message.content == "fine")


class PlaysOneStep(AgentVerl):
    """Plays a step, with the data and the hub that training would have, and trains nothing."""

    tokenizer = None
    found = None

    async def run(self, train_dataset=None, val_dataset=None):
        config = self._with_data(self._with_hub(), train_dataset, val_dataset)
        client = connect(config.store.url)
        queue = RolloutQueue(client, AGENTS, config.rollout)
        async with FakeChatVllm(self.tokenizer, lambda prompt: "fine") as vllm:
            resources = PolicyResources(run_name="run", version=0, endpoints=(vllm.endpoint,), model="policy")
            played = await queue.play(Agents(config).tasks(1), resources, alive, lambda now: None)
        self.found = config, played
        await client.close()


def config_of(folder):
    return AgentConfig.model_validate({"run": {"name": "objects", "dir": folder}, "rollout": {"context_tokens": 2000}})


def test_the_trainers_processes_play_python_objects_through_the_gateway(tmp_path, tiny_tokenizer):
    algorithm = PlaysOneStep(config_of(tmp_path))
    algorithm.tokenizer = tiny_tokenizer
    train, val = [{"question": f"{number}?"} for number in range(9)], [{"question": "held out?"}]
    trainer = Trainer(algorithm=algorithm, runner=GatewayRunner(n=4), n_runners=2, port=free_port())
    trainer.fit(agent, train, val_dataset=val)
    config, played = algorithm.found
    assert len(played.finished) == 16 and not played.failures
    assert {(len(game.triplets), game.outcome.dimensions["reward"]) for game in played.finished} == {(1, 1.0)}
    assert [json.loads(line) for line in config.agents.train.read_text().splitlines()] == train
    assert config.agents.val.parent == tmp_path / "objects-data" and algorithm.config.agents.train is None


def test_given_tasks_replace_the_held_out_ones_of_the_configuration(tmp_path):
    config = config_of(tmp_path)
    config = config.model_copy(update={"agents": config.agents.model_copy(update={"val": tmp_path / "example.jsonl"})})
    assert AgentVerl._with_data(config, [1], None).agents.val is None
    assert AgentVerl._with_data(config, None, None).agents == config.agents


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "pass the Trainer runner=GatewayRunner"),
        ({"runner": GatewayRunner(), "strategy": "shm"}, "a hub with an HTTP address"),
    ],
)
async def test_what_would_record_no_tokens_is_refused(tmp_path, options, told):
    algorithm = AgentVerl(config_of(tmp_path))
    trainer = Trainer(algorithm=algorithm, **options)
    algorithm.set_trainer(trainer)
    algorithm.set_store(trainer.store)
    with pytest.raises(ConfigError) as error:
        await algorithm.run([1], [2])
    assert told in str(error.value)
