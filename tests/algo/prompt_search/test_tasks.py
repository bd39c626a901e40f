"""What is played and asked in a search: tasks, deals, sides, placeholders, the proposer's messages."""

import json
import math
import random
from pathlib import Path

import pytest

from algo import find_best_prompt
from algo.prompt_search.arena import Played
from algo.prompt_search.plan import check_players, read_halves
from algo.prompt_search.prompts import GAME_SLOTS, Candidate, Slot, Tree, format_names, game_prompts, game_slot
from algo.prompt_search.proposer import Proposer
from algo.prompt_search.tasks import AgentTasks, GameTasks, Stage, resources_of
from configs.loading import load_config
from configs.section import ConfigError
from configs.werewolf import WerewolfConfig
from runners.werewolf.game import get_preset
from runners.werewolf.prompts_zh.system import FRAME, check_templates, guidance
from store.schema import PolicyResources, TokenLimits

CONFIG = WerewolfConfig()
BASE = PolicyResources(run_name="search", version=0, endpoints=("http://x/v1",), model="policy")
FIRST, OTHER = Candidate(0, {}), Candidate(1, {"wolf": "藏好身份。"}, "wolf", 0)


FROZEN = json.loads((Path(__file__).parent / "frozen.json").read_text())


def without_names(game):
    return game.model_copy(update={"game_id": ""})


def test_all_candidates_play_the_same_deals_with_the_same_luck():
    workload, stage = GameTasks(CONFIG, "policy", "scripted", BASE, ["wolf"]), Stage("wolf-0", "wolf")
    (one,), (other,) = (workload.tasks(stage, 3, candidate) for candidate in (FIRST, OTHER))
    assert one.game_id != other.game_id and without_names(one) == without_names(other)


def test_tasks_are_those_that_searches_played_before_the_search_was_written_anew():
    """A role is tried on its side, the frame and several prompts on both; names, seeds and draws are as they were."""
    games = GameTasks(CONFIG, "policy", "scripted", BASE, ["wolf", "seer", "system"])
    stages = [
        Stage("wolf-0", "wolf"),
        Stage("seer-1", "seer"),
        Stage("together", None),
        Stage("held-out", "system", True),
    ]
    found = [task for stage in stages for number in (0, 7) for task in games.tasks(stage, number, Candidate(3, {}))]
    assert [task.model_dump(mode="json") for task in found] == FROZEN["games"]
    shuffled = [{"q": number} for number in range(20)]
    random.Random(5).shuffle(shuffled)
    limits = TokenLimits(context_tokens=100, reply_tokens=10)
    agents = AgentTasks(shuffled[10:], shuffled[:10], BASE, limits, 5, (0.0, 1.0))
    stages = [Stage("template-0", "template"), Stage("held-out", "template", True)]
    found = [task for stage in stages for number in (0, 7) for task in agents.tasks(stage, number, Candidate(2, {}))]
    assert [task.model_dump(mode="json") for task in found] == FROZEN["agents"]


def test_no_input_is_in_both_halves_and_too_few_are_refused(tmp_path):
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(f"{number % 10}\n" for number in range(40)))
    searched, confirming = read_halves(file, 0.5, 1)
    assert (len(searched), len(confirming), set(searched) & set(confirming)) == (20, 20, set())
    file.write_text("1\n2\n3\n4\n5\n6\n7\n")
    with pytest.raises(ConfigError, match="7 tasks are too few"):
        read_halves(file, 0.5, 1)


def test_a_proposer_reads_what_it_read_before():
    tree = Tree()
    first = tree.add({"template": "a {q}\nb"}, reason="first")
    child = tree.add({"template": "a {q}\nc"}, "template", first, "b was wrong")
    tree.add({"template": "a {q}\nd"}, "template", first, "b was long")
    tree.add({"template": "z {q}"}, "template", child, "c was wrong too")
    tree.refused.append("answer 1 of the proposer, to #0 template: it is empty")
    assert tree.text() == FROZEN["tree"]
    played = [Played(1.0, "told", "went well"), Played(0.0, "told", "x" * 5000 + "lost")]
    played += [Played(math.nan, "failed"), Played(0.5, "half", "")]
    for language, required, allowed in (("en", {"q"}, {"q"}), ("zh", set(), {"seat"})):
        slot = Slot("template", frozenset(required), frozenset(allowed), format_names)
        proposer = Proposer("http://127.0.0.1:9/v1", "m", "none", (24, 200_000), None, language)
        assert proposer.messages(tree, slot, first, played, "the answer is empty") == FROZEN["asked"][language]


def test_held_out_deals_are_none_that_a_race_or_a_training_run_plays():
    workload = GameTasks(CONFIG, "policy", "scripted", BASE, ["wolf"])
    for number in range(20):
        (raced,) = workload.tasks(Stage("wolf-0", "wolf"), number, FIRST)
        (confirmed,) = workload.tasks(Stage("held-out", "wolf", held_out=True), number, FIRST)
        assert raced.seed % 2 == 0 and confirmed.seed % 2 == 1


def test_resources_have_the_candidates_prompts_in_the_place_of_the_configured_ones():
    base = BASE.model_copy(update={"prompt_templates": {"seer": "验人。"}})
    published = resources_of(GameTasks(CONFIG, "policy", "scripted", base, ["wolf"]), OTHER)
    assert published.prompt_templates == {"seer": "验人。", "wolf": "藏好身份。"} and published.version == 1


