"""The rows that LLaMA-Factory teaches: loaded by its own arguments and loader, put through its collator."""

import json
import sys
from pathlib import Path


def main(folder: Path, output: Path) -> None:
    """Write one JSON line a row: the ids and the labels that the loss sees."""
    from llamafactory.data import SFTDataCollatorWith4DAttentionMask, get_dataset, get_template_and_fix_tokenizer
    from llamafactory.hparams import get_train_args, read_args
    from llamafactory.model import load_tokenizer

    sys.argv = ["llamafactory-cli", str(folder / "config.yaml"), "bf16=false", "use_cpu=true"]
    model_args, data_args, training_args, _, _ = get_train_args(read_args())
    parts = load_tokenizer(model_args)
    template = get_template_and_fix_tokenizer(parts["tokenizer"], data_args)
    rows = get_dataset(template, model_args, data_args, training_args, stage="sft", **parts)["train_dataset"]
    collate = SFTDataCollatorWith4DAttentionMask(template=template, label_pad_token_id=-100, **parts)
    with output.open("w") as lines:
        for row in rows:
            batch = collate([row])
            lines.write(json.dumps([batch["input_ids"][0].tolist(), batch["labels"][0].tolist()]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
