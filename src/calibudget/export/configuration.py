"""The file with which a trainer trains as the run's own training would: template, rank, rates, epochs."""

from __future__ import annotations

import json
import pprint
from collections.abc import Callable, Mapping
from importlib.resources import files
from string import Template
from typing import Any, Final

import yaml

from calibudget.errors import TrainingError
from calibudget.export.trainers import Job

#: Where adapters go, in the exported folder.
_ADAPTER: Final = "adapter"
#: What torchtune calls the projections of attention, and which of the others go together.
_TUNE_ATTENTION: Final = {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "o_proj": "output_proj"}
_TUNE_MLP: Final = {"gate_proj", "up_proj", "down_proj"}


def configuration(trainer: str, job: Job) -> dict[str, bytes]:
    """The configuration's files by name.

    Raises:
        TrainingError: the trainer knows no such model or layers.
    """
    return _FILES[trainer](job)


def _huggingface_arguments(job: Job) -> dict[str, Any]:
    """The fields that transformers' `TrainingArguments` and what is built on them share."""
    config = job.config
    return {
        "per_device_train_batch_size": job.micro_batch,
        "gradient_accumulation_steps": job.accumulation,
        "num_train_epochs": config.epochs,
        "learning_rate": job.rates[0],
        "lr_scheduler_type": _schedule(job),
        "warmup_steps": job.warmup_steps,
        "weight_decay": config.weight_decay,
        "adam_beta1": config.beta1,
        "adam_beta2": config.beta2,
        "adam_epsilon": config.epsilon,
        "max_grad_norm": config.max_grad_norm or 0.0,
        "seed": config.seed,
        "logging_steps": 1,
        "save_strategy": "epoch",
        "report_to": "none",
        "output_dir": _ADAPTER,
    }


def _schedule(job: Job) -> str:
    """The schedule as transformers names it; ours warms up first."""
    return "constant_with_warmup" if job.config.schedule == "constant" else job.config.schedule


def _script(job: Job, name: str) -> dict[str, bytes]:
    """A training script around `SFTTrainer`, its settings written into it."""
    config = job.config
    optimizer = {
        "lr": job.rates[0],
        "loraplus_lr_ratio": config.learning_rate_ratio,
        "betas": (config.beta1, config.beta2),
        "eps": config.epsilon,
        "weight_decay": config.weight_decay,
        "loraplus_weight_decay": config.weight_decay,
    }
    lora = {
        "r": config.rank,
        "lora_alpha": _whole(config.scaling),
        "lora_dropout": config.dropout,
        "target_modules": list(job.targets),
    }
    settings = _huggingface_arguments(job) | {"max_length": config.max_length}
    values = {"model": job.model, "lora": lora, "lora_plus": optimizer, "settings": settings}
    text = files(__package__).joinpath("scripts", name).read_text("utf-8")
    written = {key: pprint.pformat(value, width=100, sort_dicts=False) for key, value in values.items()}
    return {"train.py": Template(text).substitute(written).encode()}


def _llamafactory(job: Job) -> dict[str, bytes]:
    config = job.config
    return _yaml(
        {
            "model_name_or_path": job.model,
            "stage": "sft",
            "do_train": True,
            "finetuning_type": "lora",
            "lora_rank": config.rank,
            "lora_alpha": _whole(config.scaling),
            "lora_dropout": config.dropout,
            "lora_target": ",".join(job.targets),
            "loraplus_lr_ratio": config.learning_rate_ratio,
            "dataset": "calibudget",
            "tokenized_path": "train.dataset",
            "template": "empty",
            "cutoff_len": config.max_length,
            "bf16": True,
            **_huggingface_arguments(job),
        }
    )


