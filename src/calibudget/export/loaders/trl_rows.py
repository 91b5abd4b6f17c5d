"""The rows that TRL teaches, or Unsloth by it: what its trainer made of the exported set, after its own collator."""

import json
import runpy
import sys
from pathlib import Path


def main(folder: Path, output: Path) -> None:
    """Write one JSON line a row: the ids and the labels that the loss sees."""
    script = runpy.run_path(str(folder / "train.py"))  # first: Unsloth patches what is imported after it
    from transformers import AutoConfig, AutoModelForCausalLM

    if "FastLanguageModel" in script:
        trainer = script["make_trainer"](bf16=False)
    else:
        config = AutoConfig.from_pretrained(script["MODEL"])
        config.get_text_config().num_hidden_layers = 1
        trainer = script["make_trainer"](AutoModelForCausalLM.from_config(config), use_cpu=True, bf16=False)
    with output.open("w") as lines:
        for row in trainer.train_dataset:
            batch = trainer.data_collator([row])
            lines.write(json.dumps([batch["input_ids"][0].tolist(), batch["labels"][0].tolist()]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
