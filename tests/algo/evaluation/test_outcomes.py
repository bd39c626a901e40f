"""What an evaluation says of its games: statistics, numbers for the log, the file, ratings over a run, the page."""

import json
import re

import pytest

from algo.evaluation import page as pages
from algo.evaluation.outcomes import EVALUATIONS_FOLDER, Evaluation, read_evaluations, with_ratings
from algo.evaluation.page import PAGE_NAME, render_page, write_page
from algo.evaluation.statistics import wilson_interval
from algo.reports.charts import Picture
from algo.werewolf.behaviour import Behaviour
from tests.support.algo.evaluations import make_evaluation, make_game, make_sample

BEHAVIOUR = {
    "wolf": Behaviour(games=2, kills={"seer": 3, "villager": 1}, claims={"wolf": {"hunter": 1}}),
    "good": Behaviour(games=2, votes={"wolf": 1}),
}


def test_each_opponent_and_side_has_its_win_rate():
    games = [
        make_game("wolf", "policy", "scripted", deal=1),
        make_game("wolf", "policy", "scripted", deal=3),
        make_game("good", "scripted", "policy", deal=1),
        make_game("draw", "scripted", "policy", deal=3),
        make_game("good", "policy", "random", deal=1),
    ]
    found = make_evaluation(games=games).model_copy(update={"opponents": {"scripted": 4, "random": 4}}).statistics()
    scripted, random = found.by_opponent["scripted"], found.by_opponent["random"]
    assert scripted.by_side["wolf"].win_rate == wilson_interval(2, 2)
    assert scripted.by_side["good"].win_rate == wilson_interval(1, 2)
    assert (scripted.both_sides.games, scripted.both_sides.wins, scripted.both_sides.draws) == (4, 3, 1)
    assert (scripted.not_finished, random.not_finished) == (0, 3)
    assert (random.both_sides.losses, random.by_side["good"].win_rate) == (1, None)
    assert set(scripted.by_role) == {"wolf", "seer", "villager"} and set(random.by_role) == {"wolf"}
    assert (found.all_games.games, found.all_games.wins) == (5, 3)


def test_numbers_for_the_log_are_flat_and_finite():
    evaluation = make_evaluation(
        games=[
            make_game("wolf", "policy", "scripted", turns=4, invalid=1, leaks=1),
            make_game("draw", "policy", "scripted", turns=4, deal=3),
        ]
    )
    evaluation = with_ratings([evaluation])[-1]
    metrics = evaluation.metrics()
    share = wilson_interval(1, 2)
    assert metrics["evaluation/win_rate/wolf/vs/scripted"] == share.value == 0.5
    assert metrics["evaluation/win_rate/wolf/vs/scripted/low"] == share.low
    assert metrics["evaluation/win_rate/wolf/vs/scripted/high"] == share.high
    assert metrics["evaluation/win_rate/role/wolf/vs/scripted"] == 0.5
    assert metrics["evaluation/win_rate"] == metrics["evaluation/win_rate/both/vs/scripted"] == 0.5
    assert metrics["evaluation/invalid_replies"] == 1 / 8 and metrics["evaluation/invalid_replies/wolf"] == 1 / 8
    assert metrics["evaluation/games_with_identity_leak"] == 0.5
    assert (metrics["evaluation/days"], metrics["evaluation/turns_per_game"]) == (2, 4)
    assert (metrics["evaluation/games/finished"], metrics["evaluation/games/not_finished"]) == (2, 2)
    assert metrics["evaluation/draws/vs/scripted"] == 1
    assert metrics["evaluation/rating/low"] < metrics["evaluation/rating"] < metrics["evaluation/rating/high"]
    assert not any("good" in name for name in metrics)  # no games as the good side: nothing is claimed
    assert all(isinstance(value, float) for value in metrics.values())
    json.dumps(metrics, allow_nan=False)


