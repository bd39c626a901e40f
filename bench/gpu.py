"""``python -m bench.gpu``: measure a machine with GPUs in at most 20 minutes, as a Markdown table.

A random model of 0.6B weights (Qwen3-0.6B's shape) is served and trained on one shared GPU: parity of log-probs,
pushes, sleep and wake, adapters, an update; likewise Gemma-3-270M if the extra real is installed. A failed part has its
error as its row. Without a GPU it prints the plan; ``--on-cpu`` runs all parts with a tiny model, as a test of this
program.
"""

import argparse
import asyncio
import importlib.util
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import torch
from transformers import AutoConfig, AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from algo.loop.agreement import measure_differences
from algo.plan import H100_GIB
from algo.real_model import NotInstalled, build_real_model
from algo.run.memory_plan import GIB, Shape, make_plan
from algo.sequences.batch import build_batch
from algo.sequences.trajectories import Trajectory
from algo.serving.server_group import ServerGroup
from algo.tiny_model import build_tiny_model
from algo.training.engine import Engine
from configs.loading import load_config
from configs.werewolf import WerewolfConfig

LAYERS = dict(num_attention_heads=16, num_key_value_heads=8, head_dim=128, num_hidden_layers=28)
SHAPE = Qwen3Config(vocab_size=151_936, hidden_size=1024, intermediate_size=3072, tie_word_embeddings=False, **LAYERS)


def forward_flops(shape: Shape, model: Path, tokens: int, length: int, scored: int) -> float:
    """FLOPs of a forward pass over tokens in sequences of that length: weights and causal attention.

    scored: tokens with logits. Embeddings are lookups and cost nothing.
    """
    settings = AutoConfig.from_pretrained(model)
    attention = 2 * shape.layers * settings.num_attention_heads * settings.head_dim * tokens * length
    body = shape.parameters - shape.head * (1 if shape.tied else 2)
    return 2.0 * (body * tokens + shape.head * scored) + attention


class Bench:
    """The rows so far: (part, measurement, figure)."""

    def __init__(self, folder: Path, on_cpu: bool) -> None:
        self.folder, self.on_cpu = folder, on_cpu
        self.tokens, self.sequences = (256, 4) if on_cpu else (4096, 8)
        self.device, self.dtype = ("cpu", torch.float32) if on_cpu else ("cuda", torch.bfloat16)
        self.rows: list[tuple[str, str, str]] = []
        self.model = build_tiny_model(folder / "tiny")
        if not on_cpu:
            self.model = folder / "random"
            torch.manual_seed(0)
            Qwen3ForCausalLM(SHAPE).to(self.dtype).save_pretrained(self.model)
            AutoTokenizer.from_pretrained(folder / "tiny").save_pretrained(self.model)
        size, copied = (1024, 2**27) if on_cpu else (8192, 2**30)
        matrix = torch.randn(size, size, device=self.device, dtype=self.dtype)
        block = torch.empty(copied, device=self.device, dtype=torch.uint8)
        self.flops = 2 * size**3 / self.seconds(lambda: matrix @ matrix)
        self.bandwidth = 2 * copied / self.seconds(block.clone)
        self.add("rates", "matrix products", f"{self.flops / 1e12:.2f} TFLOP/s")
        self.add("rates", "memory", f"{self.bandwidth / 1e9:.0f} GB/s")

    def config(self, *settings: str) -> WerewolfConfig:
        """A run of this model where vLLM and one rank share the GPU."""
        on_gpu = ("training.param_offload=true", "training.optimizer_offload=true", "serving.share_gpus=true")
        own = (
            *("run.name=bench", f"run.dir={self.folder}", "serving.port=8123", "serving.kv_cache_gb=0.25"),
            *(f"rollout.context_tokens={self.tokens}", "rollout.reply_tokens=32"),
            *(f"model.path={self.model}", f"model.dtype={str(self.dtype).removeprefix('torch.')}"),
            *(f"training.device={self.device}", f"training.max_sequence_tokens={self.tokens}"),
            *("training.micro_batch_size=1", f"training.mini_batch_size={self.sequences}"),
            *(() if self.on_cpu else on_gpu),
        )
        return load_config(None, [*own, *settings], WerewolfConfig)

    def add(self, part: str, what: str, figure: str) -> None:
        print(f"{part}: {what}: {figure}", flush=True)
        self.rows.append((part, what, figure))

    def seconds(self, call: Callable[[], Any]) -> float:
        """Seconds of a call, its GPU work included; the best of five."""

        def once() -> float:
            started = time.perf_counter()
            call()
            if not self.on_cpu:
                torch.cuda.synchronize()
            return time.perf_counter() - started

        return min(once() for _ in range(5))


