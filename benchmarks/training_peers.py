"""LoRA training at the 7B shape beside the tools that people pick for speed: TRL with Liger-Kernel, Unsloth, torchtune.

    python benchmarks/training_peers.py [--peers ours,trl,trl_varlen,unsloth,torchtune] [--sites DIR] [--output DIR]

Each runs in a process of its own, with a time limit, and one that fails stops no other. `--sites` holds folders of
packages: `hf` for TRL, Liger-Kernel and Unsloth, `tune` for torchtune, which ask for different versions.

All train the LLaMA-2-7B shape with random weights in bfloat16, factors of rank 128 on all linear layers of the blocks,
on the same examples of 233 tokens on average, about as many tokens a step (`ours` and `trl` take the same 32 examples
a step, the others pack 2,048 tokens four times). Tokens are those of prompts and responses; padding never counts.

- `trl`: SFTTrainer, padding-free, Liger's kernels, attention as transformers chooses it without flash-attn;
- `trl_varlen`: the same with torch's variable-length kernel put in, which is what flash-attn would give it;
- `unsloth`: FastLanguageModel, its own gradient checkpointing off, packing;
- `torchtune`: its LoRA recipe, packed, compiled.

Times are medians over the steps after the warm-up; share of the matmul rate is measured in the same run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from measuring import OUTPUT, installed, read_rows

SITES = {"trl": "hf", "trl_varlen": "hf", "unsloth": "hf", "torchtune": "tune"}
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PACKED = 2048
RANK = 128
WARM = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peers", default="ours,trl,trl_varlen,unsloth,torchtune")
    parser.add_argument("--one", help="run this one in this process")
    parser.add_argument("--sites", type=Path)
    parser.add_argument("--steps", type=int, default=6, help="timed steps, after three others")
    parser.add_argument("--seconds", type=float, default=110, help="limit of one process")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu makes the model tiny")
    parser.add_argument("--model", type=Path, default=Path("/dev/shm/seven"), help="where the model is written")
    parser.add_argument("--profile", action="store_true", help="write where the time of our steps goes")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    if given.one:
        RUNS[given.one](given)
        return
    given.output.mkdir(parents=True, exist_ok=True)
    for peer in given.peers.split(","):
        run_apart(peer, given)
    print(table(given.output / "training_peers.jsonl"))


def run_apart(peer: str, given: argparse.Namespace) -> None:
    """One peer in a process of its own; what it prints goes to its log."""
    environment = dict(os.environ)
    if given.sites is not None and peer in SITES:
        before = environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = os.pathsep.join([str(given.sites / SITES[peer]), before])
    command = [sys.executable, __file__, "--one", peer, "--steps", str(given.steps), "--device", given.device]
    command += ["--model", str(given.model), "--output", str(given.output), *(["--profile"] if given.profile else [])]
    start = time.perf_counter()
    with (given.output / f"peer_{peer}.log").open("w") as log:
        try:
            code = subprocess.run(command, stdout=log, stderr=log, env=environment, timeout=given.seconds).returncode
        except subprocess.TimeoutExpired:
            code = -1
    print(f"{peer}: exit {code} after {time.perf_counter() - start:.0f} s", flush=True)
    if code:
        print((given.output / f"peer_{peer}.log").read_text()[-1500:], flush=True)


def table(path: Path) -> str:
    rows = read_rows(path) if path.exists() else []
    lines = [
        "| what | tokens/s | spread | of the matmul rate | GiB | first loss | last |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        if "tokens_per_second" in row:
            losses = [f"{loss:.3f}" for loss in (row["losses"][:1] + row["losses"][-1:])] or ["", ""]
            cells = [row["what"], f"{row['tokens_per_second']:,.0f}", f"{row['slowest']:,.0f} to {row['fastest']:,.0f}"]
            cells += [f"{row['share']:.1%}", f"{row['gib']:.1f}", *losses]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


class Bench:
    """The examples, the shape, and the row of one peer."""

    def __init__(self, given: argparse.Namespace) -> None:
        import gpu

        from calibudget.training.config import TrainingConfig

        self.given = given
        self.packed = 256 if given.device == "cpu" else PACKED
        self.on_cpu = given.device == "cpu"
        self.shape = dict(gpu.SEVEN)
        if self.on_cpu:
            self.shape |= {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
            self.shape |= {"num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1024}
        self.config = TrainingConfig(epochs=1, rank=RANK, scaling=float(RANK))
        self.steps = given.steps + WARM
        self.examples = gpu.synthetic(32 * self.steps, self.shape["vocab_size"], mean=40 if self.on_cpu else 233)
        self.matmul = gpu.matmul_rate(given.device)
        self.stamps: list[float] = []
        self.losses: list[float] = []

    def model(self) -> Any:
        import gpu
        import torch

        return gpu.random_model(
            self.shape, device=self.given.device, dtype=torch.float32 if self.on_cpu else torch.bfloat16
        )

    def in_order(self) -> list[Any]:
        """The examples in the order of our plan, 32 a step."""
        from calibudget.training.example_order import plan_steps

        plan = plan_steps(self.examples, self.config)[: self.steps]
        return [self.examples[i] for step in plan for i in step.members]

    def stamp(self) -> None:
        import gpu

        gpu.wait_for_cards()
        self.stamps.append(time.perf_counter())
        print(f"step {len(self.stamps)} at {self.stamps[-1]:.2f}", flush=True)

    def row(self, what: str, tokens: Sequence[int], operations: float, packages: Sequence[str]) -> None:
        """Tokens of each step, as many as stamps; the first step's time isn't known."""
        import gpu

        rates = gpu.step_rates(tokens, self.stamps, WARM)
        speed = median(rates)
        row = {"what": what, "tokens_per_second": speed, "slowest": min(rates), "fastest": max(rates), "runs": rates}
        row |= {"share": speed * operations / self.matmul, "gib": gpu.peak_gib(), "losses": self.losses}
        row |= {"tokens": list(tokens), "matmul": self.matmul, "machine": gpu.machine(self.given.device)}
        row |= {"packages": installed("torch", "triton", "transformers", "peft", *packages)}
        with (self.given.output / "training_peers.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)


def ours(given: argparse.Namespace, **options: Any) -> None:
    """Our own learner, as the loop drives it."""
    import gpu

    from calibudget.training.config import Execution
    from calibudget.training.optimizer_step import Learner

    bench = Bench(given)
    learner = Learner(bench.model(), "seven", bench.config, Execution(**options))
    gpu.free()
    tokens = []
    for count, loss in gpu.own_steps(learner, bench.examples, bench.config, bench.steps):
        bench.losses.append(loss.item())
        bench.stamp()
        tokens.append(count)
    name = ", ".join(["ours", *(f"{key}={value}" for key, value in options.items())])
    bench.row(name, tokens, gpu.training_operations(learner.model.get_base_model(), bench.examples), ())
    if given.profile:
        one = gpu.own_steps(learner, bench.examples, bench.config, 1, planned=bench.steps)
        gpu.profiled(lambda: list(one), given.output / f"profile_{name.replace(', ', '_')}.txt")


def ours_small(given: argparse.Namespace) -> None:
    """SmolLM2's shape, 240 steps as training goes, and what of them is spent on capturing graphs of new shapes."""
    import gpu

    from calibudget.training.config import Execution, TrainingConfig
    from calibudget.training.example_order import plan_steps
    from calibudget.training.optimizer_step import GraphedPass, Learner

    bench = Bench(given)
    count = 240 if not bench.on_cpu else 4
    shape = dict(gpu.SMALL) if not bench.on_cpu else bench.shape
    examples = gpu.synthetic(32 * count, shape["vocab_size"], mean=130)
    config = TrainingConfig(epochs=1)
    captures: list[tuple[int, float]] = []
    capture, now = GraphedPass._capture, [0]

    def timed_capture(self: Any, batch: Any) -> Any:
        seconds, found = gpu.timed(lambda: capture(self, batch))
        captures.append((now[0], seconds))
        return found

    GraphedPass._capture = timed_capture  # type: ignore[method-assign]
    learner = Learner(gpu.random_model(shape, device=given.device), "small", config, Execution())
    plan = plan_steps(examples, config)
    tokens = [sum(examples[i].length for i in step.members) for step in plan]

    def step(number: int) -> None:
        now[0] = number
        members = plan[number].members
        learner.gradients(learner.batches(examples, members), sum(examples[i].response_length for i in members))
        learner.update(config.factor_rates(2e-4))

    gpu.free()
    ends = []
    for number in range(len(plan)):
        step(number)
        if number % 20 == 2 or number == len(plan) - 1:
            gpu.wait_for_cards()
            ends.append((number, time.perf_counter()))
    rates = [
        {"to": last, "tokens_per_second": sum(tokens[first + 1 : last + 1]) / (after - before)}
        for (first, before), (last, after) in pairwise(ends)
    ]
    whole = sum(tokens[ends[0][0] + 1 :]) / (ends[-1][1] - ends[0][1])
    operations = gpu.training_operations(learner.model.get_base_model(), examples)
    row = {"what": "ours, small", "whole": whole, "rates": rates, "captures": captures, "gib": gpu.peak_gib()}
    row |= {"share": whole * operations / bench.matmul, "matmul": bench.matmul, "machine": gpu.machine(given.device)}
    with (given.output / "training_small.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(row, flush=True)
    seen = len(plan) - 1
    host, _ = gpu.timed(lambda: [step(seen) for _ in range(20)])
    print({"one shape again and again": 20 * tokens[seen] / host}, flush=True)
    encode, _ = gpu.timed(lambda: [learner.batches(examples, plan[seen].members) for _ in range(20)])
    print({"of which making the batch, s a step": encode / 20, "step, s": host / 20}, flush=True)
    gpu.profiled(lambda: [step(seen) for _ in range(3)], given.output / "profile_small.txt")


def ours_checkpointing(given: argparse.Namespace) -> None:
    ours(given, gradient_checkpointing=True)


def trl(given: argparse.Namespace, *, varlen: bool = False) -> None:
    """TRL's SFTTrainer with Liger-Kernel on the same 32 examples a step, LoRA+ by peft's own optimizer."""
    import gpu
    from datasets import Dataset
    from peft import LoraConfig, get_peft_model
    from transformers import get_cosine_schedule_with_warmup
    from trl import SFTConfig, SFTTrainer

    bench = Bench(given)
    ordered = bench.in_order()
    rows = [{"input_ids": e.ids.tolist(), "labels": labels_of(e)} for e in ordered]
    model = bench.model()
    if varlen:
        from calibudget.training.layers import register

        model.set_attn_implementation(register(kernel=not bench.on_cpu))
    adapted = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=RANK, target_modules=TARGETS, task_type="CAUSAL_LM"))
    optimizer = gpu.lora_plus(adapted, bench.config, fused=not bench.on_cpu)
    trainer = gpu.in_order(SFTTrainer)(
        model=adapted,
        args=settings(SFTConfig, bench, liger=True, per_device_train_batch_size=32, padding_free=True, max_length=None),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer_of(bench),
        optimizers=(optimizer, get_cosine_schedule_with_warmup(optimizer, 1, bench.steps)),
        callbacks=[gpu.stamping(bench.stamp, bench.losses)],
    )
    if varlen:
        trainer.data_collator = flattened
    gpu.free()
    trainer.train()
    tokens = [sum(e.length for e in ordered[n : n + 32]) for n in range(0, len(ordered), 32)]
    base = adapted.get_base_model()
    name = f"TRL + Liger-Kernel, padding-free, {'varlen' if varlen else base.config._attn_implementation}"
    bench.row(name, tokens, gpu.training_operations(base, bench.examples), ("trl", "liger-kernel", "accelerate"))


