"""What a speech changed in its listeners' beliefs towards what its speaker's side wants, as a reward of that turn.

Sarkar et al., Training Language Models for Social Deduction with Multi-Agent Reinforcement Learning, arXiv 2502.06060,
reward a message by how far the living players' belief in who is the impostor moves, and those whom it betrays by the
opposite. Here, of a speech by seat s, with b(l, w) what a listener l gives for w being a wolf, before and after it:

    influence(s) = +-  mean over l  mean over w  [ b_after(l, w) - b_before(l, w) ]

over the living good seats l != s and the true wolves w that l was asked about both times; + for the good side, - for
the wolves. Whether the speech is true plays no part: that is left to the outcome.

Known risks, for which it is off by default. Listeners that are trained with the speaker can be moved by a code that
means nothing to others; listeners that believe anything reward shouting; a true report that is not believed earns as
little as silence; and a wolf is paid for what it makes others believe even where nobody votes by it. Keep it small
beside the outcome, and look at the speeches.
"""

from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean

from algo.belief.observed import around_speeches, wolf_chance
from configs.roles_and_decks import Role, Side
from store.werewolf_study import StudySpan


def influence_of_turns(study: StudySpan, roles: Mapping[int, Role]) -> dict[int, dict[int, float]]:
    """Seat -> number of its turn -> influence, -1.0 to 1.0, of speeches around which listeners could be asked.

    roles: of all seats of the game.
    """
    wolves = {seat for seat, role in roles.items() if role.side is Side.WOLF}
    moves: dict[tuple[int, int], list[float]] = defaultdict(list)
    for speech, before, after in around_speeches(study):
        known = wolves & (before.beliefs or {}).keys() & (after.beliefs or {}).keys()
        if speech.turn is None or before.seat in wolves or not known:
            continue
        rises = [wolf_chance(after.beliefs[wolf]) - wolf_chance(before.beliefs[wolf]) for wolf in sorted(known)]
        moves[speech.seat, speech.turn].append(fmean(rises))
    found: dict[int, dict[int, float]] = defaultdict(dict)
    for (seat, turn), rises in moves.items():
        found[seat][turn] = -fmean(rises) if seat in wolves else fmean(rises)
    return dict(found)
