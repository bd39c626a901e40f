"""Training as an agentlightning ``Algorithm``: data sets and agent as Python objects, the loop of ``algo.agent_verl``.

from agentlightning import Trainer
from algo.agents.algorithm import AgentVerl
from runners.agents.lightning import GatewayRunner

trainer = Trainer(algorithm=AgentVerl("configs/agent_math.yaml"), runner=GatewayRunner(), n_runners=2)
trainer.fit(math_agent, train, val_dataset=val)
"""

import logging
from pathlib import Path
from typing import Any

from agentlightning import Algorithm, Dataset, LitAgentRunner

from algo.agents.data import read_data, write_tasks
from algo.agents.workload import Agents
from algo.evaluation.page import wide_console
from algo.loop.startup import check_before_starting
from algo.loop.train import train
from algo.rollouts.played import UnusableRollouts
from algo.run.folder import discard_rollouts, log_to, open_run
from algo.run.summary import show_summary
from configs.agents import AgentConfig
from configs.loading import load_config
from configs.section import ConfigError

logger = logging.getLogger(__name__)


class AgentVerl(Algorithm):
    """The training loop for any agent.

    config: a configuration, or its file. overrides: ``section.key=value``, which replace the file's values.
    resume: continue the run of this name, as ``--resume auto`` does. summary: of the finished run.
    Raises ConfigError, also in ``run``.
    """

    def __init__(self, config: AgentConfig | Path | str, *overrides: str, resume: bool = False):
        self.config = config if isinstance(config, AgentConfig) else load_config(Path(config), overrides, AgentConfig)
        if overrides and isinstance(config, AgentConfig):
            raise ConfigError(
                "overrides need a configuration file, not an AgentConfig: pass its path, or change the object"
            )
        self.summary: dict[str, Any] | None = None
        self._resume = resume

    async def run(self, train_dataset: Dataset[Any] | None = None, val_dataset: Dataset[Any] | None = None) -> None:
        """Train on the given data sets, which replace those of the configuration.

        Logs to the terminal and into the run's folder, as ``python -m algo.agent_verl`` does.
        """
        config = self._with_data(self._with_hub(), train_dataset, val_dataset)
        read_data(config)
        check_before_starting(config)
        opened = open_run(config, self._resume)
        log_to("INFO", opened.config.run_dir / "logs" / "algorithm.log")
        if opened.state.step >= config.run.steps:
            logger.info("the run has finished its %d steps; increase run.steps to continue", opened.state.step)
            return
        try:
            self.summary = await train(opened, Agents(opened.config))
        except UnusableRollouts:
            discard_rollouts(opened.config.run_dir)
            raise
        show_summary(self.summary, wide_console())

    def _with_hub(self) -> AgentConfig:
        """The configuration with the trainer's own hub."""
        if isinstance(self.get_trainer().runner, LitAgentRunner):
            raise ConfigError(
                "agentlightning's own runner records no tokens: pass the Trainer runner=GatewayRunner(), from "
                "runners.agents.lightning"
            )
        store = self.get_store()
        address = getattr(store, "endpoint", None) or getattr(store, "server_address_root", None)
        if address is None:
            raise ConfigError(
                f"the algorithm needs a hub with an HTTP address, not a {type(store).__name__}: use the Trainer's "
                f"default strategy 'cs'"
            )
        hub = self.config.store.model_copy(update={"url": address})
        return self.config.model_copy(update={"store": hub})

    @staticmethod
    def _with_data(config: AgentConfig, train_set: Dataset[Any] | None, val_set: Dataset[Any] | None) -> AgentConfig:
        """Write data sets to files named by content, so that a run is resumed only with the same ones.

        Without a validation set, a part of the training set is held out, not the configuration's own tasks.
        """
        folder = config.run.dir / f"{config.run.name}-data"
        given: dict[str, Path | None] = {} if train_set is None else {"val": None}
        given |= {
            name: write_tasks((data[number] for number in range(len(data))), folder, name)
            for name, data in (("train", train_set), ("val", val_set))
            if data is not None
        }
        return config.model_copy(update={"agents": config.agents.model_copy(update=given)})