async def sampled(serving: ServerGroup, bench: Bench, count: int) -> list[Trajectory]:
    """Sequences that vLLM samples after random prompts, with its log-probs."""
    generator, found = torch.Generator().manual_seed(1), []
    async with aiohttp.ClientSession(trust_env=False) as http:
        for number in range(count):
            prompt = torch.randint(3, 500, (bench.tokens - 33,), generator=generator).tolist()
            body = {"model": serving.model, "prompt": prompt, "max_tokens": 32, "logprobs": 0, "ignore_eos": True}
            async with http.post(
                f"{serving.endpoints[0]}/completions", json=body | {"return_token_ids": True}
            ) as response:
                choice = (await response.json())["choices"][0]
            given, reply = [0] * len(prompt), choice["token_ids"]
            found.append(
                Trajectory(
                    task_id=str(number), group_id="bench", actor="bench", role="none", side="none", segment=0,
                    token_ids=(*prompt, *reply), loss_mask=(*given, *[1] * len(reply)),
                    logprobs=(*map(float, given), *choice["logprobs"]["token_logprobs"]),
                    turn_ends=(bench.tokens - 33 + len(reply),), turn_versions=(0,), reward=0.0,
                )
            )  # fmt: skip
    return found


def parity(bench: Bench, part: str, engine: Engine, rows: list[Trajectory]) -> None:
    """The trainer's log-probs against vLLM's, of tokens that vLLM sampled."""
    ours = engine.log_probs(build_batch(rows, temperature=1.0))
    # Only the sampled tokens of each sequence.
    apart = [
        (mine - torch.tensor(row.logprobs))[torch.tensor(row.loss_mask) > 0]
        for mine, row in zip(ours, rows, strict=True)
    ]
    found = measure_differences(torch.cat(apart))
    text = ", ".join(f"{name} {value:.1e}" for name, value in found.items())
    bench.add(part, "log-probs, vLLM's against the trainer's", f"{text} nats")


