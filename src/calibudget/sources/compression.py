"""Opening data files as streams of bytes: plain, gzip or zstd, with a bound on what a compressed one may give."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import IO, Any, Final, cast

from calibudget.errors import DataError
from calibudget.sources.limits import Limits

#: The endings of compressed files.
COMPRESSED: Final = (".gz", ".zst")
#: What reading a torn or vanished file raises.
BROKEN: Final = (OSError, EOFError, zlib.error)
_BUFFER: Final = 2**18
_PLACE: Final = 2**13


class _Bounded(io.RawIOBase):
    """What a decompressor gives, refused once it is out of proportion to what went in."""

    def __init__(self, plain: IO[bytes], raw: IO[bytes], limits: Limits) -> None:
        self._plain = plain
        self._raw = raw
        self._limits = limits
        self._given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._plain.read(len(buffer))
        buffer[: len(data)] = data
        self._given += len(data)
        limits = self._limits
        if self._given > limits.expanded_bytes:
            raise DataError(f"decompresses to more than {limits.expanded_bytes:,} bytes")
        if self._given > limits.free_bytes + limits.expansion * self._raw.tell():
            raise DataError(
                f"decompresses to more than {limits.expansion} times its size: a decompression bomb, or a file to be "
                "given uncompressed"
            )
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._plain.close()
            self._raw.close()
        super().close()


def open_plain(path: Path, limits: Limits, *, in_places: bool = False) -> IO[bytes]:
    """A data file's bytes, decompressed as its ending says; of an uncompressed one little at a time `in_places`.

    Reading it raises one of `BROKEN` where the file is torn, and DataError where it gives more than it may.
    """
    ending = path.suffix.lower()
    if ending not in COMPRESSED:
        return path.open("rb", buffering=_PLACE if in_places else _BUFFER)
    raw = path.open("rb")
    if not raw.peek(1):
        raw.close()
        raise EOFError  # zlib takes no bytes for an empty text; it is a download that failed
    if ending == ".gz":
        plain = cast("IO[bytes]", gzip.GzipFile(fileobj=raw, mode="rb"))
    else:
        import pyarrow as pa

        plain = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")
    return io.BufferedReader(_Bounded(plain, raw, limits), _BUFFER)


def why_broken(error: BaseException) -> str:
    """Why a file can't be read, in words."""
    if isinstance(error, DataError):
        return str(error)
    if isinstance(error, EOFError) or "Truncated compressed stream" in str(error):
        return "the compressed file is cut short"
    if isinstance(error, UnicodeDecodeError):
        return f"invalid UTF-8 ({error.reason})"
    if isinstance(error, UnicodeEncodeError):  # a byte that was carried through as a surrogate
        return f"invalid UTF-8 (the byte 0x{ord(error.object[error.start]) - 0xDC00:02x}); save the file as UTF-8"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return f"can't be read: {reason}"
