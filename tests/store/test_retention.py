"""Archives: what goes and what stays, nothing lost on the way, all of it back again, and a hub that does not grow."""

import asyncio
import gzip
import json
import os
import resource
import signal
import sqlite3
import sys
import time

import psutil
import pytest
from agentlightning import LLM, EnqueueRolloutRequest

from store.__main__ import main
from store.client import connect
from store.hub.restoring import UnreadableArchive, restore
from store.hub.retention import AlreadyArchiving, RetentionRule, archive, export, shrink
from store.sql.database import DatabaseUnusable
from store.sql.lightning_store import IDEMPOTENCY_KEY, SqlLightningStore
from store.sql.opening import opened_store
from store.sql.postgres_url import PostgresUrl
from store.sql.sqlite import SqliteDatabase
from store.token_spans import to_span
from store.werewolf import ResultSpan, TurnSpan, is_result
from tests.support.fakes import make_result, make_turn
from tests.support.hub.hub_process import HubProcess, fork

pytest_plugins = ("tests.support.hub.hub_backends",)

DAY = 86_400.0
AT_ONCE = {"youngest_seconds": 0}
SURVIVED = 3


@pytest.fixture
def path(tmp_path):
    return tmp_path / "hub.sqlite3"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "old games"


@pytest.fixture
async def store(path):
    store = SqlLightningStore(SqliteDatabase(path))
    yield store
    await store.close()


async def play(store, first, last, status="succeeded", spans=3, **fields):
    """Games number ``first`` to ``last``, played to the given status."""
    for number in range(first, last + 1):
        metadata = {IDEMPOTENCY_KEY: f"game-{number}", "run": f"run-{number % 2}"}
        request = EnqueueRolloutRequest(input=number, metadata=metadata, **fields)
        (rollout,) = await store.enqueue_many_rollouts([request])
        taken = await store.dequeue_rollout(worker_id="w")
        assert taken.rollout_id == rollout.rollout_id
        await store.add_many_spans(spans_of(taken, spans))
        if status is not None:
            await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status=status)


def spans_of(rollout, count, first=1):
    ids = dict(rollout_id=rollout.rollout_id, attempt_id=rollout.attempt.attempt_id)
    times = dict(start_time=1.7e9, end_time=1.7e9)
    turns = [to_span(make_turn(turn=n), **ids, sequence_id=n, **times) for n in range(first, first + count - 1)]
    return [*turns, to_span(make_result(), **ids, sequence_id=first + count - 1, **times)]


async def kept(store):
    return [rollout.input for rollout in await store.query_rollouts()]


def lines_in(folder):
    return [json.loads(line) for file in sorted(folder.glob("*.jsonl.gz")) for line in gzip.open(file, "rt")]


def archived(folder):
    return sorted(line["rollout"]["input"] for line in lines_in(folder))


async def everything(store):
    parts = [store.collections.rollouts, store.collections.attempts, store.collections.spans]
    return [sorted(await part.query(), key=repr) for part in parts]


# What goes and what stays


async def test_the_newest_games_stay(store, path, folder):
    await play(store, 1, 5)
    report = archive(path, folder, RetentionRule(keep_games=2, **AT_ONCE))
    assert (report.games, report.files, report.left) == (3, 1, 0)
    assert (await kept(store), archived(folder)) == ([4, 5], [1, 2, 3])
    assert archive(path, folder, RetentionRule(keep_games=2, **AT_ONCE)).files == 0


async def test_games_of_the_last_days_stay(store, path, folder, monkeypatch):
    now = time.time()
    for number, age in enumerate((3.5, 2.5, 1.5)):
        monkeypatch.setattr(time, "time", lambda age=age: now - age * DAY)
        await play(store, number, number)
    monkeypatch.undo()
    archive(path, folder, RetentionRule(keep_days=2))
    assert (await kept(store), archived(folder)) == ([2], [0, 1])


async def test_either_limit_is_enough(store, path, folder):
    await play(store, 1, 3)
    archive(path, folder, RetentionRule(keep_games=1, keep_days=1, **AT_ONCE), now=time.time() + 1)
    assert await kept(store) == [3]
    archive(path, folder, RetentionRule(keep_games=1, keep_days=1, **AT_ONCE), now=time.time() + 1.1 * DAY)
    assert await kept(store) == []


async def test_a_game_that_has_just_ended_stays(store, path, folder):
    await play(store, 1, 3)
    assert archive(path, folder, RetentionRule(keep_games=0), now=time.time() + 3500).games == 0
    assert archive(path, folder, RetentionRule(keep_games=0), now=time.time() + 3700).games == 3


