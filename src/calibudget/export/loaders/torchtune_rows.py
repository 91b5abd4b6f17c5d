"""The rows that torchtune teaches: the configured component, put through its own collator."""

import json
import os
import sys
from pathlib import Path


def main(folder: Path, output: Path) -> None:
    """Write one JSON line a row: the ids and the labels that the loss sees."""
    from omegaconf import OmegaConf
    from torchtune import config
    from torchtune.data import padded_collate_sft

    output = output.resolve()
    os.chdir(folder)
    sys.path.insert(0, ".")
    settings = OmegaConf.load("config.yaml")
    rows = config.instantiate(settings.dataset, config.instantiate(settings.tokenizer))
    with output.open("w") as lines:
        for row in rows:
            batch = padded_collate_sft([row], padding_idx=0, ignore_idx=-100)
            lines.write(json.dumps([batch["tokens"][0].tolist(), batch["labels"][0].tolist()]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