def _axolotl(job: Job) -> dict[str, bytes]:
    config = job.config
    return _yaml(
        {
            "base_model": job.model,
            "datasets": [{"path": "train.parquet", "ds_type": "parquet", "type": None}],
            "dataset_prepared_path": "prepared",
            "val_set_size": 0.0,
            "sequence_len": config.max_length,
            "sample_packing": False,
            "pad_to_sequence_len": False,
            "adapter": "lora",
            "lora_r": config.rank,
            "lora_alpha": _whole(config.scaling),
            "lora_dropout": config.dropout,
            "lora_target_modules": list(job.targets),
            "loraplus_lr_ratio": config.learning_rate_ratio,
            "micro_batch_size": job.micro_batch,
            "gradient_accumulation_steps": job.accumulation,
            "num_epochs": config.epochs,
            "optimizer": "adamw_torch",
            "learning_rate": job.rates[0],
            "lr_scheduler": _schedule(job),
            "warmup_steps": job.warmup_steps,
            "weight_decay": config.weight_decay,
            "adam_beta1": config.beta1,
            "adam_beta2": config.beta2,
            "adam_epsilon": config.epsilon,
            "max_grad_norm": config.max_grad_norm or 0.0,
            "bf16": "auto",
            "seed": config.seed,
            "logging_steps": 1,
            "saves_per_epoch": 1,
            "output_dir": _ADAPTER,
        }
    )


def _ms_swift(job: Job) -> dict[str, bytes]:
    config = job.config
    return _yaml(
        {
            "model": job.model,
            "model_type": _model_type(job),
            "template": "dummy",
            "use_chat_template": False,
            "dataset": "train.jsonl",
            "split_dataset_ratio": 0,
            "max_length": config.max_length,
            "tuner_type": "lora",
            "lora_rank": config.rank,
            "lora_alpha": _whole(config.scaling),
            "lora_dropout": config.dropout,
            "target_modules": list(job.targets),
            "optimizer": "lorap",
            "lorap_lr_ratio": config.learning_rate_ratio,
            "torch_dtype": "bfloat16",
            **_huggingface_arguments(job),
        }
    )


def _open_instruct(job: Job) -> dict[str, bytes]:
    config = job.config
    return _yaml(
        {
            "model_name_or_path": job.model,
            "tokenizer_name_or_path": job.model,
            "dataset_mixer_list": ["train.parquet", "1.0"],
            "dataset_mixer_list_splits": ["train"],
            "dataset_transform_fn": ["sft_tulu_filter_v1"],
            "dataset_target_columns": ["input_ids", "attention_mask", "labels"],
            "max_seq_length": config.max_length,
            "use_lora": True,
            "lora_rank": config.rank,
            "lora_alpha": _whole(config.scaling),
            "lora_dropout": config.dropout,
            "per_device_train_batch_size": job.batch_size,
            "gradient_accumulation_steps": 1,
            "num_train_epochs": config.epochs,
            "learning_rate": config.learning_rate,
            "lr_scheduler_type": _schedule(job),
            "warmup_ratio": config.warmup_fraction,
            "weight_decay": config.weight_decay,
            "clip_grad_norm": -1 if config.max_grad_norm is None else config.max_grad_norm,
            "seed": config.seed,
            "logging_steps": 1,
            "checkpointing_steps": "epoch",
            "output_dir": _ADAPTER,
            "do_not_randomize_output_dir": True,
            "push_to_hub": False,
            "try_launch_beaker_eval_jobs": False,
            "try_auto_save_to_beaker": False,
            "with_tracking": False,
        }
    )


