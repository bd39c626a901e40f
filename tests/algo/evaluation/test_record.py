"""``evaluations.jsonl`` is whole up to the last game, whenever a process is killed, and no game is in it twice."""

from types import SimpleNamespace

import pytest

from algo.evaluate import default_label
from algo.evaluation.games import GameRow
from algo.evaluation.record import EVALUATIONS_FILE, Record, check_label, play_and_record
from algo.run.checkpoints import digest_of_weights
from configs.section import ConfigError
from store.schema import PolicyResources
from tests.support.algo.made_games import made_evaluation, made_row

ROWS = [made_row(deal=deal, number=number) for number, deal in enumerate((11, 12, 13))]
ROWS[0] = ROWS[0].model_copy(update={"task_id": "a\u2028b\u2029c\x85d"})  # what other readers take for ends of lines


def test_rows_come_back_in_the_order_of_their_tasks_each_once(tmp_path):
    record, header = Record(tmp_path, GameRow), made_evaluation([], planned={"scripted": 4}).header
    assert record.begin(header) == set()
    record.add(header, [ROWS[2], ROWS[0]])
    assert record.begin(header) == {ROWS[0].task_id, ROWS[2].task_id}
    record.add(header, [ROWS[0].model_copy(update={"days": 9}), ROWS[1]])
    (found,) = record.read()
    assert found.rows == tuple(ROWS) and (found.not_finished, found.missing(), found.ended) == (
        1,
        {"scripted": 1},
        False,
    )
    record.end(header, {"gone": 1}, {}, {"games": 3})
    (found,) = Record(tmp_path, GameRow).read()
    assert found.ended and found.failures == {"gone": 1}


def test_a_line_that_a_kill_cut_is_no_row_and_does_not_spoil_the_next(tmp_path):
    record, header = Record(tmp_path, GameRow), made_evaluation([]).header
    record.begin(header)
    record.add(header, ROWS[:2])
    path = tmp_path / EVALUATIONS_FILE
    whole = path.read_bytes()
    for cut in range(1, len(whole.splitlines()[-1]), 97):
        path.write_bytes(whole[:-cut])
        assert len(Record(tmp_path, GameRow).read()[0].rows) == 1
        path.write_bytes(whole[:-cut] + "狼".encode()[:-1])  # within a character
        assert len(Record(tmp_path, GameRow).read()[0].rows) == 1
        path.write_bytes(whole[:-cut])
        assert Record(tmp_path, GameRow).begin(header) == {ROWS[0].task_id}
    record.add(header, ROWS[1:])
    (found,) = record.read()
    assert found.rows == tuple(ROWS)


def test_a_later_evaluation_of_a_label_takes_the_place_of_the_earlier(tmp_path):
    record = Record(tmp_path, GameRow)
    for model in ("a", "b"):
        for label in ("step 0", "step 5"):
            header = made_evaluation([], label=label, model=model if label == "step 5" else "a").header
            record.begin(header)
            record.add(header, ROWS[: 1 if model == "a" else 3])
    assert [(found.header.label, found.header.model, len(found.rows)) for found in record.read()] == [
        ("step 0", "a", 3), ("step 5", "b", 3)
    ]  # fmt: skip


def test_an_earlier_evaluation_of_a_label_goes_on_where_it_was(tmp_path):
    record = Record(tmp_path, GameRow)
    first, second = (made_evaluation([], label="before", model=model).header for model in "ab")
    record.begin(first)
    record.add(first, ROWS[:1])
    record.begin(second)
    assert record.begin(first) == {ROWS[0].task_id}
    record.add(first, ROWS[1:])
    (found,) = record.read()
    assert found.header.model == "a" and found.rows == tuple(ROWS)


RESOURCES = PolicyResources(run_name="run", version=0, endpoints=(), model="policy")


class FakeQueue:
    """Plays at once: each task gives a finished rollout with the task's id."""

    def __init__(self):
        self.enqueued = []

    async def enqueue(self, tasks, resources, resumed, mode):
        self.enqueued = [task.task_id for task in tasks]

    async def watch(self, waiting, enough, check_alive, on_look):
        on_look(SimpleNamespace(playing=0, waiting=0))
        assert enough()

    def take_ended(self, waiting):
        finished = [SimpleNamespace(outcome=SimpleNamespace(task=task_id)) for task_id in self.enqueued]
        return SimpleNamespace(finished=finished, failures={}, retried={})


@pytest.mark.parametrize(("resumed", "old_name", "played"), [(True, "", 1), (False, "", 3), (True, "old-", 3)])
async def test_rows_of_lost_weights_and_of_before_a_run_was_renamed_are_played_again(
    tmp_path, resumed, old_name, played
):
    record, header = Record(tmp_path, GameRow), made_evaluation([], planned={"scripted": 3}).header
    tasks = [SimpleNamespace(task_id=row.task_id) for row in ROWS]
    record.begin(header)
    record.add(header, [row.model_copy(update={"days": 9, "task_id": old_name + row.task_id}) for row in ROWS[:2]])
    found = await play_and_record(
        record, header, tasks, FakeQueue(), RESOURCES, None, lambda number, _: ROWS[number],
        resumed=resumed, figures=lambda _: {},
    )  # fmt: skip
    assert [row.days == 9 for row in found.rows].count(False) == played and found.ended


def test_rows_of_a_model_are_not_those_of_another_that_took_its_folder(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"a" * 100)
    record, found = Record(tmp_path, GameRow), made_evaluation([made_row("a", "b", "good", 1)], "model", model="m")
    first = found.header.model_copy(update={"weights": digest_of_weights(tmp_path)})
    record.begin(first)
    record.add(first, found.rows)
    assert record.begin(first) == {found.rows[0].task_id}
    (tmp_path / "model.safetensors").write_bytes(b"b" * 100)
    assert record.begin(first.model_copy(update={"weights": digest_of_weights(tmp_path)})) == set()


def test_a_model_goes_by_its_folder_or_its_checkpoint(tmp_path):
    assert default_label(tmp_path / "qwen3-8b") == "qwen3-8b"
    assert default_label(tmp_path / "checkpoints" / "step-000003" / "huggingface") == f"{tmp_path.name} step-000003"
    (tmp_path / "recipe.json").touch()
    of_policy = tmp_path / "seed-1" / "checkpoints" / "step-000003" / "policies" / "wolves" / "huggingface"
    assert default_label(of_policy) == f"{tmp_path.name} seed-1 step-000003 wolves"
    assert default_label(tmp_path / ".cache" / "狼,人") == "狼-人"
    assert default_label(tmp_path / "...") == "model"
    with pytest.raises(ConfigError, match="'a/b' is no valid label"):
        check_label("a/b")
