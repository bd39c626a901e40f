"""Figures of the protocol on made-up games, and once through a real hub with real games."""

import pytest
from rich.console import Console

from algo.protocol.deeds import deeds_of
from algo.protocol.differences import differences
from algo.protocol.games import studied_games
from algo.protocol.page import show_report, tables_of, write_page
from algo.protocol.panel import PANELS, opponents_of, protocol_tasks
from algo.protocol.play import terms_of
from algo.protocol.report import ODDS_OF_VOTES, VOTES_FOR_WOLVES, ProtocolReport, figures_of
from algo.rollouts.queue import RolloutQueue
from store.werewolf import GAME
from store.werewolf_study import NotedChoice, NotedSpeech, NotedVote
from tests.algo.test_evaluate import RESOURCES, alive, make_config, policy, runner_at  # noqa: F401
from tests.support.algo.protocol_games import ROLES, made_game, studied

V1 = PANELS["v1"]


def vote(seat, target, odds=0.5, best=0.8, pivotal=False, at=9):
    return NotedVote(at=at, day=1, seat=seat, target=target, odds=odds, best=best, chance=0.25, pivotal=pivotal)


def test_deeds_are_counted_by_player_and_side():
    game = studied(
        votes=(vote(2, 1, 0.8, pivotal=True), vote(3, 4, 0.2), vote(4, None, None), vote(1, 2)),
        speeches=(
            NotedSpeech(at=1, day=1, seat=2, claimed="seer", reports=((1, "wolf"),)),
            NotedSpeech(at=2, day=1, seat=1, claimed="seer", reports=((3, "wolf"),)),
            NotedSpeech(at=3, day=1, seat=5),
        ),
        kills=(NotedChoice(day=1, target=2), NotedChoice(day=2)),
        checks=(NotedChoice(day=1, seat=2, target=1),),
        deaths={2: 1, 1: 2},
    )
    good = deeds_of([game], "scripted", "good", seed=1)
    assert (good.games, good.votes.cast, good.votes.abstained, good.votes.pivotal) == (1, 3, 1, 1)
    assert (good.votes.on_wolf.value, good.votes.odds.value, good.votes.expert.value) == (0.5, 0.5, 0.8)
    assert (good.votes.as_expert.value, good.votes.chance.value, good.votes.pivotal_on_wolf.value) == (0.5, 0.25, 1.0)
    assert (good.kills, good.checks, good.reports) == ({}, {"wolf": 1}, {"seer": {"true": 1}})
    assert good.claims == {"seer": {"true": 1}, "villager": {"none": 1}}
    assert (good.survival["seer"].value, good.survival["villager"].value) == (0.0, 1.0)
    wolves = deeds_of([game], "policy", "wolf", seed=1)
    assert (wolves.kills, wolves.reports) == ({"seer": 1, "nobody": 1}, {"wolf": {"false": 1}})
    assert deeds_of([game], "policy", "good", seed=1).games == 0


def test_every_figure_stands_twice_and_beside_the_references_on_the_same_deals(tmp_path):
    terms = terms_of(V1, make_config(tmp_path))
    games = [studied(made_game("policy", "scripted", "wolf", deal, errors=deal % 2)) for deal in range(4)]
    # The reference in the policy's place won one of the same deals, and one that the policy did not play.
    games += [
        studied(made_game("scripted", "scripted", "wolf" if deal in (3, 9) else "good", deal)) for deal in (2, 3, 9)
    ]
    for deal, own, others in ((1, "good", "wolf"), (2, "good", "good"), (3, "good", "wolf"), (4, "wolf", "wolf")):
        for player, result in (("policy", own), ("scripted", others)):
            game = made_game("random", "random", result, deal, single=2, number=player)
            seats = tuple(s.model_copy(update={"player": player}) if s.seat == 2 else s for s in game.seats)
            games.append(studied(game.model_copy(update={"seats": seats})))
    figures = figures_of(games, terms)
    assert (figures["all"].games, figures["without_errors"].games) == (15, 13)
    rates = {(rate.against, rate.side): rate for rate in figures["all"].sides}
    wolves = rates["scripted", "wolf"]
    assert (wolves.games, wolves.rate.value, wolves.reference.value) == (4, 1.0, pytest.approx(2 / 3))
    assert wolves.difference.value == pytest.approx(0.5)  # of deals 2 and 3
    assert rates["scripted", "good"].rate is None and rates["scripted", "good"].difference is None
    assert rates["initial", "wolf"].games == 0
    wolf, good = figures["all"].seats
    assert (good.side, good.games, good.rate.value, good.difference.value) == ("good", 4, 0.75, 0.5)
    assert wolf.games == 0 and wolf.difference is None
    assert figures["without_errors"].sides[4].games == 2 and figures["without_errors"].sides[4].against == "scripted"


