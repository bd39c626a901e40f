"""Made-up protocol games for unit tests: 5p_tiny, seat 1 the wolf, seat 2 the seer."""

from algo.protocol.games import PlayedSeat, ProtocolGame, StudiedGame
from store.werewolf_study import StudySpan

ROLES = {1: "wolf", 2: "seer", 3: "villager", 4: "villager", 5: "villager"}


def side_of(role):
    return "wolf" if role == "wolf" else "good"


def made_game(wolf="policy", good="scripted", result="good", deal=1, errors=0, single=None, number=0):
    """single: the seat of its wolves' or good side's own player among ``company``; errors: of seat 1."""
    seats = tuple(
        PlayedSeat(
            seat=seat,
            role=role,
            side=side_of(role),
            player=wolf if role == "wolf" else good,
            errors=errors if seat == 1 else 0,
        )
        for seat, role in ROLES.items()
    )
    return ProtocolGame(
        game_id=f"{wolf}-{good}-{deal}-{single}-{number}",
        setting="sides" if single is None else "seat",
        deal=deal,
        single=single,
        result=result,
        days=2,
        seats=seats,
    )


def studied(game=None, **noted):
    game = game or made_game()
    return StudiedGame(game, StudySpan(game_id=game.game_id, **noted))
