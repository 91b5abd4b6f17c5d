"""The rows that ms-swift teaches: its own arguments, preprocessor and template, without loading the weights."""

import json
import sys
from pathlib import Path


def main(folder: Path, output: Path) -> None:
    """Write one JSON line a row: the ids and the labels that the loss sees."""
    from swift.arguments import SftArguments
    from swift.cli.main import parse_yaml_args
    from swift.pipelines import SwiftSft

    class Rows(SwiftSft):  # type: ignore[misc]
        """The training pipeline up to its rows."""

        args_class = SftArguments

        def _prepare_model_tokenizer(self, **more: object) -> None:
            super()._prepare_model_tokenizer(**{**more, "load_model": False})

        def _prepare_generation_config(self) -> None:
            """There is no model to prepare it for."""

    arguments = [str(folder / "config.yaml")]
    parse_yaml_args(arguments)
    rows = Rows([*arguments, "--torch_dtype", "float32"])._prepare_dataset()[0]
    with output.open("w") as lines:
        for row in rows:
            lines.write(json.dumps([list(row["input_ids"]), list(row["labels"])]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
