"""The first losses of TRL on what a run hands over, beside those of `calibudget train` on the same rows.

    calibudget train RUN_DIR rank=8 batch_size=16 epochs=2 device=cpu dtype=float32 --output-dir OURS
    calibudget export RUN_DIR --for trl --output-dir EXPORTED rank=8 batch_size=16 epochs=2
    python benchmarks/first_loss.py RUN_DIR OURS EXPORTED RESULT.json        # in an environment that has TRL

The batch is to hold the whole train set, so that both take the same examples in every step. Two ways are measured: the
exported folder's own `train.py`, and a stock `SFTTrainer` that is given `train.jsonl` and nothing else.
"""

import json
import runpy
import sys
from importlib.metadata import version
from pathlib import Path


def main(run_dir: Path, ours: Path, exported: Path, result: Path) -> None:
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    script = runpy.run_path(str(exported / "train.py"))
    model = script["MODEL"]
    stock = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype="float32"),
        args=SFTConfig(
            output_dir=str(exported / "stock"),
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            max_steps=1,
            learning_rate=1e-9,
            logging_steps=1,
            bf16=False,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
        ),
        train_dataset=load_dataset("json", data_files=str(run_dir / "train.jsonl"), split="train"),
        processing_class=AutoTokenizer.from_pretrained(model),
    )
    own = [json.loads(line) for line in (ours / "training.jsonl").read_text().splitlines()]
    measured = {
        "calibudget train": [line["loss"] for line in own if "loss" in line][:2],
        "export --for trl, train.py": _losses(script["make_trainer"](use_cpu=True, bf16=False, save_strategy="no")),
        "stock SFTTrainer on train.jsonl": _losses(stock),
    }
    libraries = {name: version(name) for name in ("torch", "transformers", "trl", "peft", "datasets")}
    result.write_text(json.dumps({"losses": measured, "versions": libraries}, indent=2) + "\n")
    print(result.read_text())


def _losses(trainer) -> list[float]:
    """The losses that a training logs, with every digit: the log itself keeps a few."""
    found = []
    log = trainer.log

    def keep(logs, *rest, **more):
        found.extend([logs["loss"]] if "loss" in logs else [])
        return log(logs, *rest, **more)

    trainer.log = keep
    trainer.train()
    return found


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:5]))