@pytest.mark.parametrize("status", ["succeeded", "failed"])
async def test_only_finished_games_go(store, path, folder, status):
    waiting = await store.enqueue_rollout(input="waits")
    taken = await store.dequeue_rollout()
    await play(store, 1, 1, status=status)
    await play(store, 2, 2, status=None)
    cancelled = await store.enqueue_rollout(input="cancelled")
    await store.update_rollout(cancelled.rollout_id, status="cancelled")
    await store.update_rollout(waiting.rollout_id, status="requeuing")
    archive(path, folder, RetentionRule(keep_games=0, **AT_ONCE), now=time.time() + 1)
    assert await kept(store) == ["waits", 2]
    assert {line["rollout"]["input"] for line in lines_in(folder)} == {1, "cancelled"}
    assert (await store.dequeue_rollout()).rollout_id == taken.rollout_id


async def test_an_archived_game_is_forgotten_altogether(store, path, folder):
    await play(store, 1, 1)
    (rollout,) = await store.query_rollouts()
    archive(path, folder, RetentionRule(keep_games=0, **AT_ONCE))
    with sqlite3.connect(path) as looking_on:
        tables = [name for (name,) in looking_on.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        counts = {name: looking_on.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in tables}
    filled = {name for name, count in counts.items() if count} - {"sqlite_sequence", "counts"}
    assert filled == {"workers"}
    with pytest.raises(ValueError, match="no rollout"):
        await store.add_many_spans(spans_of(rollout, 2))
    await play(store, 1, 1)  # its key is free again
    assert await kept(store) == [1]


async def test_resources_go_with_their_last_game(store, path, folder, monkeypatch):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - DAY)
    for name in ("one", "two", "three", "unused", "latest"):
        await store.update_resources(name, {"policy": LLM(endpoint="http://localhost:1/v1", model=name)})
    await play(store, 1, 1, resources_id="one")
    await play(store, 2, 2, resources_id="two")
    await play(store, 3, 3, resources_id="latest")
    monkeypatch.undo()
    await play(store, 4, 4, resources_id="two")
    await store.update_resources("three", {})
    await play(store, 5, 5, resources_id="three")
    await store.update_resources("latest", {})
    archive(path, folder, RetentionRule(keep_games=2), now=now)
    assert sorted(update.resources_id for update in await store.query_resources()) == [
        "latest",
        "three",
        "two",
        "unused",
    ]
    assert [line["resources"]["resources"]["policy"]["model"] for line in lines_in(folder)[:2]] == ["one", "two"]


async def test_workers_that_left_long_ago_are_forgotten(store, path, folder, monkeypatch):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 8 * DAY)
    await store.update_worker("left")
    await store.dequeue_rollout("stays")
    monkeypatch.undo()
    await store.update_worker("stays")
    archive(path, folder, RetentionRule(keep_games=0))
    assert [worker.worker_id for worker in await store.query_workers()] == ["stays"]


async def test_many_games_make_several_files(store, path, folder):
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(450)])
    for rollout in await store.query_rollouts():
        await store.update_rollout(rollout.rollout_id, status="cancelled")
    report = archive(path, folder, RetentionRule(keep_games=0, **AT_ONCE))
    assert (report.games, report.files) == (450, 3)
    assert archived(folder) == list(range(450))


# Nothing is lost on the way


async def test_a_game_that_grows_meanwhile_stays_for_the_next_time(store, path, folder):
    """Its late span comes between the writing of the file and the removal."""
    await play(store, 1, 2)
    grows, _ = await store.query_rollouts()
    with sqlite3.connect(path) as looking_on:
        looking_on.execute(
            "CREATE TRIGGER late BEFORE DELETE ON rollouts BEGIN INSERT INTO spans "
            "SELECT NULL, rollout_id, attempt_id, 99, trace_id, 'late', NULL, name, start_time, end_time, document "
            "FROM spans WHERE rollout_id != OLD.rollout_id LIMIT 1; END"
        )
    columns = "position,rollout_id,attempt_id,sequence_id,trace_id,span_id,parent_id,name,start_time,end_time,document"
    with sqlite3.connect(path) as looking_on:
        found = [row[1] for row in looking_on.execute("PRAGMA table_info(spans)")]
    assert found == columns.split(",")
    report = archive(path, folder, RetentionRule(keep_games=0, **AT_ONCE))
    assert (report.games, report.left) == (1, 1)
    assert grows.rollout_id not in {rollout.rollout_id for rollout in await store.query_rollouts()}
    assert await kept(store) == [2]