def labels_of(example: Any) -> list[int]:
    return [-100] * example.prompt_length + example.ids[example.prompt_length :].tolist()


def flattened(features: list[dict[str, Any]]) -> dict[str, Any]:
    """One row of all examples with what a variable-length kernel asks for."""
    import torch

    ids = [i for feature in features for i in feature["input_ids"]]
    lengths = [len(feature["input_ids"]) for feature in features]
    labels = [label for feature in features for label in feature["labels"]]
    starts = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    return {
        "input_ids": torch.tensor([ids]),
        "labels": torch.tensor([labels]),
        "position_ids": torch.tensor([[i for length in lengths for i in range(length)]]),
        "cu_seq_lens_q": starts,
        "cu_seq_lens_k": starts,
        "max_length_q": max(lengths),
        "max_length_k": max(lengths),
    }


def settings(kind: Any, bench: Bench, *, liger: bool, **more: Any) -> Any:
    return kind(
        output_dir="/tmp/peers",
        completion_only_loss=True,
        use_liger_kernel=liger and not bench.on_cpu,
        learning_rate=2e-5,
        lr_scheduler_type="cosine",
        gradient_accumulation_steps=1,
        bf16=not bench.on_cpu,
        use_cpu=bench.on_cpu,
        gradient_checkpointing=False,
        max_steps=bench.steps,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **more,
    )


