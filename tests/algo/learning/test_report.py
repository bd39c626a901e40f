"""The report of a learning run: its verdict, what is counted for it, its figures and its page. All runs are made up."""

import base64
import json
import re
from dataclasses import replace

import pytest

from algo.evaluation.outcomes import EVALUATIONS_FOLDER, Evaluation
from algo.evaluation.statistics import wilson_interval
from algo.learning import figures as learning_figures
from algo.learning.comparison import compare_runs
from algo.learning.counts import (
    change_of,
    curve_of,
    pooled_behaviour,
    pooled_cells,
    role_win_rates,
    training_win_rate,
    window_of,
)
from algo.learning.figures import draw_figures
from algo.learning.page import behaviour_rows, headline_of, render_report, sample_pair, write_report
from algo.learning.record import LearningRecord
from algo.learning.report import main
from algo.learning.run import read_learning_run
from configs.loading import as_yaml, load_config
from tests.support.algo.learning_folders import make_behaviour, make_learning_run, make_seed, write_steps

EVIL = "</div><script>alert('x')</script><img src=x onerror=alert(1)>"
LEARNED = {"deals": 100, "wins": ((40, 40), (20, 80))}


def run_of(tmp_path, **made):
    return read_learning_run(make_learning_run(tmp_path, **made))


# --- several beside each other ---------------------------------------------------------------------------------------


def test_runs_are_compared_with_the_first_seed_by_seed(tmp_path, capsys):
    made = {"seeds": (1, 2), "deals": 100}
    make_learning_run(tmp_path / "as_it_was", wins=((40, 40), (20, 30)), **made)
    make_learning_run(tmp_path / "other", wins=((40, 20), (20, 60)), steps=5, **made)
    (tmp_path / "other" / "learn.json").unlink()  # trainings alone will do
    first, other = compare_runs([tmp_path / "as_it_was", tmp_path / "other"])
    assert (first.settings, first.difference) == ({}, None) and other.settings == {"run.steps": 5}
    assert {seed: rate.value for seed, rate in other.by_seed.items()} == {1: 0.6, 2: 0.6}
    assert other.together == wilson_interval(120, 200)
    assert first.before == other.before == wilson_interval(40, 200)
    # By deals, which both seeds of both runs played: the same 30 of 100 were won by the other alone.
    assert other.difference.value == pytest.approx(0.3) and 0.2 < other.difference.low < other.difference.high < 0.4
    assert first.minutes == 3.0
    as_wolves = compare_runs([tmp_path / "as_it_was", tmp_path / "other"], "wolf")[1]
    assert as_wolves.together.value == 0.2 and as_wolves.difference.value == pytest.approx(-0.2)
    assert main([str(tmp_path / "as_it_was"), str(tmp_path / "other")]) == 0
    assert "+30.0 (+2" in capsys.readouterr().out
    assert main([str(tmp_path / "as_it_was"), str(tmp_path)]) == 2
    assert "has no seed-N with an evaluation after its last step" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(tmp_path / "other"), "--side", "good"])
    assert "--side says whose games are compared" in capsys.readouterr().err


def test_a_seed_that_was_evaluated_on_the_way_but_not_at_its_end_is_not_compared(tmp_path):
    folders = [make_learning_run(tmp_path / name, seeds=(1, 2), between=(2,)) for name in ("one", "two")]
    (folders[1] / "seed-2" / EVALUATIONS_FOLDER / "step-000004.json").unlink()
    assert set(compare_runs(folders)[1].by_seed) == {1}


def test_a_run_with_a_seed_that_was_not_evaluated_before_is_compared_after_alone(tmp_path):
    folders = [make_learning_run(tmp_path / name, seeds=(1, 2)) for name in ("one", "two")]
    (folders[1] / "seed-2" / EVALUATIONS_FOLDER / "step-000000.json").unlink()
    found = compare_runs(folders)[1]
    assert found.before is None and set(found.by_seed) == {1, 2}


def test_a_setting_that_only_the_first_run_has_is_named(tmp_path):
    folders = [make_learning_run(tmp_path / name) for name in ("weighed", "plain")]
    file = folders[0] / "seed-1" / "config.yaml"
    file.write_text(as_yaml(load_config(file, ["warm_start.question_weights={exile_vote: 4}"])))
    assert compare_runs(folders)[1].settings["warm_start.question_weights.exile_vote"] is None


