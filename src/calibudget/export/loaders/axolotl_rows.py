"""The rows that Axolotl teaches: its prepared set, in the order in which it laid them."""

import json
import os
import sys
import tempfile
from pathlib import Path


def main(folder: Path, output: Path) -> None:
    """Write one JSON line a row: the ids and the labels that the loss sees."""
    os.environ["AXOLOTL_DO_NOT_TRACK"] = "1"
    from axolotl.cli.args import TrainerCliArgs
    from axolotl.cli.config import load_cfg
    from axolotl.common.datasets import load_datasets

    with tempfile.TemporaryDirectory() as prepared:
        cfg = load_cfg(str(folder / "config.yaml"), dataset_prepared_path=prepared, bf16=False)
        rows = load_datasets(cfg=cfg, cli_args=TrainerCliArgs()).train_dataset
        with output.open("w") as lines:
            for row in rows:
                lines.write(json.dumps([list(row["input_ids"]), list(row["labels"])]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