def test_what_is_pooled_is_of_games_with_the_players_that_every_model_meets(tmp_path):
    terms = terms_of(V1, make_config(tmp_path))
    cast = (vote(2, 1, 0.8), vote(3, 4, 0.2))
    games = [
        studied(made_game(wolf, "policy", "good", deal), votes=cast)
        for deal, wolf in enumerate(["scripted", "expert", "initial", "strong"])
    ]
    figures = figures_of(games, terms)["all"]
    places = ("0: scripted against policy", "1: expert against policy")
    (own,) = [deeds for deeds in figures.deeds if (deeds.player, deeds.side) == ("policy", "good")]
    assert (figures.games, own.games, own.votes.cast) == (4, 2, 4)
    assert figures.by_game == {
        VOTES_FOR_WOLVES: dict.fromkeys(places, 0.5), ODDS_OF_VOTES: dict.fromkeys(places, 0.5)
    }  # fmt: skip
    assert {rate.against for rate in figures.sides if rate.games} == {"scripted", "expert", "initial"}


def test_two_reports_of_the_same_terms_are_compared_deal_by_game(tmp_path):
    terms = terms_of(V1, make_config(tmp_path))

    def report(label, games, terms=terms):
        return ProtocolReport(
            label=label, model=label, initial="i", terms=terms, digest=terms.digest, power="", planned=len(games),
            figures=figures_of(games, terms), games=tuple(one.game for one in games),
        )  # fmt: skip

    def played(*results, errors=0):
        return [
            studied(
                made_game("scripted", "policy", result, deal, errors), votes=(vote(2, 1 if result == "good" else 3),)
            )
            for deal, result in results
        ]

    before = report("before", played((1, "wolf"), (2, "wolf"), (3, "good")))
    after = report("after", played((1, "good"), (2, "wolf"), (4, "wolf")) + played((3, "good"), errors=1))
    found = {each.what: each for each in differences(after, before, "all")}
    won = found["games won, side good against scripted"]
    assert (won.deals, won.value.value, won.share) == (3, pytest.approx(1 / 3), True)
    assert found[VOTES_FOR_WOLVES].value.value == pytest.approx(1 / 3)
    assert not any("single seat" in what or "side wolf" in what for what in found)
    (without,) = [each for each in differences(after, before, "without_errors") if each.what.startswith("games won")]
    assert (without.deals, without.value.value) == (2, 0.5)
    before.write(tmp_path / "v1-1-a.json")
    after.write(tmp_path / "v1-1-b.json")
    page = write_page(tmp_path).read_text(encoding="utf-8")
    assert page.count("after less before, deal by deal") == 2 and "+33 (" in page
    # Of one deal, but against others, or against weights of another beginning: nothing to compare.
    for opponent in ("expert", "initial"):
        game = studied(made_game(opponent, "policy", "good", 1), votes=(vote(2, 1),))
        elsewhere = report("elsewhere", [game])
        assert bool(list(differences(elsewhere, report("again", [game]), "all"))) and not any(
            differences(elsewhere, before.model_copy(update={"initial": "j"}), "all")
        )
    ours, theirs = (report("a", [game]).model_copy(update={"initial": name}) for name in "ij")
    assert not any(differences(ours, theirs, "all"))
    with pytest.raises(ValueError, match="cannot be compared"):
        list(differences(after, report("b", [], terms.model_copy(update={"deals": 9})), "all"))