def test_runs_that_met_others_are_not_compared(tmp_path):
    folders = [make_learning_run(tmp_path / name) for name in ("one", "two")]
    file = folders[1] / "seed-1" / EVALUATIONS_FOLDER / "step-000004.json"
    evaluation = Evaluation.read(file)
    evaluation.model_copy(update={"opponents": {"timid": 40}}).write(file)
    with pytest.raises(ValueError, match="two, seed 1, was evaluated against timid, the first run against scripted"):
        compare_runs(folders)


# --- the verdict ------------------------------------------------------------------------------------------------------


def test_a_run_that_learned_says_so_with_its_numbers(tmp_path):
    headline = headline_of(run_of(tmp_path, seeds=(1, 2), deals=100, wins=((40, 45), (20, 60))))
    assert headline.met and headline.unmet == ()
    assert headline.verdict == "The policy learned to win as the good side: all that is asked for holds."
    trained, untrained = headline.told
    before, after = wilson_interval(40, 200), wilson_interval(120, 200)
    assert f"20.0 % ({100 * before.low:.1f}–{100 * before.high:.1f})" in trained
    assert f"60.0 % ({100 * after.low:.1f}–{100 * after.high:.1f})" in trained
    assert "+40.0 (" in trained and "do not touch" in trained and "against scripted" in trained
    assert untrained.startswith("As the wolves, not trained, the policy won 40.0 %") and "+5.0 (" in untrained
    assert "intervals touch" in untrained and "did not rise beyond their intervals" in untrained


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"deals": 400, "wins": ((8, 8), (100, 176))}, "the win rate rose by only 19.0 points; 20 are asked for"),
        ({"deals": 20, "wins": ((8, 8), (5, 10))}, "the intervals before and after touch"),
        ({"deals": 400, "wins": ((8, 8), (176, 100))}, "the win rate changed by -19.0 points; 20 are asked for"),
        ({"invalid": (0, 1), **LEARNED}, "invalid replies rose from 0.0 % to 16.7 %"),
        ({"leaks": (0, 1), **LEARNED}, "games with an identity leak rose from 0.0 % to 100.0 %"),
    ],
)
def test_what_does_not_hold_is_said_in_words(tmp_path, made, said):
    headline = headline_of(run_of(tmp_path, **made))
    assert not headline.met and headline.verdict == "The policy does not meet what is asked of it as the good side."
    assert [sentence for sentence in headline.unmet if said in sentence and "As the good side" in sentence]


def test_who_ends_above_the_opponent_in_its_place_need_not_gain_as_much(tmp_path):
    """Scripted against itself: 4 of 10 games of the good side in the made-up cross table."""
    made = {"deals": 400, "wins": ((8, 8), (200, 260))}
    change = change_of(run_of(tmp_path, **made).complete, "good", "scripted")
    assert change.points.value == pytest.approx(15.0) and change.in_its_place == wilson_interval(4, 10)
    assert not change.surpasses and "or more than the opponent wins in its place" in change.unmet()[0]
    above = replace(change, in_its_place=wilson_interval(220, 400))
    assert above.surpasses and above.unmet() == []
    assert not replace(change, in_its_place=wilson_interval(240, 400)).surpasses  # the intervals touch
    (told, _) = headline_of(run_of(tmp_path / "again", **made)).told
    assert "In its place scripted wins 40.0 % (16.8–68.7) against itself." in told


def test_win_rates_are_told_again_of_games_without_errors_on_either_side(tmp_path):
    run = run_of(tmp_path, deals=10, wins=((4, 4), (2, 6)))
    (seed,) = run.complete
    spoiled = iter([("policy", {"invalid_turns": 1}), ("scripted", {"defaulted_decisions": 1})])

    def spoil(game):
        if game.players["good"] != "policy" or game.result != "good" or (change := next(spoiled, None)) is None:
            return game
        who, errors = change
        number = next(n for n, seat in enumerate(game.seats) if game.players[seat.side] == who)
        seats = [seat.model_copy(update=errors) if n == number else seat for n, seat in enumerate(game.seats)]
        return game.model_copy(update={"seats": tuple(seats)})

    after = seed.after.model_copy(update={"games": tuple(map(spoil, seed.after.games))})
    change = change_of([replace(seed, evaluations=(seed.before, after))], "good", "scripted")
    assert (change.before_without_errors, change.after) == (change.before, change_of([seed], "good", "scripted").after)
    assert (change.after_without_errors.games, change.after_without_errors.wins) == (8, 4)
    page = render_report(run, draw_figures(run))
    assert page.count("every reply of either side could be used") == 2


