"""CountSketch: a long vector becomes a short one, and inner products stay right on average.

Every position has a bucket and a sign, both taken from BLAKE2b of the seed and the position (paper, appendix
"Tokenization, Sketching, and File Binding"); `docs/decisions/0010-countsketch.md` gives the rule bit by bit. The
sketch of x is, per bucket, the signed sum of the entries that fall into it, so it is linear in x, and over seeds
the inner product of two sketches has the mean <x, y> and the variance
(|x|^2 |y|^2 + <x, y>^2 - 2 sum_i x_i^2 y_i^2) / dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibudget.errors import InputError, InputTypeError, refuse_as
from calibudget.keys import sketch_words
from calibudget.messages import shown

#: Fewest positions handled at a time where the caller names no block size.
BLOCK_SIZE: Final = 2**17
#: A word's 31 high bits choose the bucket.
_BUCKET_BITS: Final = 31
MAX_DIMENSION: Final = 2**24


@dataclass(frozen=True, slots=True, kw_only=True)
class CountSketch:
    """A random linear map from vectors of any length to `dimension` buckets; call it on a vector.

    Attributes:
        dimension: number of buckets, 1 to 2**24.
        seed: the sketch seed; the same seed and dimension give the same map in every process and on every platform.
        block_size: positions handled at a time, None for a good choice. It changes memory and speed, never a bit
            of the result.
    """

    dimension: int
    seed: int
    block_size: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.dimension <= MAX_DIMENSION:
            raise InputError(f"dimension must be 1 to {MAX_DIMENSION}, not {shown(self.dimension)}")
        if self.block_size is not None and self.block_size < 1:
            raise InputError(f"block_size must be at least 1, not {shown(self.block_size)}")

    def __call__(self, vector: ArrayLike) -> NDArray[np.float64]:
        """Sketch one vector.

        Args:
            vector: shape (n,), n >= 0, finite; float16, float32, float64 or integers. Read block by block and
                summed in float64, each bin in the order of positions.

        Returns:
            Shape (dimension,), float64, finite.

        Raises:
            InputTypeError: entries that aren't real numbers of at most 64 bits.
            InputError: not one-dimensional; a NaN or an infinity (the first one's position is named); or sums
                beyond the range of float64.
        """
        values = _checked(vector)
        bins = self._binned_sums(values)
        with np.errstate(over="ignore", invalid="ignore"):
            sketch: NDArray[np.float64] = bins[0::2] - bins[1::2]
        if not np.isfinite(sketch).all():
            raise InputError(_nonfinite_reason(values))
        return sketch

    def bins(self, start: int, stop: int) -> NDArray[np.unsignedinteger[Any]]:
        """The bins of positions start to stop - 1: twice the bucket, plus 1 where the sign is negative.

        Returns:
            Shape (stop - start,), uint16 where it suffices, else uint32.

        Raises:
            InputError: not 0 <= start <= stop.
        """
        if not 0 <= start <= stop:
            raise InputError(f"positions {shown(start)} to {shown(stop)} are no range of a vector")
        words = sketch_words(self.seed, start, stop)
        buckets = ((words >> 1).astype(np.uint64) * np.uint64(self.dimension)) >> np.uint64(_BUCKET_BITS)
        kind = np.uint16 if 2 * self.dimension <= 2**16 else np.uint32
        return (2 * buckets + (words & 1)).astype(kind)

    @property
    def _positions(self) -> int:
        """Positions of a block; many to a bin, since every block carries all bins along."""
        return max(BLOCK_SIZE, 8 * self.dimension) if self.block_size is None else self.block_size

    def _binned_sums(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Sums per bin, shape (2 * dimension,). The sums so far lead each block, so that blocks leave no trace."""
        count = 2 * self.dimension
        sums = np.zeros(count)
        room = count + min(self._positions, len(values))
        indices, weights = np.empty(room, np.intp), np.empty(room, np.float64)
        indices[:count] = np.arange(count)
        with np.errstate(over="ignore", invalid="ignore"):
            for start, stop in _blocks(len(values), self._positions):
                end = count + stop - start
                weights[:count] = sums
                weights[count:end] = values[start:stop]
                indices[count:end] = self.bins(start, stop)
                sums = np.bincount(indices[:end], weights[:end], count).astype(np.float64, copy=False)
        return sums


def _blocks(length: int, block_size: int) -> Iterator[tuple[int, int]]:
    """Start and stop of each block of a vector."""
    return ((start, min(start + block_size, length)) for start in range(0, length, block_size))


def _checked(vector: ArrayLike) -> NDArray[Any]:
    with refuse_as(InputError, "the vector is no array of numbers", ValueError):
        values = np.asarray(vector)
    if values.dtype.kind not in "fiu" or values.dtype.itemsize > 8:
        raise InputTypeError(f"a vector's entries must be real numbers of at most 64 bits, not {values.dtype}")
    if values.ndim != 1:
        raise InputError(f"a vector has one dimension, this has the shape {values.shape}; flatten it first")
    return values


def _nonfinite_reason(values: NDArray[Any]) -> str:
    """Why a sketch came out infinite or NaN. A sum with a nonfinite term is never finite, so looking late is safe."""
    for start, stop in _blocks(len(values), BLOCK_SIZE):
        found = np.flatnonzero(~np.isfinite(values[start:stop]))
        if found.size:
            position = start + int(found[0])
            return f"the vector's entry at position {position} is {values[position]}; every entry must be finite"
    return "the vector's entries are finite, but a sum of them is beyond the range of float64; scale the vector down"