def archive_and_die(path, folder, deadly, statements):
    """Archive all games, and die by SIGKILL just before one of the SQL statements or of the operations on files."""
    counted = 0

    def count(*_):
        nonlocal counted
        counted += 1
        if counted == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    def connect_counting(*arguments, **options):
        connection = stock_connect(*arguments, **options)
        connection.set_trace_callback(count)
        return connection

    stock_connect = sqlite3.connect
    if statements:
        sqlite3.connect = connect_counting
    else:
        sys.addaudithook(lambda event, _: event in ("open", "os.rename", "os.remove", "sqlite3.connect") and count())
    archive(path, folder, RetentionRule(keep_games=0, **AT_ONCE))
    raise SystemExit(SURVIVED)


@pytest.mark.parametrize("statements", [True, False])
async def test_killed_while_archiving_every_game_is_in_the_database_or_in_a_file(tmp_path, statements):
    original = tmp_path / "original.sqlite3"
    store = SqlLightningStore(SqliteDatabase(original))
    await play(store, 1, 3)
    before = await everything(store)
    await store.close()
    moments = [*range(1, 80, 4), 10_000] if statements else [*range(1, 9), 10_000]
    ends = set()
    for deadly in moments:
        place = tmp_path / f"{deadly}"
        place.mkdir()
        path, folder = place / "hub.sqlite3", place / "archive"
        path.write_bytes(original.read_bytes())
        process = fork(archive_and_die, path, folder, deadly, statements)
        process.join()
        ends.add(process.exitcode)
        await restore(path, sorted(folder.glob("*.jsonl.gz")))
        store = SqlLightningStore(SqliteDatabase(path))
        assert await everything(store) == before, deadly
        await store.close()
        archive(path, folder, RetentionRule(keep_games=0, **AT_ONCE))
        assert list(folder.glob("*.part")) == []
        assert set(archived(folder)) == {1, 2, 3}
    assert ends == {-signal.SIGKILL, SURVIVED}


async def test_two_archivers_do_not_meet(store, path, folder):
    await play(store, 1, 1)

    def archive_meanwhile():
        archive(path, folder, RetentionRule(keep_games=0, **AT_ONCE))

    with pytest.raises(DatabaseUnusable, match="already"):
        archive(path, folder, RetentionRule(keep_games=0, **AT_ONCE), should_stop=archive_meanwhile)
    assert await kept(store) == [1]


# Back again


async def test_archives_and_exports_are_the_same_from_each_engine(address, folder, tmp_path):
    async with opened_store(address) as store:
        await play(store, 1, 3)
        await play(store, 4, 4, status=None)
        before = await everything(store)
        assert await asyncio.to_thread(export, address, tmp_path / "run.jsonl", "run-1") == 2
        rule = RetentionRule(keep_games=0, **AT_ONCE)
        report = await asyncio.to_thread(archive, address, folder, rule)
        assert (report.games, archived(folder), await kept(store)) == (3, [1, 2, 3], [4])
        assert await store.collections.span_sequence_ids.size() == 1
        assert await restore(address, sorted(folder.glob("*.jsonl.gz"))) == (3, 0)
        assert await everything(store) == before
    await asyncio.to_thread(shrink, address)
    exported = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert sorted(line["rollout"]["input"] for line in exported) == [1, 3]
    assert [len(line["spans"]) for line in exported] == [3, 3] and exported[0]["idempotency_keys"] == ["game-1"]


async def test_of_two_machines_that_archive_a_database_one_does(postgres_url, folder, tmp_path):
    address, rule = PostgresUrl(postgres_url), RetentionRule(keep_games=0, **AT_ONCE)
    async with opened_store(address) as store:
        await play(store, 1, 1)
        refused = []

        def archive_elsewhere():
            with pytest.raises(AlreadyArchiving, match="already"):
                archive(address, tmp_path / "elsewhere", rule)
            refused.append(True)
            return False

        await asyncio.to_thread(archive, address, folder, rule, should_stop=archive_elsewhere)
        assert refused and await kept(store) == []