def test_the_panel_is_fixed_and_the_runs_own_opponents_stand_behind_it(tmp_path):
    config = make_config(tmp_path, players=["strong"], deals=7, opponents=["random", "strong"])
    assert opponents_of(V1, config) == ("random", "timid", "scripted", "expert", "initial", "strong")
    tasks = protocol_tasks(V1, ["random", "scripted"], config, "name", chance="c")
    # Policy and reference, either side, against both; the reference meets itself once.
    assert (len(tasks["sides"]), len(tasks["seat"])) == ((2 + 2 + 2 + 1) * 7, 2 * 7)
    assert len({task.game_id for of in tasks.values() for task in of}) == (7 + 2) * 7
    # Another model's games are others, with the same chances.
    for of, others in zip(
        tasks.values(), protocol_tasks(V1, ["random", "scripted"], config, "b", "c").values(), strict=True
    ):
        assert {task.game_id for task in of}.isdisjoint(task.game_id for task in others)
        assert [task.sampling_seed for task in of] == [task.sampling_seed for task in others]
    assert {task.trainable for of in tasks.values() for task in of} == {frozenset()}
    for number, (own, reference) in enumerate(zip(tasks["seat"][::2], tasks["seat"][1::2], strict=True)):
        assert own.seed == reference.seed and own.sampling_seed == reference.sampling_seed
        assert own.seating[0].seat == reference.seating[0].seat == 1 + number % 5
        assert own.seating[1:] == reference.seating[1:]
    same = terms_of(V1, config)
    assert same.digest == terms_of(V1, config).digest != terms_of(V1, make_config(tmp_path, deals=8)).digest
    text = tmp_path / "system.txt"
    digests = set()
    for words in ("你是玩家。", "你是狼人杀玩家。"):
        text.write_text(words, encoding="utf-8")
        prompted = config.model_copy(update={"game": config.game.model_copy(update={"prompts": {"system": text}})})
        digests.add(terms_of(V1, prompted).digest)
    assert len(digests | {same.digest}) == 3


async def test_the_protocol_plays_through_the_hub_and_is_written_as_page_and_json(client, policy, tmp_path):  # noqa: F811
    config = make_config(tmp_path, deals=1)
    terms = terms_of(V1, config).model_copy(update={"opponents": ("scripted", "expert")})
    by_setting = protocol_tasks(V1, terms.opponents, config, "p", terms.digest)
    tasks = [(setting, task) for setting, of in by_setting.items() for task in of]
    async with runner_at(client):
        played = await RolloutQueue(client, GAME, config.rollout).play(
            [task for _, task in tasks], policy, alive, lambda now: None, mode="val"
        )
    games = studied_games(tasks, played.finished)
    assert [one.game.setting for one in games] == ["sides"] * 7 + ["seat"] * 2
    report = ProtocolReport(
        label="a", model="m", initial="m", terms=terms, digest=terms.digest, power="", planned=len(tasks),
        figures=figures_of(games, terms), games=tuple(one.game for one in games),
    )  # fmt: skip
    figures = report.figures["all"]
    assert {"policy", "scripted", "expert"} <= {deeds.player for deeds in figures.deeds}
    expert = figures.beliefs["expert"]
    assert expert.own == expert.ceiling and figures.beliefs["policy"].mass is not None
    # The one alone in its seat, and the same company round it.
    own, reference = games[7].game, games[8].game
    assert own.seat(own.single).player == "policy" and reference.seat(own.single).player == "scripted"
    assert [s.player for s in own.seats if s.seat != own.single] == [
        s.player for s in reference.seats if s.seat != own.single
    ]
    report.write(tmp_path / "v1-a.json")
    assert ProtocolReport.read(tmp_path / "v1-a.json") == report
    page = write_page(tmp_path).read_text(encoding="utf-8")
    assert terms.digest in page and "Beliefs before votes" in page and page.count("Win rates") >= 1
    console = Console(width=200, record=True)
    show_report(report, console)
    assert "Votes to exile" in console.export_text()
    assert all(len(row) == len(table.head) for table in tables_of(report) for row in table.rows)
    (tmp_path / "v2-b.json").write_text("{}")
    with pytest.raises(ValueError, match=r"v2-b.json is no protocol report"):
        write_page(tmp_path)
    assert set(ROLES) == {seat.seat for seat in own.seats} and RESOURCES.version == 5