def test_each_condition_is_told_apart(tmp_path):
    headline = headline_of(run_of(tmp_path, invalid=(0, 1), **LEARNED))
    assert len(headline.unmet) == 1 and "invalid replies" in headline.unmet[0]
    assert not headline_of(run_of(tmp_path / "fewer", invalid=(1, 0), leaks=(1, 0), **LEARNED)).unmet


def test_one_seed_that_did_not_learn_spoils_the_verdict(tmp_path):
    make_learning_run(tmp_path, seeds=(1, 2), deals=100, wins=((40, 40), (20, 90)))
    make_seed(tmp_path, 3, ((40, 40), (20, 25)), 100, 4, ("good",))
    headline = headline_of(read_learning_run(tmp_path))
    assert not headline.met and headline.verdict.endswith("but not everything that is asked for holds.")
    assert all("seed 3" in sentence for sentence in headline.unmet) and len(headline.unmet) == 2


def test_seeds_that_did_not_end_are_named_and_not_left_out(tmp_path):
    make_learning_run(tmp_path, seeds=(1, 2, 3))
    (tmp_path / "seed-2" / EVALUATIONS_FOLDER / "step-000004.json").unlink()
    lines = (tmp_path / "seed-3" / "metrics.jsonl").read_text().splitlines()
    (tmp_path / "seed-3" / "metrics.jsonl").write_text("\n".join(lines[:2]))
    record = LearningRecord.read(tmp_path)
    record.model_copy(update={"seeds": (1, 2, 3, 4)}).write(tmp_path)  # of the fourth there is no folder yet
    run = read_learning_run(tmp_path)
    headline = headline_of(run)
    assert headline.unmet == (
        "Seed 2 is not complete: no evaluation after training.", "Seed 3 is not complete: 2 of 4 steps made.",
        "Seed 4 is not complete: training has not begun.",
    )  # fmt: skip
    assert not headline.met and [seed.seed for seed in run.seeds] == [1, 2, 3, 4]
    page = render_report(run, draw_figures(run))
    assert "Seed 2 is not complete" in page


def test_a_run_that_has_only_begun_has_a_page_that_says_so(tmp_path):
    make_learning_run(tmp_path)
    (tmp_path / "seed-1" / EVALUATIONS_FOLDER / "step-000004.json").unlink()
    (tmp_path / "seed-1" / "metrics.jsonl").unlink()
    assert "Nothing can be said yet" in write_report(tmp_path).read_text(encoding="utf-8")


def test_games_that_are_missing_or_may_have_been_trained_on_are_told(tmp_path):
    run = run_of(tmp_path)
    (seed,) = run.seeds
    changed = seed.after.model_copy(update={"games": (seed.after.games[0].model_copy(update={"deal": 4}),)})
    (tmp_path / "seed-1" / EVALUATIONS_FOLDER / "step-000004.json").unlink()
    changed.write(tmp_path / "seed-1" / EVALUATIONS_FOLDER / "step-000004.json")
    text = " ".join(headline_of(read_learning_run(tmp_path)).unmet)
    assert "a deal with an even seed" in text and "39 games of the evaluation after training did not finish" in text


def test_both_sides_are_asked_of_a_run_that_trains_both(tmp_path):
    run = run_of(tmp_path, sides=("wolf", "good"), deals=100, wins=((40, 41), (20, 90)))
    headline = headline_of(run)
    assert run.trained_sides == ("wolf", "good") and run.opponent == "scripted"
    assert headline.unmet and all("As the wolves" in sentence for sentence in headline.unmet)


# --- counts -----------------------------------------------------------------------------------------------------------


def test_the_interval_of_a_difference_is_newcombes(tmp_path):
    run = run_of(tmp_path, deals=80, wins=((40, 40), (32, 48)))
    change = change_of(run.complete, "good", "scripted")
    # R. G. Newcombe, Statistics in Medicine 17, 1998, table II, method 10: 56/70 less 48/80.
    better = replace(change, before=change.after, after=change.after.model_copy(update={
        "games": 70, "wins": 56, "win_rate": wilson_interval(56, 70),
    }))  # fmt: skip
    assert better.points.value == pytest.approx(20.0)
    assert (better.points.low, better.points.high) == (pytest.approx(5.24, abs=0.01), pytest.approx(33.39, abs=0.01))


