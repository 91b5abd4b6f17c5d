"""What a model is asked to run on: names only, so that the command line knows them without a library."""

from typing import Literal

#: Where a model runs; "auto" is a CUDA GPU where there is one, else the CPU.
Device = Literal["auto", "cpu", "cuda", "mps", "xpu"]
#: A model's precision, or how its linear layers are quantised while it is loaded.
Dtype = Literal["auto", "float32", "bfloat16", "float16", "int8", "nf4"]
#: Of a frozen model that factors are trained on.
FrozenDtype = Literal["auto", "float32", "bfloat16", "int8", "nf4"]
