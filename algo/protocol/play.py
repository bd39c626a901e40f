"""Plays the protocol's games through the hub and the runners, and writes the report and its page."""

import hashlib
import logging
from pathlib import Path

from algo.evaluation.labels import check_label
from algo.evaluation.play import temperature_of
from algo.evaluation.players import serve_players
from algo.machine.progress import game_progress
from algo.protocol.games import studied_games
from algo.protocol.page import write_page
from algo.protocol.panel import PANELS, Panel, opponents_of, protocol_tasks
from algo.protocol.power import power_text
from algo.protocol.report import FOLDER, ProtocolReport, Terms, figures_of
from algo.run.folder import OpenedRun
from configs.roles_and_decks import DECKS
from configs.werewolf import WerewolfConfig
from store.schema import TRAINED_POLICY

logger = logging.getLogger("algo.evaluate")


def terms_of(panel: Panel, config: WerewolfConfig) -> Terms:
    """What a run's figures hang on."""
    return Terms(
        version=panel.version,
        preset=config.game.preset,
        rules=config.game.rules.chosen(),
        seed=config.evaluation.seed,
        deals=config.evaluation.deals,
        opponents=opponents_of(panel, config),
        own={
            name: hashlib.blake2b(str(chosen).encode(), digest_size=4).hexdigest()
            for name, chosen in sorted({**config.players, **config.frozen}.items())
            if name in config.evaluation.opponents
        },
        company=panel.company,
        reference=panel.reference,
        temperature=temperature_of(config),
        context_tokens=config.rollout.context_tokens,
        reply_tokens=config.rollout.reply_tokens,
        thinking=config.rollout.thinking,
        prompts={
            name: hashlib.blake2b(path.read_bytes(), digest_size=4).hexdigest()
            for name, path in sorted(config.game.prompts.items())
        },
    )


async def run_protocol(
    opened: OpenedRun, version: str, model: Path | None, label: str
) -> tuple[ProtocolReport, Path, Path]:
    """Play one version of the protocol with a policy; returns the report, its file, and the page over the folder's.

    model: the policy's folder; None for ``model.path`` or, with ``serving.mode=attach``, what is served there.
    Raises KeyError for no such version, and else as ``algo.evaluation.model_folder.evaluate_model`` does.
    """
    check_label(label)
    config, panel = opened.config, PANELS[version]
    folder = (model or config.model.path).resolve()
    terms = terms_of(panel, config)
    power = power_text(terms.deals, DECKS[terms.preset], panel.probed_deals)
    logger.info("protocol %s, terms %s, seed %d: %s", version, terms.digest, terms.seed, power)
    # The games that an earlier process enqueued are known by their name: it stands for everything that they hang on.
    stands_for = hashlib.blake2b(f"{terms.digest}/{folder}".encode(), digest_size=4).hexdigest()
    name = f"{config.run.name}-{label.replace(' ', '-')}-{stands_for}"
    by_setting = protocol_tasks(panel, terms.opponents, config, name, chance=terms.digest)
    tasks = [(setting, task) for setting, of_setting in by_setting.items() for task in of_setting]
    async with serve_players(opened, [TRAINED_POLICY, *terms.opponents], model) as served:
        resources = served.resources.model_copy(
            update={
                "run_name": f"{served.resources.run_name}-protocol",
                "sampling": served.resources.sampling.model_copy(update={"temperature": terms.temperature}),
                "judge": None,  # would be asked in vain: nothing is rewarded
            }
        )
        with game_progress(f"protocol {version}: {label}", len(tasks)) as on_progress:
            played = await served.games.play(
                [task for _, task in tasks],
                resources,
                served.check_alive,
                on_progress,
                resumed=opened.began_before,
                mode="val",
            )
    games = studied_games(tasks, played.finished)
    report = ProtocolReport(
        label=label,
        model=str(folder),
        initial=str(config.model.path.resolve()),
        terms=terms,
        digest=terms.digest,
        power=power,
        planned=len(tasks),
        failures=dict(played.failures),
        figures=figures_of(games, terms),
        games=tuple(one.game for one in games),
    )
    path = config.run_dir / FOLDER / f"{version}-{terms.digest}-{label.replace(' ', '-')}.json"
    report.write(path)
    return report, path, write_page(config.run_dir / FOLDER)
