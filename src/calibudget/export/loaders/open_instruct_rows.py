"""The rows that open-instruct teaches: its own dataset mixer and transform functions."""

import json
import sys
import tempfile
from pathlib import Path


def main(folder: Path, output: Path) -> None:
    """Write one JSON line a row: the ids and the labels that the loss sees."""
    import yaml
    from open_instruct.dataset_transformation import TokenizerConfig, get_cached_dataset_tulu

    config = yaml.safe_load((folder / "config.yaml").read_text())
    tokenizer = TokenizerConfig(
        tokenizer_name_or_path=config["model_name_or_path"], get_tokenizer_fn="get_tokenizer_simple_v1"
    )
    with tempfile.TemporaryDirectory() as cache:
        rows = get_cached_dataset_tulu(
            dataset_mixer_list=config["dataset_mixer_list"],
            dataset_mixer_list_splits=config["dataset_mixer_list_splits"],
            tc=tokenizer,
            dataset_transform_fn=config["dataset_transform_fn"],
            transform_fn_args=[{} for _ in config["dataset_transform_fn"]],
            target_columns=config["dataset_target_columns"],
            dataset_local_cache_dir=cache,
        )
        with output.open("w") as lines:
            for row in rows:
                lines.write(json.dumps([list(row["input_ids"]), list(row["labels"])]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
