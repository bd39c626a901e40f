"""Prompts in files, what is played with them, the budget, and the journal."""

import pytest

from algo.prompt_search.arena import Journal
from algo.prompt_search.plan import check_players, read_halves, sides_of
from algo.prompt_search.prompts import GAME_SLOTS, Candidate, agent_prompts, game_prompts, game_slot
from algo.prompt_search.tasks import GameTasks, Stage, resources_of
from configs.loading import load_config
from configs.roles_and_decks import DECKS
from configs.section import ConfigError
from configs.werewolf import WerewolfConfig
from runners.werewolf.prompts_zh.system import check_templates
from store.schema import PolicyResources

CONFIG = WerewolfConfig()
BASE = PolicyResources(
    run_name="search", version=0, endpoints=("http://x/v1",), model="policy", prompt_templates={"seer": "验人。"}
)
OTHER = Candidate(1, {"wolf": "藏好身份。"}, "wolf", 0)


def texts_in(path):
    return [one.templates["template"] for one in agent_prompts(path)[1].candidates]


def test_prompts_are_lines_or_stand_between_dashes_or_in_a_folder(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("one {q}\n\ntwo {q}\n")
    assert texts_in(file) == ["one {q}", "two {q}"]
    file.write_text("one\nmore {q}\n---\ntwo {q}\n")
    assert texts_in(file) == ["one\nmore {q}", "two {q}"]
    assert texts_in(tmp_path) == [file.read_text().strip()]
    file.write_text("one {q}\n", encoding="utf-8-sig")  # as Windows' editors write it
    assert texts_in(file) == ["one {q}"]


def test_prompts_of_the_game_come_from_folders_named_after_what_they_replace(tmp_path):
    (tmp_path / "wolf").mkdir()
    (tmp_path / "wolf/b.txt").write_text("藏好身份。")
    (tmp_path / "wolf/a.txt").write_text("先杀预言家。")
    slots, tree = game_prompts(tmp_path, CONFIG, with_proposer=False)
    assert list(slots) == ["wolf"]
    assert [one.templates for one in tree.candidates] == [{}, {"wolf": "先杀预言家。"}, {"wolf": "藏好身份。"}]
    with pytest.raises(ConfigError, match=r"python -m runners\.werewolf\.prompts_zh --preset 5p_tiny"):
        game_prompts(tmp_path, CONFIG, with_proposer=True)
    (tmp_path / "hunter").mkdir()
    (tmp_path / "hunter/a.txt").write_text("开枪。")
    with pytest.raises(ConfigError, match="5p_tiny has no prompt 'hunter'"):
        game_prompts(tmp_path, CONFIG, with_proposer=False)


def test_guidance_is_refused_under_a_frame_that_leaves_it_out(tmp_path):
    frame = tmp_path / "brief.txt"
    frame.write_text("{reply_format}{seat}{role}{{guidance}}")
    config = load_config(overrides=[f"game.prompts={{system: {frame}}}"])
    (tmp_path / "wolf").mkdir()
    (tmp_path / "wolf/bold.txt").write_text("冲。")
    with pytest.raises(ConfigError, match=r"brief\.txt: it lacks \{guidance\}"):
        game_prompts(tmp_path, config, with_proposer=False)
    (tmp_path / "system.txt").write_text("{reply_format}{seat}{role}{guidance}")  # the frame to beat is another one
    assert list(game_prompts(tmp_path, config, with_proposer=False)[0]) == ["system", "wolf"]


TEXTS = [
    "{reply_format}{seat}{role}",
    "{reply_format}{seat}{role}{rules}{guidance}{side}",
    "{seat}{role}",
    "{seat}{role}{side} {{literal}} {x: 1} {}",
    "{guidance}",
    "{座位}",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_prompt_is_refused_exactly_when_runners_would_refuse_it(text):
    for slot in GAME_SLOTS:
        try:
            check_templates({slot: text})
            refused = False
        except ValueError:
            refused = True
        preset = next((name for name, deck in DECKS.items() if slot in deck), "9p")
        assert bool(game_slot(slot, preset).problem_with(text)) == refused


def test_all_candidates_play_the_same_deals_with_the_same_luck_and_the_held_out_ones_are_never_trained_on():
    workload = GameTasks(CONFIG, "policy", "scripted", BASE)
    for number in range(20):
        raced, confirmed = (Stage("a", ("wolf",)), Stage("b", ("wolf",), held_out=True))
        (one,), (other,) = (workload.tasks(raced, number, candidate) for candidate in (Candidate(0, {}), OTHER))
        assert one.game_id != other.game_id
        assert one.model_copy(update={"game_id": ""}) == other.model_copy(update={"game_id": ""})
        (held_out,) = workload.tasks(confirmed, number, OTHER)
        assert (one.seed % 2, held_out.seed % 2) == (0, 1)
        assert one.seating[0].side == "wolf" and "policy" in one.seating[0].players
    published = resources_of(workload, OTHER)
    assert published.prompt_templates == {"seer": "验人。", "wolf": "藏好身份。"}
    assert published.resources_id != resources_of(workload, Candidate(1, {})).resources_id


def test_a_role_is_tried_on_its_side_and_the_frame_and_several_prompts_on_both():
    assert [sides_of(slots) for slots in (["wolf"], ["seer"])] == [("wolf",), ("good",)]
    assert sides_of(["system"]) == sides_of(["wolf", "seer"]) == ("wolf", "good")


def test_an_opponent_that_reads_the_same_prompts_is_refused():
    check_players("policy", "friend", ["wolf"], ["friend"])
    for opponent, searched in (("friend", ["system"]), ("policy", ["wolf"])):
        with pytest.raises(ConfigError, match="uses the same prompts"):
            check_players("policy", opponent, searched, ["friend"])


@pytest.mark.parametrize(
    ("player", "opponent", "message"),
    [
        ("policy", "scriptd", "--opponent: unknown player 'scriptd'.*scripted"),
        ("friend", "scripted", "--player: unknown player 'friend'"),
        ("scripted", "random", "--player 'scripted' reads no prompts"),
    ],
)
def test_a_search_without_prompts_or_players_is_refused_before_it_plays(player, opponent, message):
    with pytest.raises(ConfigError, match=message):
        check_players(player, opponent, ["wolf"])


def test_no_input_is_in_both_halves_and_too_few_are_refused(tmp_path):
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(f"{number % 10}\n" for number in range(40)))
    searched, confirming = read_halves(file, 0.5, 1)
    assert (len(searched), len(confirming), set(searched) & set(confirming)) == (20, 20, set())
    file.write_text("1\n2\n3\n4\n5\n6\n7\n")
    with pytest.raises(ConfigError, match=r"7 tasks .* are too few"):
        read_halves(file, 0.5, 1)


def test_a_journal_drops_the_line_that_a_crash_cut_off_and_goes_on(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.add("a", {"reward": 1.0})
    journal.close()
    with path.open("ab") as file:
        file.write('{"key": "b", "answer": "狼'.encode()[:-1])
    journal = Journal(path)
    assert journal == {"a": {"reward": 1.0}}
    journal.add("b", "x")
    journal.close()
    journal = Journal(path)
    assert journal == {"a": {"reward": 1.0}, "b": "x"}
    journal.close()
