"""The rows that a trainer teaches, by its own loader: a JSON line each, the ids and the labels that the loss sees.

A program of its own, for a Python that has the trainer and may lack calibudget: LOADER FOLDER OUTPUT.
"""

import json
import os
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

#: Ids and labels.
Rows = Iterator[tuple[list[int], list[int]]]


def axolotl(folder: Path) -> Rows:
    """Its prepared set, in the order in which it laid them."""
    os.environ["AXOLOTL_DO_NOT_TRACK"] = "1"
    from axolotl.cli.args import TrainerCliArgs
    from axolotl.cli.config import load_cfg
    from axolotl.common.datasets import load_datasets

    with tempfile.TemporaryDirectory() as prepared:
        cfg = load_cfg(str(folder / "config.yaml"), dataset_prepared_path=prepared, bf16=False)
        yield from _as_they_are(load_datasets(cfg=cfg, cli_args=TrainerCliArgs()).train_dataset)


def llamafactory(folder: Path) -> Rows:
    """Loaded by its own arguments and loader, put through its collator."""
    from llamafactory.data import SFTDataCollatorWith4DAttentionMask, get_dataset, get_template_and_fix_tokenizer
    from llamafactory.hparams import get_train_args, read_args
    from llamafactory.model import load_tokenizer

    sys.argv = ["llamafactory-cli", str(folder / "config.yaml"), "bf16=false", "use_cpu=true"]
    model_args, data_args, training_args, _, _ = get_train_args(read_args())
    parts = load_tokenizer(model_args)
    template = get_template_and_fix_tokenizer(parts["tokenizer"], data_args)
    rows = get_dataset(template, model_args, data_args, training_args, stage="sft", **parts)["train_dataset"]
    return _collated(rows, SFTDataCollatorWith4DAttentionMask(template=template, label_pad_token_id=-100, **parts))


def ms_swift(folder: Path) -> Rows:
    """Its own arguments, preprocessor and template, without loading the weights."""
    from swift.arguments import SftArguments
    from swift.cli.main import parse_yaml_args
    from swift.pipelines import SwiftSft

    class UpToRows(SwiftSft):  # type: ignore[misc]
        """The training pipeline up to its rows."""

        args_class = SftArguments

        def _prepare_model_tokenizer(self, **more: object) -> None:
            super()._prepare_model_tokenizer(**{**more, "load_model": False})

        def _prepare_generation_config(self) -> None:
            """There is no model to prepare it for."""

    arguments = [str(folder / "config.yaml")]
    parse_yaml_args(arguments)
    return _as_they_are(UpToRows([*arguments, "--torch_dtype", "float32"])._prepare_dataset()[0])


def open_instruct(folder: Path) -> Rows:
    """Its own dataset mixer and transform functions."""
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
        yield from _as_they_are(rows)


def torchtune(folder: Path) -> Rows:
    """The configured component, put through its own collator."""
    from functools import partial

    from omegaconf import OmegaConf
    from torchtune import config
    from torchtune.data import padded_collate_sft

    os.chdir(folder)
    sys.path.insert(0, ".")
    settings = OmegaConf.load("config.yaml")
    rows = config.instantiate(settings.dataset, config.instantiate(settings.tokenizer))
    return _collated(rows, partial(padded_collate_sft, padding_idx=0, ignore_idx=-100), ids="tokens")


def trl(folder: Path) -> Rows:
    """What TRL's trainer, or Unsloth's by it, made of the exported set, after its own collator."""
    script = runpy.run_path(str(folder / "train.py"))  # first: Unsloth patches what is imported after it
    from transformers import AutoConfig, AutoModelForCausalLM

    if "FastLanguageModel" in script:
        trainer = script["make_trainer"](bf16=False)
    else:
        config = AutoConfig.from_pretrained(script["MODEL"])
        config.get_text_config().num_hidden_layers = 1
        trainer = script["make_trainer"](AutoModelForCausalLM.from_config(config), use_cpu=True, bf16=False)
    return _collated(trainer.train_dataset, trainer.data_collator)


def _as_they_are(rows: Iterable[Mapping[str, Any]]) -> Rows:
    return ((list(row["input_ids"]), list(row["labels"])) for row in rows)


def _collated(rows: Iterable[Any], collate: Callable[[list[Any]], Mapping[str, Any]], ids: str = "input_ids") -> Rows:
    batches = (collate([row]) for row in rows)
    return ((batch[ids][0].tolist(), batch["labels"][0].tolist()) for batch in batches)


if __name__ == "__main__":
    with Path(sys.argv[3]).open("w") as lines:
        for found in globals()[sys.argv[1]](Path(sys.argv[2])):
            lines.write(json.dumps(found) + "\n")