def tokenizer_of(bench: Bench) -> Any:
    """Words for all ids; ids come ready, so that it is there for its padding token alone."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"<{i}>": i for i in range(bench.shape["vocab_size"])}
    inner = Tokenizer(models.WordLevel(words, unk_token="<0>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<1>", eos_token="<2>", pad_token="<3>", unk_token="<0>"
    )


def trl_varlen(given: argparse.Namespace) -> None:
    trl(given, varlen=True)


def written_model(bench: Bench) -> Path:
    """The random model as files, written once."""
    folder: Path = bench.given.model
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        bench.model().save_pretrained(folder, max_shard_size="5GB")
        tokenizer_of(bench).save_pretrained(folder)
        (folder / "done").touch()
    return folder


def unsloth(given: argparse.Namespace) -> None:
    """Unsloth's model, factors and trainer, with packing."""
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ.setdefault("UNSLOTH_DISABLE_STATISTICS", "1")
    from unsloth import FastLanguageModel  # first: it changes what is imported after it

    import gpu  # isort: skip
    import torch
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    bench = Bench(given)
    folder = written_model(bench)
    gpu.free()
    dtype = torch.float32 if bench.on_cpu else torch.bfloat16
    model, tokenizer = FastLanguageModel.from_pretrained(
        str(folder), max_seq_length=bench.packed, dtype=dtype, load_in_4bit=False, local_files_only=True
    )
    factors = {"r": RANK, "lora_alpha": RANK, "lora_dropout": 0, "bias": "none", "target_modules": TARGETS}
    model = FastLanguageModel.get_peft_model(model, use_gradient_checkpointing=False, **factors)
    ordered = bench.in_order()
    rows = [{"input_ids": e.ids.tolist(), "labels": labels_of(e)} for e in ordered]
    seen: list[int] = []

    class Counting(SFTTrainer):  # type: ignore[misc]
        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            # a step may hold several passes, whatever the settings say
            count = int((inputs["input_ids"] >= 5).sum())
            seen[len(bench.stamps) :] = [sum(seen[len(bench.stamps) :]) + count]
            return super().training_step(model, inputs, *args, **kwargs)

    packs = {"per_device_train_batch_size": 4, "packing": True, "max_length": bench.packed}
    trainer = Counting(
        model=model,
        args=settings(SFTConfig, bench, liger=False, optim="adamw_torch", **packs),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[gpu.stamping(bench.stamp, bench.losses)],
    )
    if not trainer.args.packing:
        print("packing was turned off", flush=True)
        trainer.args.per_device_train_batch_size = trainer._train_batch_size = 32
    gpu.free()
    trainer.train()
    operations = gpu.training_operations(model.get_base_model(), bench.examples)
    packages = ("unsloth", "unsloth-zoo", "trl", "xformers", "bitsandbytes")
    what = "Unsloth, packing" if trainer.args.packing else "Unsloth, 32 examples, padded"
    bench.row(what, seen[: len(bench.stamps)], operations, packages)