def test_curves_pool_the_games_of_a_window_and_of_all_seeds(tmp_path):
    make_learning_run(tmp_path, seeds=(1, 2))
    for seed, wins in ((1, (1, 2, 3)), (2, (5, 6, 7))):
        steps = [{"policy/good/games": 10.0, "policy/good/wins": float(won), "reward/good": won / 10} for won in wins]
        write_steps(tmp_path / f"seed-{seed}", steps)
    seeds = read_learning_run(tmp_path).seeds
    assert training_win_rate(seeds[:1], "good", 2) == [
        (1, wilson_interval(1, 10)), (2, wilson_interval(3, 20)), (3, wilson_interval(5, 20)),
    ]  # fmt: skip
    assert training_win_rate(seeds, "good", 2)[-1] == (3, wilson_interval(2 + 3 + 6 + 7, 40))
    assert training_win_rate(seeds, "wolf", 2) == []
    assert curve_of(seeds, "reward/good", 2) == [
        (1, pytest.approx(0.3)), (2, pytest.approx(0.35)), (3, pytest.approx(0.45)),
    ]  # fmt: skip
    assert (window_of(3), window_of(30), window_of(48)) == (1, 3, 5)


def test_the_training_figure_draws_the_pooled_counts_and_the_evaluations(tmp_path, monkeypatch):
    run = run_of(tmp_path, seeds=(1, 2), steps=4, between=(2,))
    monkeypatch.setattr(learning_figures, "picture", lambda figure, name, caption: (figure, caption))
    figure, caption = learning_figures._training(run)
    assert "those of each step" in caption
    good, wolves = figure.axes  # the trained side comes first
    together = [line for line in good.lines if line.get_label() == "all seeds"]
    expected = [(step, rate.value) for step, rate in training_win_rate(run.seeds, "good", 1)]
    assert list(zip(*together[0].get_data(), strict=True)) == expected
    assert not [line for line in wolves.lines if line.get_label() == "all seeds"]
    points = {bars.get_label(): bars.lines[0].get_ydata() for bars in good.containers}
    assert list(points["evaluation, seed 2"]) == [0.2, 0.2, 0.8]


def test_role_win_rates_are_of_all_seeds_together(tmp_path):
    make_learning_run(tmp_path, seeds=(1,), deals=20, wins=((8, 10), (4, 16)))
    make_seed(tmp_path, 2, ((2, 20), (0, 20)), 20, 4, ("good",))
    rates = role_win_rates(read_learning_run(tmp_path).complete, "scripted")
    assert rates["wolf"] == (wilson_interval(10, 40), wilson_interval(30, 40))
    assert rates["seer"] == rates["villager"] == (wilson_interval(4, 40), wilson_interval(36, 40))


def test_cross_tables_of_several_seeds_are_added_up(tmp_path):
    run = run_of(tmp_path, seeds=(1, 2, 3))
    cell = pooled_cells([seed.cross_table for seed in run.seeds])["scripted", "policy"]
    assert (cell.games, cell.wolf_wins, cell.good_wins, cell.draws) == (30, 15, 9, 6)


def test_behaviour_is_pooled_and_shown_as_shares_of_its_group(tmp_path):
    pooled = pooled_behaviour([make_behaviour("wolf", 20, 0), make_behaviour("wolf", 20, 1)])
    assert (pooled.games, pooled.kills) == (40, {"seer": 20, "villager": 30, "nobody": 10})
    assert pooled.claims == {"wolf": {"seer": 6, "none": 34}}
    run = run_of(tmp_path)
    rows = behaviour_rows(run.complete, "wolf")
    assert list(rows) == ["kills", "votes", "claims as wolf"]
    assert rows["kills"] == [
        ("nobody", "16.7 % (5 of 30)", "16.7 % (5 of 30)"),
        ("seer", "16.7 % (5 of 30)", "50.0 % (15 of 30)"),
        ("villager", "66.7 % (20 of 30)", "33.3 % (10 of 30)"),
    ]
    assert ("wolf", "22.7 % (10 of 44)", "68.2 % (30 of 44)") in rows["votes"]


