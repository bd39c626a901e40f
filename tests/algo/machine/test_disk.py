"""A full disk, for real: a small file system in memory, where one may be mounted, and a limit of a file's size."""

import gc
import resource
import shutil
import subprocess

import pytest
import torch
from safetensors.torch import save_file

from algo.machine.atomic_files import write_atomically
from algo.machine.disk import DiskFull, remove_on_error
from algo.run import records
from algo.run.checkpoints import RunState, load_state, newest_checkpoint, save_checkpoint
from configs.loading import load_config
from tests.support.algo.trajectories import made_trajectory

MIB = 2**20


@pytest.fixture
def small_disk(tmp_path):
    """A folder that takes 4 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


class Engine:
    """Writes a file of so many megabytes with ``save``, instead of verl."""

    def __init__(self, megabytes, save=torch.save):
        self.megabytes, self.write = megabytes, save

    def select(self, learner):
        pass

    def save(self, directory, step):
        directory.mkdir(parents=True)
        self.write({"weights": torch.zeros(self.megabytes * MIB // 4)}, directory / "weights")

    def export(self, directory):
        directory.mkdir(parents=True)


def plain(state, path):
    write_atomically(path, "x" * 8 * MIB)


WRITERS = {"torch": torch.save, "safetensors": save_file, "python": plain}


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_a_checkpoint_that_does_not_fit_is_removed_and_the_run_goes_on_from_the_last(small_disk, writer):
    config = load_config(None, [f"run.dir={small_disk}", "run.name=r", "checkpoint.keep=5"])
    state = RunState(run_id="r", step=1)
    save_checkpoint(config, Engine(1), state, small_disk / "none")
    free = shutil.disk_usage(small_disk).free
    with pytest.raises(
        DiskFull, match=r"No space left on device: .*step-000002 could not be written.*checkpoint\.keep"
    ):
        save_checkpoint(config, Engine(8, writer), state.model_copy(update={"step": 2}), small_disk / "none")
    gc.collect()  # torch's file is open for as long as the error is remembered
    assert shutil.disk_usage(small_disk).free == free
    assert load_state(newest_checkpoint(config.run_dir)).step == 1
    save_checkpoint(config, Engine(1), state.model_copy(update={"step": 2}), small_disk / "none")
    assert load_state(newest_checkpoint(config.run_dir)).step == 2


def test_a_batch_that_does_not_fit_names_the_setting(small_disk):
    rows, numbers = [made_trajectory((0, *(1,) * 999))] * 1000, [torch.zeros(1000)] * 1000
    with pytest.raises(DiskFull, match=r"batches/step-0001\.jsonl could not.*log\.save_batches=false"):
        records.write_batch(small_disk / "batches" / "step-0001.jsonl", rows, numbers, numbers)
    assert not any((small_disk / "batches").iterdir())


def test_a_limit_of_file_size_is_reported_too(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
    try:
        with pytest.raises(DiskFull, match="File too large"), remove_on_error(tmp_path / "file", "Raise `ulimit -f`."):
            (tmp_path / "file.partial").write_bytes(b"x" * 2 * MIB)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("error", [ValueError("a bug"), KeyboardInterrupt("a bug")])
def test_other_errors_stay_what_they_are(tmp_path, error):
    with pytest.raises(type(error), match="a bug"), remove_on_error(tmp_path / "file", ""):
        (tmp_path / "file").write_text("half")
        raise error
    assert not any(tmp_path.iterdir())