async def test_hubs_that_archive_at_once_archive_every_game_once(postgres_url, tmp_path):
    address, rule = PostgresUrl(postgres_url), RetentionRule(keep_games=0, **AT_ONCE)
    folders = [tmp_path / f"hub-{number}" for number in range(3)]

    def archive_all(folder):
        games = 0
        while True:
            try:
                report = archive(address, folder, rule)
            except AlreadyArchiving:
                continue
            if not report.files:
                return games
            games += report.games

    async with opened_store(address) as store:
        await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(210)])
        for rollout in await store.query_rollouts():
            await store.update_rollout(rollout.rollout_id, status="cancelled")
        counts = await asyncio.gather(*(asyncio.to_thread(archive_all, folder) for folder in folders))
        assert sum(counts) == 210 and await kept(store) == []
    assert sorted(number for folder in folders for number in archived(folder)) == list(range(210))


async def test_what_is_restored_is_what_was_archived(store, path, folder, tmp_path):
    await store.update_resources("rs", {"policy": LLM(endpoint="http://localhost:1/v1", model="m")})
    await play(store, 1, 3, resources_id="rs")
    before = await everything(store)
    archive(path, folder, RetentionRule(keep_games=1, **AT_ONCE))
    files = sorted(folder.glob("*.jsonl.gz"))
    assert await restore(path, files) == (2, 0)
    assert await everything(store) == before
    assert await restore(path, files) == (0, 2)
    other = tmp_path / "other.sqlite3"
    assert await restore(other, files) == (2, 0)
    elsewhere = SqlLightningStore(SqliteDatabase(other))
    rollout = (await elsewhere.query_rollouts(sort_by="start_time"))[0]
    spans = await elsewhere.query_spans(rollout.rollout_id)
    assert [TurnSpan.decode(span).turn for span in spans if not is_result(span)] == [1, 2]
    assert ResultSpan.decode(spans[-1]) == make_result()
    assert (await elsewhere.get_resources_by_id("rs")).resources["policy"].model == "m"
    (again,) = await elsewhere.enqueue_many_rollouts(
        [EnqueueRolloutRequest(input=1, metadata={IDEMPOTENCY_KEY: "game-1"})]
    )
    assert again.rollout_id == rollout.rollout_id
    assert await elsewhere.get_next_span_sequence_id(rollout.rollout_id, rollout.attempt.attempt_id) == 4
    await elsewhere.close()


def renamed(game, key, name):
    parts = {"rollout": game["rollout"]} if key == "rollout_id" else {}
    parts = {part: {**value, key: name} for part, value in parts.items()}
    parts |= {part: [{**one, key: name} for one in game[part]] for part in ("attempts", "spans")}
    return {**game, **parts}


async def one_line(store, path, tmp_path):
    await play(store, 1, 1)
    export(path, tmp_path / "one.jsonl")
    return json.loads((tmp_path / "one.jsonl").read_text())


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda game: {**game, "format": 2}, "format 2 is not known"),
        (lambda game: {**game, "rollout": {**game["rollout"], "status": "running"}}, "is not finished"),
        (lambda game: {**game, "rollout": {**game["rollout"], "rollout_id": "ro-other"}}, "parts of others"),
        (lambda game: {**game, "attempts": []}, "parts of others"),
        (lambda game: {**game, "spans": [{"name": "x"}]}, "ValidationError"),
        (lambda game: {**game, "span_sequence_id": "x"}, "sequence id is a number"),
        (lambda game: {name: value for name, value in game.items() if name != "attempts"}, "KeyError: 'attempts'"),
        (
            lambda game: renamed(game, "rollout_id", "../../elsewhere"),
            r"'../../elsewhere' cannot be the id of a rollout",
        ),
        (lambda game: renamed(game, "rollout_id", "x" * 200), "cannot be the id of a rollout"),
        (lambda game: renamed(game, "attempt_id", "a\x1bb"), "cannot be the id of an? attempt"),
        (lambda game: {**game, "span_sequence_id": 2**60}, "sequence id is a number"),
        (lambda game: [], "TypeError"),
        (lambda game: "half a li", "TypeError"),
    ],
)
async def test_a_damaged_line_is_named_and_the_others_are_restored(store, path, tmp_path, damage, reason):
    good = await one_line(store, path, tmp_path)
    file = tmp_path / "damaged.jsonl"
    file.write_text(json.dumps(good) + "\n" + json.dumps(damage(good)) + "\n")
    with pytest.raises(UnreadableArchive, match=rf"damaged.jsonl, line 2: .*{reason}"):
        await restore(tmp_path / "new.sqlite3", [file])
    restored = SqlLightningStore(SqliteDatabase(tmp_path / "new.sqlite3"))
    assert await everything(restored) == await everything(store)
    await restored.close()