def test_an_evaluation_is_read_back_as_it_was_written(tmp_path):
    evaluation = make_evaluation(behaviour=BEHAVIOUR, samples=(make_sample(),), failures={"CannotPlay: no": 1})
    path = tmp_path / EVALUATIONS_FOLDER / "step-000005.json"
    evaluation.write(path)
    evaluation.write(path)
    assert Evaluation.read(path) == evaluation
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["statistics"]["by_opponent"]["scripted"]["by_side"]["wolf"]["win_rate"]["value"] == 0.5
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"step-000005.json is no evaluation"):
        read_evaluations(tmp_path)


def test_ratings_follow_from_all_evaluations_in_order(tmp_path):
    weak = make_evaluation("step 0", 0, games=[make_game("good", "policy", "scripted", deal) for deal in range(9)])
    strong = make_evaluation("step 5", 5, games=[make_game("wolf", "policy", "scripted", deal) for deal in range(9)])
    for number, evaluation in ((5, strong), (0, weak)):
        evaluation.write(tmp_path / EVALUATIONS_FOLDER / f"step-{number:06d}.json")
    first, second = with_ratings(read_evaluations(tmp_path))
    assert (first.label, second.label) == ("step 0", "step 5")
    assert set(first.ratings) == {"policy@0", "scripted"}
    assert list(second.ratings) == ["policy@5", "scripted", "policy@0"]
    assert first.ratings["scripted"].games == 9 and second.ratings["scripted"].games == 18


# --- the page ---------------------------------------------------------------------------------------------------------

EVIL = "</script><script>alert('x')</script><img src=x onerror=alert(1)>"


def test_the_page_shows_all_evaluations_and_needs_no_network(tmp_path):
    for version in (0, 5):
        evaluation = make_evaluation(
            f"step {version}", version, ("scripted", "random"), behaviour=BEHAVIOUR, samples=[make_sample()]
        )
        evaluation.write(tmp_path / EVALUATIONS_FOLDER / f"step-{version:06d}.json")
    path = write_page(tmp_path)
    page = path.read_text(encoding="utf-8")
    assert path == tmp_path / PAGE_NAME and [file.name for file in tmp_path.glob("*unfinished*")] == []
    assert "<script" not in page and not re.search(r"""\s(src|href)=["'](?!data:image/png;base64,)""", page)
    assert page.count("data:image/png;base64,") == 3
    for shown in (
        "step 0",
        "step 5",
        "scripted",
        "random",
        "50 % (",
        "policy@5",
        "平安夜",
        "villager",
        "seer 75 %, villager 25 % of 4",
    ):
        assert shown in page


def test_without_evaluations_there_is_no_page(tmp_path):
    with pytest.raises(ValueError, match="no evaluations"):
        write_page(tmp_path)


def test_what_others_wrote_is_shown_and_never_run():
    evaluation = make_evaluation(
        f"step {EVIL}",
        opponents=(EVIL,),
        player=EVIL,
        failures={EVIL: 1},
        preset=EVIL,
        samples=[make_sample(EVIL, EVIL)],
        behaviour={"good": Behaviour(games=1, claims={EVIL: {EVIL: 1}})},
    )
    page = render_page(EVIL, with_ratings([evaluation, evaluation]))
    assert EVIL not in page and "<img src=x" not in page and "<script" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_evaluations_stand_at_their_versions_or_in_a_row(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        pages, "picture", lambda figure, name, caption: drawn.append((name, figure.axes)) or Picture("a", "b", b"c")
    )

    def shown(*evaluations):
        drawn.clear()
        render_page("t", with_ratings(evaluations))
        (axes,) = (axes for name, axes in drawn if name == "win_rates")
        (line,) = (bars.lines[0] for bars in axes[0].containers if bars.get_label() == "against scripted")
        return axes[0].get_xlabel(), [label.get_text() for label in axes[0].get_xticklabels()], [*line.get_xdata()]

    label, _, at = shown(make_evaluation("step 0", 0), make_evaluation("step 5", 5))
    assert (label, at) == ("updates made", [0, 5])
    assert shown(make_evaluation("first", 5), make_evaluation("second", 5)) == ("", ["first", "second"], [0, 1])