# --- torchtune's recipe asks for components by name


BENCH: list[Bench] = []


class TuneTokenizer:
    """What the recipe asks of a tokenizer where ids come ready."""

    pad_id = 3
    max_seq_len = None


def tune_tokenizer() -> TuneTokenizer:
    return TuneTokenizer()


def tune_dataset(_tokenizer: Any, **_options: Any) -> Any:
    from torchtune.datasets import PackedDataset

    class Rows:
        rows = BENCH[0].in_order()

        def __len__(self) -> int:
            return len(self.rows)

        def __getitem__(self, index: int) -> dict[str, list[int]]:
            e = self.rows[index]
            return {"tokens": e.ids.tolist(), "labels": labels_of(e)}

    return PackedDataset(Rows(), max_seq_len=BENCH[0].packed, padding_idx=3)


class TuneLog:
    """Takes the recipe's metrics and the time of each step."""

    def log_dict(self, payload: Any, **_step: int) -> None:
        BENCH[0].losses.append(float(payload["loss"]))
        BENCH[0].stamp()

    def log_config(self, _config: Any) -> None:
        return None

    def close(self) -> None:
        return None


def tune_config(bench: Bench, folder: Path) -> dict[str, Any]:
    """What the recipe reads; a component is named by where it lies."""
    shape = bench.shape
    model = {
        "_component_": "torchtune.models.llama2.lora_llama2",
        "lora_attn_modules": ["q_proj", "k_proj", "v_proj", "output_proj"],
        "apply_lora_to_mlp": True,
        "apply_lora_to_output": False,
        "vocab_size": shape["vocab_size"],
        "num_layers": shape["num_hidden_layers"],
        "num_heads": shape["num_attention_heads"],
        "num_kv_heads": shape["num_key_value_heads"],
        "embed_dim": shape["hidden_size"],
        "intermediate_dim": shape["intermediate_size"],
        "max_seq_len": bench.packed,
        "lora_rank": RANK,
        "lora_alpha": RANK,
        "lora_dropout": 0.0,
    }
    return {
        "output_dir": "/tmp/tune",
        "model": model,
        "tokenizer": {"_component_": "training_peers.tune_tokenizer"},
        "checkpointer": {
            "_component_": "torchtune.training.FullModelHFCheckpointer",
            "checkpoint_dir": str(folder),
            "checkpoint_files": sorted(path.name for path in folder.glob("*.safetensors")),
            "output_dir": "/tmp/tune",
            "model_type": "LLAMA2",
        },
        "resume_from_checkpoint": False,
        "dataset": {"_component_": "training_peers.tune_dataset", "packed": True},
        "seed": 1,
        "shuffle": False,
        "batch_size": 4,
        "optimizer": {"_component_": "torch.optim.AdamW", "fused": not bench.on_cpu, "lr": 2e-5},
        "lr_scheduler": {
            "_component_": "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
            "num_warmup_steps": 1,
        },
        "loss": {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"},
        "epochs": 1,
        "max_steps_per_epoch": bench.steps,
        "gradient_accumulation_steps": 1,
        "compile": not bench.on_cpu,
        "metric_logger": {"_component_": "training_peers.TuneLog"},
        "device": bench.given.device,
        "dtype": "fp32" if bench.on_cpu else "bf16",
        "enable_activation_checkpointing": False,
    }


def torchtune(given: argparse.Namespace) -> None:
    """torchtune's own recipe for one device, packed and compiled, driven by its own configuration."""
    import gpu
    import torch
    from omegaconf import OmegaConf

    sys.modules["training_peers"] = sys.modules["__main__"]
    recipes = (
        Path(importlib.util.find_spec("torchtune").origin).parent.parent / "recipes"
    )  # no package, by its own word
    spec = importlib.util.spec_from_file_location("recipe", recipes / "lora_finetune_single_device.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    bench = Bench(given)
    BENCH.append(bench)
    recipe = module.LoRAFinetuneRecipeSingleDevice(cfg := OmegaConf.create(tune_config(bench, written_model(bench))))
    recipe.save_checkpoint = lambda *_args, **_kwargs: None
    recipe.setup(cfg)
    gpu.free()
    seen = [
        int((torch.stack([pack["tokens"] for pack in packs]) >= 5).sum())
        for packs in batches_of(recipe._dataloader.dataset.packs, 4)
    ]
    recipe.train()
    # the same shape: frozen weights 4, factors 6 operations a parameter, the head where there are labels
    labelled = sum(e.response_length for e in bench.examples) / sum(e.length for e in bench.examples)
    frozen = sum(p.numel() for n, p in recipe._model.named_parameters() if ".layers." in f".{n}" and p.dim() == 2)
    factors = sum(p.numel() for n, p in recipe._model.named_parameters() if "lora_" in n)
    head = bench.shape["vocab_size"] * bench.shape["hidden_size"]
    operations = 4.0 * (frozen - factors) + 6.0 * factors + 4.0 * head * labelled
    bench.row("torchtune's LoRA recipe, packed, compiled", seen, operations, ("torchtune", "torchao"))


def batches_of(packs: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [packs[n : n + size] for n in range(0, len(packs) - size + 1, size)]


RUNS = {"ours": ours, "ours_checkpointing": ours_checkpointing, "ours_small": ours_small, "trl": trl}
RUNS |= {"trl_varlen": trl_varlen, "unsloth": unsloth, "torchtune": torchtune}

if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