@pytest.mark.parametrize("line", ["[" * 100_000, '{"format": ' * 100_000])
async def test_a_line_nested_without_end_is_named(tmp_path, line):
    file = tmp_path / "deep.jsonl"
    file.write_text(line)
    with pytest.raises(UnreadableArchive, match=r"deep.jsonl, line 1: RecursionError"):
        await restore(tmp_path / "new.sqlite3", [file])


async def test_a_line_without_end_is_not_read_into_memory(tmp_path):
    file = tmp_path / "bomb.jsonl.gz"
    with gzip.open(file, "wb", compresslevel=1) as packed:
        for _ in range(600):
            packed.write(b" " * 1_000_000)
    before = psutil.Process().memory_info().rss
    with pytest.raises(UnreadableArchive, match=r"bomb.jsonl.gz, after line 0: line 1 is longer than"):
        await restore(tmp_path / "new.sqlite3", [file])
    assert psutil.Process().memory_info().rss - before < 300e6


async def test_what_the_hub_writes_is_for_its_owner_only(tmp_path, monkeypatch):
    monkeypatch.setattr("os.umask", os.umask)  # so that the next line is undone
    os.umask(0o022)
    path, folder = tmp_path / "made" / "hub.sqlite3", tmp_path / "made" / "old" / "games"
    store = SqlLightningStore(SqliteDatabase(path))
    await play(store, 1, 2)
    for output in ("plain.jsonl", "packed.jsonl.gz"):
        export(path, tmp_path / "made" / output)
    archive(path, folder, RetentionRule(keep_games=0, **AT_ONCE))
    modes = {file: file.stat().st_mode & 0o777 for file in [path.parent, *path.parent.rglob("*")]}
    assert len(modes) > 8
    assert modes == {
        file: mode & (0o700 if file.is_dir() else 0o600) for file, mode in modes.items() if file.name != "old"
    } | {path.parent / "old": modes[path.parent / "old"]}
    await store.close()


async def test_a_disk_without_room_is_one_line(store, path, capfd, tmp_path):
    await play(store, 1, 2)
    assert main(["export", "--db", str(path), "/dev/full"]) == 1
    assert capfd.readouterr().err == "python -m store: cannot write /dev/full: No space left on device\n"
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "store", "export", "--db", str(path), "-"]
        process = await asyncio.create_subprocess_exec(*command, stdout=full, stderr=asyncio.subprocess.PIPE)
        _, said = await process.communicate()
    assert (process.returncode, said.count(b"\n")) == (1, 1) and b"No space left on device" in said


def archive_with_little_room(path, folder, result):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    try:
        archive(path, folder, RetentionRule(keep_games=0, **AT_ONCE))
    except DatabaseUnusable as error:
        os.write(os.open(result, os.O_CREAT | os.O_WRONLY), str(error).encode())


async def test_an_archive_that_has_no_room_leaves_nothing_half_and_loses_nothing(store, path, folder, tmp_path):
    await play(store, 1, 20)
    process = fork(archive_with_little_room, path, folder, tmp_path / "said")
    process.join()
    said = (tmp_path / "said").read_text()
    assert said.startswith(f"cannot write {folder}") and "File too large" in said
    assert [file.name for file in folder.iterdir()] == [".lock"] and len(await kept(store)) == 20


@pytest.mark.parametrize("keep", [20, -20])
async def test_an_archive_that_was_cut_off_is_named(store, path, folder, tmp_path, keep):
    await play(store, 1, 1)
    archive(path, folder, RetentionRule(keep_games=0, **AT_ONCE))
    (file,) = folder.glob("*.jsonl.gz")
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(UnreadableArchive, match="after line 0"):
        await restore(tmp_path / "new.sqlite3", [file])
    (tmp_path / "text.jsonl.gz").write_text("no gzip")
    with pytest.raises(UnreadableArchive, match=r"text\.jsonl\.gz"):
        await restore(tmp_path / "new.sqlite3", [tmp_path / "text.jsonl.gz"])


# The commands