def test_sample_games_are_of_one_deal(tmp_path):
    run = run_of(tmp_path)
    pair = sample_pair(run, "good")
    assert (pair.before.game_id, pair.after.game_id) == ("sample-good-1-0", "sample-good-1-1")
    path = tmp_path / "seed-1" / EVALUATIONS_FOLDER / "step-000004.json"
    after = Evaluation.read(path)
    lacking = [sample for sample in after.samples if (sample.deal, sample.players["good"]) != (1, "policy")]
    after.model_copy(update={"samples": tuple(lacking)}).write(path)
    pair = sample_pair(read_learning_run(tmp_path), "good")
    assert (pair.before.deal, pair.after.deal) == (3, 3)
    after.model_copy(update={"samples": ()}).write(path)
    assert sample_pair(read_learning_run(tmp_path), "good") is None


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_holds_its_figures_and_needs_nothing_else(tmp_path):
    make_learning_run(tmp_path, seeds=(1, 2), deals=100, wins=((40, 45), (20, 60)))
    path = write_report(tmp_path)
    page = path.read_text(encoding="utf-8")
    assert path == tmp_path / "report.html" and "<script" not in page
    assert not re.search(r"""(src|href)=["'](?!data:image/png;base64,)""", page)
    images = {base64.b64decode(text) for text in re.findall(r'src="data:image/png;base64,([^"]+)"', page)}
    files = {file.name: file.read_bytes() for file in tmp_path.glob("*.png")}
    assert set(files) == {
        "win_rates.png", "cross_table.png", "training_win_rate.png", "rewards.png", "conduct.png",
        "warm_start_loss.png",
    }  # fmt: skip
    assert images == set(files.values()) and all(content.startswith(b"\x89PNG") for content in files.values())
    for shown in (
        "1,234 parameters",
        "python -m algo.learn --made-up",
        "5p_tiny",
        "平安夜",
        "请投3号",
        "no seat named",
    ):
        assert shown in page
    for shown in ("100, each played as both sides", "800, before and after", "20 on 2 CPU cores", "reward -1.25"):
        assert shown in page


def test_what_models_wrote_is_shown_and_never_run(tmp_path):
    make_learning_run(tmp_path, reply=EVIL, thought=EVIL, transcript=EVIL)
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert EVIL not in page and "<script" not in page and "<img src=x" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_a_run_without_cross_table_warm_start_or_behaviour_has_a_page(tmp_path):
    make_learning_run(tmp_path)
    (tmp_path / "seed-1-cross-table" / "cross_table.json").unlink()
    (tmp_path / "seed-1-warm-start" / "summary.json").unlink()
    for path in (tmp_path / "seed-1" / EVALUATIONS_FOLDER).glob("*.json"):
        Evaluation.read(path).model_copy(update={"behaviour": {}, "samples": ()}).write(path)
    page = write_report(tmp_path).read_text(encoding="utf-8")
    for shown in ("No cross table was made", "Nothing is recorded", "No deal has a game before and one after"):
        assert shown in page
    assert not (tmp_path / "warm_start_loss.png").exists()


def test_the_minutes_of_a_curriculum_are_shown_with_those_of_the_warm_start(tmp_path):
    make_learning_run(tmp_path)
    summary = tmp_path / "seed-1-lesson-1-warm-start" / "summary.json"
    summary.parent.mkdir()
    summary.write_text('{"seconds": {"play": 90.0}}')
    (seed,) = read_learning_run(tmp_path).seeds
    assert seed.minutes["lesson 1: play"] == 1.5 and seed.minutes["warm start: play"] == 0.5
    assert "<td>lesson 1: play</td><td>1.5</td>" in write_report(tmp_path).read_text(encoding="utf-8")


def test_what_cannot_be_read_is_named(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "learn.json" in capsys.readouterr().err
    make_learning_run(tmp_path)
    (tmp_path / "seed-1" / "metrics.jsonl").write_text(json.dumps({"step": 1, "data": {}}) + "\n{cut")
    assert main([str(tmp_path)]) == 2
    assert "metrics.jsonl, line 2" in capsys.readouterr().err
    write_steps(tmp_path / "seed-1", [{}])
    assert main([str(tmp_path)]) == 0 and capsys.readouterr().out.strip() == str(tmp_path / "report.html")
    (tmp_path / "seed-1" / "config.yaml").unlink()
    assert main([str(tmp_path)]) == 2
    assert "holds no training" in capsys.readouterr().err
