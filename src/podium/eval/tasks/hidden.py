"""LiveCodeBench's hidden tests, decoded without trusting them.

They are published as a pickle, of a JSON text, compressed, in base64. A pickle can run code when
it is loaded; this one may hold a text and nothing else.
"""

from __future__ import annotations

import binascii
import io
import pickle
import zlib
from base64 import b64decode
from typing import Any, NoReturn

import orjson

from podium.errors import ConfigError

MAX_BYTES = 512 * 1024 * 1024
"""The tests of one problem take up to some tens of megabytes."""


class _TextOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}, and only a text is allowed")


def decode_tests(encoded: str) -> list[dict[str, Any]]:
    """The tests: `input`, `output` and `testtype` each. They may also be plain JSON already."""
    try:
        text = encoded if encoded.lstrip().startswith("[") else _unpack(encoded)
        tests = orjson.loads(text)
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError, ValueError) as exc:
        raise ConfigError(f"hidden tests cannot be decoded: {exc}") from exc
    if not isinstance(tests, list) or not all(_is_test(test) for test in tests):
        raise ConfigError("hidden tests are not a list of objects with input and output")
    return tests


def _unpack(encoded: str) -> str:
    inflate = zlib.decompressobj()
    packed = inflate.decompress(b64decode(encoded, validate=True), MAX_BYTES)
    if not inflate.eof:
        raise ValueError(f"cut off, or more than {MAX_BYTES} bytes")
    text = _TextOnly(io.BytesIO(packed)).load()
    if not isinstance(text, str):
        raise ValueError(f"the pickle holds no text but {type(text).__name__}")
    return text


def _is_test(test: object) -> bool:
    return (
        isinstance(test, dict)
        and isinstance(test.get("input"), str)
        and isinstance(test.get("output"), str)
    )