async def test_the_commands(store, path, folder, tmp_path, capsys, monkeypatch):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - DAY)
    await play(store, 1, 4)
    monkeypatch.undo()
    before = await everything(store)
    run_1 = tmp_path / "run-1.jsonl.gz"
    assert await asyncio.to_thread(main, ["export", "--db", str(path), "--run", "run-1", str(run_1)]) == 0
    exported = gzip.decompress(run_1.read_bytes()).splitlines()
    assert [json.loads(line)["rollout"]["input"] for line in exported] == [1, 3]
    keep_one = ["archive", "--db", str(path), "--archive-folder", str(folder), "--keep-games", "1"]
    assert await asyncio.to_thread(main, keep_one) == 0
    assert "3 games archived to 1 files in " in capsys.readouterr().out
    assert await kept(store) == [4]
    files = [str(file) for file in folder.glob("*.gz")]
    assert await asyncio.to_thread(main, ["restore", "--db", str(path), *files, str(run_1)]) == 0
    assert "3 games restored to" in capsys.readouterr().out
    assert await everything(store) == before


@pytest.mark.parametrize(
    "arguments", [["archive", "--keep-games", "1"], ["export", "out.jsonl"], ["restore", "nothing.jsonl"]]
)
def test_what_is_not_there_is_one_line(tmp_path, arguments, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command, *rest = arguments
    assert main([command, "--db", "gone.sqlite3", *rest]) == 1
    said = capsys.readouterr().err
    assert said.startswith("python -m store: ") and said.count("\n") == 1
    assert ("nothing.jsonl" if command == "restore" else "gone.sqlite3") in said


async def test_an_export_follows_no_link_that_waits_for_it(store, path, tmp_path):
    await store.enqueue_rollout(input=1)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "out.jsonl.part").symlink_to(victim)
    (tmp_path / "out.jsonl").symlink_to(victim)
    await asyncio.to_thread(export, path, tmp_path / "out.jsonl")
    assert victim.read_text() == "precious" and not (tmp_path / "out.jsonl").is_symlink()


async def test_export_to_standard_output(store, path, capfdbinary):
    await play(store, 1, 2)
    assert await asyncio.to_thread(main, ["export", "--db", str(path), "-"]) == 0
    captured = capfdbinary.readouterr()
    assert len(captured.out.splitlines()) == 2 and b"2 games exported" in captured.err


# A hub that does not grow


async def test_space_is_used_again_and_given_back(store, path, folder):
    for round_ in range(6):
        await play(store, round_ * 20, round_ * 20 + 19, spans=10)
        archive(path, folder, RetentionRule(keep_games=20, **AT_ONCE), now=time.time() + 1)
        if round_ == 1:
            settled = path.stat().st_size
    assert path.stat().st_size < 1.2 * settled
    archive(path, folder, RetentionRule(keep_games=0, **AT_ONCE), now=time.time() + 1)
    shrink(path)
    assert path.stat().st_size < 0.2 * settled


async def test_a_hub_archives_by_itself(tmp_path, path, store):
    await play(store, 1, 3)
    with sqlite3.connect(path) as aging:
        aging.execute("UPDATE rollouts SET end_time = end_time - 7200")
    await store.close()
    hub = HubProcess(tmp_path, "--keep-games", "1")
    await hub.start()
    deadline = time.monotonic() + 60
    while "2 games archived to" not in hub.log.read_text():
        assert time.monotonic() < deadline, hub.log.read_text()
        await asyncio.sleep(0.05)
    client = connect(hub.url, 20)
    assert [rollout.input for rollout in await client.query_rollouts()] == [3]
    await client.close()
    assert hub.stop() == 0
    assert archived(tmp_path / "hub.archive") == [1, 2]


async def play_and_archive(hub, path, folder, rounds, games, spans):
    """(database bytes, resident bytes) after each round of games, of which the newest are kept."""
    client = connect(hub.url, 60)
    sizes = []
    for _ in range(rounds):
        rollouts = await client.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(games)])
        for _ in rollouts:
            taken = await client.dequeue_rollout(worker_id="w")
            assert not await client.upload_spans(spans_of(taken, spans))
            await client.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")
        rule = RetentionRule(keep_games=games, **AT_ONCE)
        await asyncio.to_thread(archive, path, folder, rule, now=time.time() + 1)
        sizes.append((path.stat().st_size, psutil.Process(hub.process.pid).memory_info().rss))
    await client.close()
    return sizes


async def stay_bounded(tmp_path, path, folder, **how_much):
    hub = HubProcess(tmp_path)
    await hub.start()
    sizes = await play_and_archive(hub, path, folder, **how_much)
    hub.kill()
    settled, last = sizes[2], sizes[-1]
    assert last[0] < 1.2 * settled[0], sizes
    assert last[1] < settled[1] + 40e6, sizes


async def test_file_and_memory_stay_bounded(tmp_path, path, folder):
    await stay_bounded(tmp_path, path, folder, rounds=6, games=25, spans=20)