def test_an_opponent_that_reads_the_same_prompts_is_refused():
    with pytest.raises(ConfigError, match="would read the same prompts"):
        check_players("policy", "friend", ["system"])
    check_players("policy", "friend", ["wolf"])
    with pytest.raises(ConfigError, match="are both 'policy'"):
        check_players("policy", "policy", ["wolf"])


TEXTS = [
    "{reply_format}{seat}{role}",
    "{reply_format}{seat}{role}{rules}{guidance}{side}",
    "{seat}{role}",
    "{seat}{role}{side} {{literal}} {x: 1} {}",
    "{guidance}",
    "{rules}",
    "{座位}",
    "说话。",
]


@pytest.mark.parametrize("slot", GAME_SLOTS)
@pytest.mark.parametrize("text", TEXTS)
def test_a_prompt_is_refused_exactly_when_runners_would_refuse_it(slot, text):
    try:
        check_templates({slot: text})
        problem = None
    except ValueError as error:
        problem = error
    assert (game_slot(slot, "12p_sheriff").problem_with(text) is None) == (problem is None)


def test_prompts_come_from_folders_named_after_what_they_replace(tmp_path):
    (tmp_path / "wolf").mkdir()
    (tmp_path / "wolf/b.txt").write_text("藏好身份。")
    (tmp_path / "wolf/a.txt").write_text("先杀预言家。")
    slots, tree = game_prompts(tmp_path, CONFIG, with_proposer=False)
    assert list(slots) == ["wolf"]
    assert [dict(one.templates) for one in tree.candidates] == [{}, {"wolf": "先杀预言家。"}, {"wolf": "藏好身份。"}]
    with pytest.raises(ConfigError, match=r"python -m runners\.werewolf\.prompts_zh --preset 5p_tiny"):
        game_prompts(tmp_path, CONFIG, with_proposer=True)
    (tmp_path / "wolf/c.txt").write_text("你是{seet}")
    with pytest.raises(
        ConfigError, match=r"c\.txt, prompt 1: it uses unknown \{seet\}|c\.txt: it uses unknown \{seet\}"
    ):
        game_prompts(tmp_path, CONFIG, with_proposer=False)
    (tmp_path / "hunter").mkdir()
    with pytest.raises(ConfigError, match="5p_tiny has no prompt 'hunter'"):
        game_prompts(tmp_path, CONFIG, with_proposer=False)


def test_guidance_is_refused_under_a_frame_that_leaves_it_out(tmp_path):
    frame = tmp_path / "brief.txt"
    frame.write_text("{reply_format}{seat}{role}{{guidance}}")
    config = load_config(overrides=[f"game.prompts={{system: {frame}}}"])
    (tmp_path / "wolf").mkdir()
    (tmp_path / "wolf/bold.txt").write_text("冲。")
    with pytest.raises(ConfigError, match=r"wolf would reach nobody, since the frame .*brief\.txt has no \{guidance\}"):
        game_prompts(tmp_path, config, with_proposer=False)
    (tmp_path / "system.txt").write_text("{reply_format}{seat}{role}{guidance}")  # the frame to beat is another one
    assert list(game_prompts(tmp_path, config, with_proposer=False)[0]) == ["system", "wolf"]
    with pytest.raises(ConfigError, match=r"game: .*wolf would reach nobody"):
        load_config(overrides=[f"game.prompts={{system: {frame}, wolf: {tmp_path}/wolf/bold.txt}}"])


def test_a_budget_that_is_too_small_is_refused_before_anything_is_served(tmp_path, monkeypatch, capsys):
    (tmp_path / "wolf").mkdir()
    (tmp_path / "wolf/bold.txt").write_text("冲。")
    settings = [f"run.dir={tmp_path}/runs", "serving={mode: attach, urls: [http://127.0.0.1:9]}"]
    overrides = [part for one in settings for part in ("--set", one)]
    for budget, least in ((79, 80), (9, 80)):
        monkeypatch.setattr("sys.argv", ["search", "--prompts", str(tmp_path), "--budget", str(budget), *overrides])
        assert find_best_prompt.main() == 2
        assert f"--budget {budget} is too small" in (told := capsys.readouterr().err) and f"need {least}" in told
    assert not (tmp_path / "runs").exists()
    (tmp_path / "system").mkdir()  # the frame is tried on both sides, and then together with the wolves'
    (tmp_path / "system/a.txt").write_text("{reply_format}{seat}{role}{guidance}")
    monkeypatch.setattr("sys.argv", ["search", "--prompts", str(tmp_path), "--budget", "79", *overrides])
    assert find_best_prompt.main() == 2
    assert "3 races of up to 4 prompts" in (told := capsys.readouterr().err) and "need 192" in told


def test_built_in_prompts_can_be_written_as_files_to_beat(tmp_path, monkeypatch):
    from runners.werewolf.prompts_zh import __main__ as prompts_zh

    monkeypatch.setattr("sys.argv", ["prompts_zh", "--preset", "7p", "--to", str(tmp_path)])
    prompts_zh.main()
    written = {file.stem: file.read_text().strip() for file in tmp_path.glob("*.txt")}
    assert written.pop("system") == FRAME
    preset = get_preset("7p")
    assert written == {role.value: guidance(preset, role) for role in set(preset.deck)}
