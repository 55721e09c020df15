"""A real Postgres, from Debian's package, started for the tests and gone after them."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg

_numbers = itertools.count()


def binary(name: str) -> str | None:
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(versions[-1]) if versions else shutil.which(name)


@contextmanager
def postgres() -> Iterator[Path]:
    """The directory of its socket. It refuses to run as root, and is run as its own user then."""
    place = Path(tempfile.mkdtemp(prefix="podium-pg-"))
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if as_user:
        shutil.chown(place, "postgres")
    data = str(place / "data")
    initdb = [*as_user, str(binary("initdb")), "-D", data, "-U", "postgres", "-A", "trust", "-N"]
    subprocess.run(initdb, check=True, capture_output=True, cwd=place)
    ctl = [*as_user, str(binary("pg_ctl")), "-D", data, "-w"]
    options = f"-c listen_addresses= -c unix_socket_directories={place}"
    start = [*ctl, "start", "-l", str(place / "log"), "-o", options]
    subprocess.run(start, check=True, stdout=subprocess.DEVNULL, cwd=place)
    try:
        yield place
    finally:
        stop = [*ctl, "stop", "-m", "immediate"]
        subprocess.run(stop, check=True, stdout=subprocess.DEVNULL, cwd=place)
        shutil.rmtree(place, ignore_errors=True)


async def database(place: Path) -> str:
    """The address of a new, empty database."""
    name = f"podium_{next(_numbers)}"
    connection = await asyncpg.connect(address(place, "postgres"))
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return address(place, name)


def address(place: Path, name: str) -> str:
    return f"postgresql:///{name}?host={place}&user=postgres"
