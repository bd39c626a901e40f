"""What is counted over evaluations of agents: intervals over tasks, the paired gain, the verdict, the page."""

import json
import random

import pytest
from rich.console import Console

from algo.agents.comparison import Compared, compared, write_comparison
from algo.agents.outcomes import gain, read_evaluations
from algo.agents.page import before_and_after, write_page
from tests.support.agents.agent_evaluations import evaluation_of, ones


def test_shares_means_and_their_intervals():
    found = evaluation_of(0, ones(30, of=100), invalid=20, failed=10, tasks=101).statistics()
    assert (found.reward.value, found.rewards["short"].value, found.failed.value) == (0.3, 0.5, 0.1)
    assert list(found.rewards) == ["right", "short"] and found.rewards["right"] == found.reward
    assert found.invalid_calls.value == 0.1 and found.calls_per_attempt == 2
    assert 0.2 < found.reward.low < 0.25 < 0.35 < found.reward.high < 0.4
    nothing = evaluation_of(0, [], tasks=5)
    assert nothing.statistics().reward is None and nothing.not_finished == 5
    assert nothing.metrics() == {"evaluation/attempts/finished": 0.0, "evaluation/attempts/not_finished": 5.0}


def test_a_failure_counts_as_nothing_in_every_reward_that_others_were_given():
    evaluation = evaluation_of(0, ones(5, of=10), failed=1)
    failed = evaluation.attempts[0].model_copy(update={"rewards": {"reward": 0.0}})
    found = evaluation.model_copy(update={"attempts": (failed, *evaluation.attempts[1:])}).statistics()
    assert (found.reward.value, found.rewards["right"].value, found.rewards["short"].value) == (0.4, 0.4, 0.45)
    assert list(found.rewards) == ["right", "short"]


def test_the_unit_is_the_task_however_often_it_was_tried():
    """Ten equal attempts at each of ten tasks tell as much as one attempt at each."""
    once = evaluation_of(0, ones(5, of=10)).statistics().reward
    often = evaluation_of(0, [reward for reward in ones(5, of=10) for _ in range(10)], attempts=10).statistics().reward
    assert often == once


def test_the_gain_is_paired_by_task_and_so_narrower_than_either():
    chance = random.Random(1)
    hard = [chance.random() for _ in range(200)]
    before = evaluation_of(0, [float(value > 0.6) for value in hard])
    after = evaluation_of(4, [float(value > 0.4) for value in hard])
    found = gain(before, after)
    assert found.value == pytest.approx(after.statistics().reward.value - before.statistics().reward.value)
    width = after.statistics().reward.high - after.statistics().reward.low
    assert found.low > 0.1 and found.high - found.low < width
    fewer = before.model_copy(update={"attempts": before.attempts[:50]})
    assert gain(fewer, after).value == gain(fewer, after.model_copy(update={"attempts": after.attempts[:50]})).value
    assert gain(before, after.model_copy(update={"attempts": ()})) is None


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (dict(rewards=ones(160, of=200)), []),
        (dict(rewards=ones(110, of=200)), ["changed by +0.050", "touch"]),
        (dict(rewards=ones(160, of=200), invalid=60), ["calls of tools that cannot be used rose"]),
        (dict(rewards=ones(160, of=200), failed=60), ["attempts that failed rose"]),
    ],
)
def test_a_run_has_learned_if_reward_rose_enough_beyond_chance_and_nothing_broke(after, told):
    run = Compared("seed-1", (evaluation_of(0, ones(100, of=200)), evaluation_of(9, **after)))
    unmet = run.unmet()
    assert len(unmet) == len(told) and all(words in reason for words, reason in zip(told, unmet, strict=True))


def test_without_an_evaluation_before_or_after_nothing_is_learned():
    for evaluations in ((), (evaluation_of(0, [1.0]),), (evaluation_of(5, [1.0]),)):
        assert "no evaluation" in Compared("seed-1", evaluations).unmet()[0]


def test_what_is_written_is_read_again_and_shown(tmp_path):
    evaluations = [
        evaluation_of(0, ones(40, of=100), failures={"<b>policy</b> away": 2}),
        evaluation_of(10, ones(80, of=100), failures={"<b>policy</b> away": 2}),
    ]
    for each in evaluations[::-1]:
        each.write(tmp_path / "evaluations" / f"step-{each.step:06d}.json")
    assert read_evaluations(tmp_path) == evaluations
    run = compared(tmp_path)
    write_comparison(tmp_path, run)
    written = json.loads((tmp_path / "evaluation.json").read_text())
    assert written["gain"]["value"] == 0.4 and written["unmet"] == [] and written["steps"] == 10
    write_page(tmp_path / "page.html", "What it learned", [run, Compared("seed-2", run.evaluations[:1])], "run: {}")
    page = (tmp_path / "page.html").read_text()
    assert "0.800 (" in page and "+0.400 (" in page and "&lt;b&gt;policy" in page and "data:image/png" in page
    assert "no: there is no evaluation" in page
    console = Console(width=80)
    with console.capture() as shown:
        console.print(before_and_after([run]))
    assert "learned" in shown.get() and "…" not in shown.get()
    (tmp_path / "evaluations" / "step-000000.json").write_text("{}")
    with pytest.raises(ValueError, match=r"step-000000\.json is no evaluation of an agent"):
        read_evaluations(tmp_path)
