"""Everything about models and tokens: finding and loading a model, one encoding, the packed forward, greedy decoding.

Names are loaded on first use, so importing this package imports neither torch nor transformers.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from calibudget.facade import on_first_use

if TYPE_CHECKING:
    from calibudget.lm.encoding import Encoded, Encoder, Template
    from calibudget.lm.files import EMBEDDED, ModelSource, resolve_model
    from calibudget.lm.loading import LanguageModel, load_model, load_tokenizer

# MKL shares a matrix product among threads in ways that change the last bits with their number, and so with the number
# of workers. Its strict mode doesn't, at no cost that was measured; it is read at MKL's first use, so it must stand
# before that.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

_HOMES = {
    "EMBEDDED": "files",
    "ModelSource": "files",
    "resolve_model": "files",
    "LanguageModel": "loading",
    "load_model": "loading",
    "load_tokenizer": "loading",
    "Encoded": "encoding",
    "Encoder": "encoding",
    "Template": "encoding",
}

__all__ = [
    "EMBEDDED",
    "Encoded",
    "Encoder",
    "LanguageModel",
    "ModelSource",
    "Template",
    "load_model",
    "load_tokenizer",
    "resolve_model",
]

__getattr__ = on_first_use(__name__, _HOMES)
