"""``python -m runners.werewolf.brains.table``: win rates between players without a model, in every preset.

Every player as the wolves against every player as the good side, on the same seeded deals, in this process.
"""

import argparse

from runners.werewolf.brains import BRAINS, NewBrain
from runners.werewolf.game import PRESETS, Preset, Result, Side
from runners.werewolf.local import play_locally, seeded_brains


def good_wins(preset: Preset, wolves: str | NewBrain, good: str | NewBrain, games: int) -> float:
    """Share of the games on deals 0 to ``games`` - 1 that the good side wins; a draw is no win."""
    players = {Side.WOLF: wolves, Side.GOOD: good}
    results = (play_locally(preset, seed, seeded_brains(preset, seed, players)).result for seed in range(games))
    return sum(result is Result.GOOD for result in results) / games


def main() -> None:
    """Print the tables as Markdown."""
    parser = argparse.ArgumentParser(
        prog="python -m runners.werewolf.brains.table",
        description="Print, for each preset, the games in a hundred that the good side (column) wins against the "
        "wolves (row), for all players that need no model.",
    )
    parser.add_argument("--games", type=int, default=200, help="deals a cell (default: %(default)s)")
    parser.add_argument("--presets", nargs="+", choices=list(PRESETS), default=list(PRESETS), metavar="NAME")
    parser.add_argument("--players", nargs="+", choices=list(BRAINS), default=list(BRAINS), metavar="NAME")
    options = parser.parse_args()
    for name in options.presets:
        print(f"\n| {name}: wolves | " + " | ".join(f"good: {player}" for player in options.players) + " |")
        print("| --- |" + " ---: |" * len(options.players))
        for wolves in options.players:
            shares = [good_wins(PRESETS[name], wolves, good, options.games) for good in options.players]
            print(f"| {wolves} | " + " | ".join(f"{100 * share:.0f}" for share in shares) + " |", flush=True)


if __name__ == "__main__":
    main()