async def shared(bench: Bench, part: str, *settings: str) -> None:
    """vLLM and the trainer on one GPU, as a run starts them: parity, sleep and wake, an update, pushes."""
    config = bench.config(*settings)
    plan = make_plan(config)
    plan.check(config)
    config.run_dir.mkdir(parents=True, exist_ok=True)
    adapters, transfer = config.model.lora_rank > 0, config.serving.weight_transfer
    async with await ServerGroup.open(config) as serving:
        started = time.perf_counter()
        await serving.sleep()
        asleep = time.perf_counter() - started
        engine = await asyncio.to_thread(Engine, config)
        try:
            started = time.perf_counter()
            await serving.wake()
            woke = time.perf_counter() - started
            bench.add(part, "sleep, wake", f"{asleep:.2f} s, {woke:.2f} s")

            async def push(version: int) -> None:
                folder = bench.folder / f"{part}-{version}"
                started = time.perf_counter()
                if adapters or transfer == "folder":
                    write = engine.export_adapters if adapters else engine.export
                    await asyncio.to_thread(write, folder)
                    await serving.push_weights(folder, version)
                else:
                    await serving.push(
                        version,
                        lambda server: server.reload(folder),
                        lambda servers: asyncio.to_thread(
                            engine.send_weights, [(server.base_url, server.starts) for server in servers]
                        ),
                    )
                took = time.perf_counter() - started
                size = bench.dtype.itemsize * (plan.shape.adapters or plan.shape.parameters)
                least = size / bench.bandwidth
                figure = f"{took:.2f} s for {size / GIB:.2f} GiB, {least:.3f} s at the memory's rate"
                bench.add(part, f"push {version} by {'folder' if adapters else transfer}", figure)

            if adapters:
                await push(1)
            rows = await sampled(serving, bench, bench.sequences)
            await serving.sleep()
            await asyncio.to_thread(parity, bench, part, engine, rows)
            batch = build_batch(rows, [torch.ones(len(row.token_ids)) for row in rows], temperature=1.0)
            await asyncio.to_thread(engine.update, batch)
            started = time.perf_counter()
            metrics = await asyncio.to_thread(engine.update, batch)
            took = time.perf_counter() - started
            tokens = sum(len(row.token_ids) for row in rows)
            scored = sum(sum(row.loss_mask) for row in rows)
            forward = forward_flops(plan.shape, config.model.path, tokens, bench.tokens, scored)
            used = 3 * forward / took / bench.flops
            figure = f"{took:.2f} s, {tokens / took:,.0f} tokens/s, {100 * used:.1f} % of the matrix rate"
            bench.add(part, "update", figure)
            peak = metrics.get("perf/max_memory_allocated_gb", 0.0)
            planned = plan.needed("a GPU during updates") / GIB if "a GPU during updates" in plan.memories else 0.0
            bench.add(part, "peak of the update", f"{peak:.1f} GiB, planned {planned:.1f}")
            await push(2)
            after = await sampled(serving, bench, 2)
            await asyncio.to_thread(parity, bench, f"{part}, after the push", engine, after)
        finally:
            await asyncio.to_thread(engine.close)


async def measure(bench: Bench) -> None:
    """All parts that this machine can run."""

    async def try_(part: str, *settings: str) -> None:
        """An error becomes the part's row."""
        try:
            await shared(bench, part, *settings)
        except Exception as error:
            traceback.print_exc()
            bench.add(part, "FAILED", f"{type(error).__name__}: {error}"[:300])

    await try_("folder")
    await try_("adapters", "model.lora_rank=16")
    try:
        pretrained = build_real_model(bench.folder / "gemma", tied=not bench.on_cpu)
        await try_("Gemma", f"model.path={pretrained}")
    except NotInstalled as error:
        bench.add("Gemma", "not measured", str(error))
    if bench.on_cpu:
        return
    await try_("ipc", "serving.weight_transfer=ipc")
    if torch.cuda.device_count() > 1:
        await try_("nccl", "serving.weight_transfer=nccl", "serving.share_gpus=false")
    if importlib.util.find_spec("flash_attn") is None:
        bench.add("flash-attn", "not installed", "sdpa alone was measured")
    else:
        await try_("flash-attn", "model.attn_implementation=flash_attention_2")


def main() -> int:
    """Measure, print the table, write ``gpu.md``; the exit status is 1 where a part failed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu",
        description="Measure a machine with GPUs in at most 20 minutes, as a Markdown table.",
    )
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="folder of gpu.md (default: runs/gpu)")
    parser.add_argument("--on-cpu", action="store_true", help="run all parts with a tiny model, without a GPU")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not (torch.cuda.is_available() or options.on_cpu):
            print("No GPU: nothing is measured. The plan of configs/one_gpu.yaml for a GPU of 80 GB:")
            model = Path(folder) / "model"
            SHAPE.save_pretrained(model)
            config = load_config(Path("configs/one_gpu.yaml"), [f"model.path={model}"], WerewolfConfig)
            print(make_plan(config, gpu_gib=H100_GIB).table(config, 7))
            return 0
        bench = Bench(Path(folder), options.on_cpu)
        asyncio.run(measure(bench))
    name = "CPU" if options.on_cpu else torch.cuda.get_device_name(0)
    lines = [f"| {name} | | |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in bench.rows)]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return int(any(what == "FAILED" for _, what, _ in bench.rows))


if __name__ == "__main__":
    sys.exit(main())