def _torchtune(job: Job) -> dict[str, bytes]:
    config = job.config
    settings = {
        "output_dir": _ADAPTER,
        "model": _tune_model(job),
        "tokenizer": {"_component_": "calibudget_rows.Padding"},
        "checkpointer": {
            "_component_": "torchtune.training.FullModelHFCheckpointer",
            "checkpoint_dir": job.model_directory,
            "checkpoint_files": sorted(path.name for path in job.model_files.glob("*.safetensors")),
            "recipe_checkpoint": None,
            "output_dir": "${output_dir}",
            "model_type": "QWEN2" if _model_type(job) == "qwen2" else "LLAMA3_2",
        },
        "resume_from_checkpoint": False,
        "save_adapter_weights_only": True,
        "dataset": {"_component_": "calibudget_rows.Rows", "path": "train.parquet", "packed": False},
        "seed": config.seed,
        "shuffle": True,
        "batch_size": job.micro_batch,
        "gradient_accumulation_steps": job.accumulation,
        "epochs": config.epochs,
        "max_steps_per_epoch": None,
        "optimizer": {
            "_component_": "calibudget_rows.lora_plus",
            "lr": job.rates[0],
            "ratio": config.learning_rate_ratio,
            "betas": [config.beta1, config.beta2],
            "eps": config.epsilon,
            "weight_decay": config.weight_decay,
        },
        "lr_scheduler": {
            "_component_": "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
            "num_warmup_steps": job.warmup_steps,
        },
        "loss": {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"},
        "clip_grad_norm": config.max_grad_norm,
        "compile": False,
        "metric_logger": {
            "_component_": "torchtune.training.metric_logging.DiskLogger",
            "log_dir": "${output_dir}/logs",
        },
        "log_every_n_steps": 1,
        "log_peak_memory_stats": False,
        "device": "cuda",
        "dtype": "bf16",
        "enable_activation_checkpointing": False,
        "enable_activation_offloading": False,
    }
    if config.schedule != "cosine":
        raise TrainingError(f"torchtune: has no schedule {config.schedule!r} with a warm-up; say schedule=cosine")
    script = files(__package__).joinpath("scripts", "torchtune.py.txt").read_bytes()
    return {**_yaml(settings), "calibudget_rows.py": script}


def _tune_model(job: Job) -> dict[str, Any]:
    """The model as torchtune builds it, out of the shape that its `config.json` says."""
    shape = _model_config(job)
    family = _model_type(job)
    attention = [_TUNE_ATTENTION[name] for name in job.targets if name in _TUNE_ATTENTION]
    mlp = _TUNE_MLP & set(job.targets)
    if set(job.targets) - set(_TUNE_ATTENTION) - _TUNE_MLP or (mlp and mlp != _TUNE_MLP):
        raise TrainingError(f"torchtune: puts no factors on just {', '.join(job.targets)}; name all of the MLP or none")
    if family not in ("llama", "qwen2"):
        raise TrainingError(f"torchtune: the export builds models of the families llama and qwen2, not {family!r}")
    scaling = dict(shape.get("rope_scaling") or {}) | dict(shape.get("rope_parameters") or {})
    kind = scaling.get("rope_type", "default")
    if kind not in ("default", "llama3") or (kind == "llama3" and family != "llama"):
        raise TrainingError(f"torchtune: the export knows no positions of the type {kind!r}")
    model = {
        "_component_": f"torchtune.models.{'llama3_2.lora_llama3_2' if family == 'llama' else 'qwen2.lora_qwen2'}",
        "lora_attn_modules": attention,
        "apply_lora_to_mlp": bool(mlp),
        "lora_rank": job.config.rank,
        "lora_alpha": job.config.scaling,
        "lora_dropout": job.config.dropout,
        "vocab_size": shape["vocab_size"],
        "num_layers": shape["num_hidden_layers"],
        "num_heads": shape["num_attention_heads"],
        "num_kv_heads": shape["num_key_value_heads"],
        "embed_dim": shape["hidden_size"],
        "intermediate_dim": shape["intermediate_size"],
        "max_seq_len": shape["max_position_embeddings"],
        "norm_eps": shape["rms_norm_eps"],
        "rope_base": scaling.get("rope_theta", shape.get("rope_theta", 10_000)),
        "tie_word_embeddings": shape.get("tie_word_embeddings", False),
    }
    return model | ({"scale_factor": scaling.get("factor", 1)} if family == "llama" else {})


def _model_config(job: Job) -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads((job.model_files / "config.json").read_text("utf-8"))
    return found


def _model_type(job: Job) -> str:
    return str(_model_config(job).get("model_type"))


def _yaml(fields: Mapping[str, object]) -> dict[str, bytes]:
    return {"config.yaml": yaml.safe_dump(dict(fields), sort_keys=False, allow_unicode=True, width=120).encode()}


def _whole(number: float) -> float:
    return int(number) if float(number).is_integer() else number


_FILES: Final[Mapping[str, Callable[[Job], dict[str, bytes]]]] = {
    "trl": lambda job: _script(job, "trl.py.txt"),
    "unsloth": lambda job: _script(job, "unsloth.py.txt"),
    "llamafactory": _llamafactory,
    "axolotl": _axolotl,
    "ms-swift": _ms_swift,
    "open-instruct": _open_instruct,
    "torchtune": _torchtune,
}
