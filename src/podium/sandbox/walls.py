"""The walls around an interpreter, as a command line that starts it behind them.

Bubblewrap gives it namespaces of its own: no network, no process but its own, a file system made
of a Python, the system's libraries and one small directory in memory, no capabilities, uid 65534.
A seccomp filter takes away the system calls by which kernels are attacked and namespaces made.
Resource limits and Landlock follow from within, in `child`.

RLIMIT_NPROC does not bind root, so a sandbox that is started by root is started as *nobody*
instead. Nobody may not be able to read the interpreter, which often lives under /root: what is
shown to it is therefore mounted, once, in a mount namespace that only our children ever enter.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import marshal
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import MAGIC_NUMBER
from pathlib import Path

from podium.errors import SandboxError

NOBODY = 65534
INSTALL = "apt-get install bubblewrap libseccomp2"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one piece of untrusted code may use."""

    seconds: float = 10.0
    """By the clock on the wall; and hardly more of each process's CPU time."""
    memory: int = 1 << 30
    """Bytes: of address space in each process, and of memory in all of them together."""
    processes: int = 32
    """Threads included. Before Linux 5.14 they are counted over all sandboxes of one user."""
    files: int = 256
    """Open descriptors of each process."""
    disk: int = 64 << 20
    """Bytes in /tmp, which is all that can be written to, and which is memory."""
    output: int = 1 << 20
    """Bytes of standard output, of standard error, and of each value that is sent back."""

    @property
    def limits(self) -> dict[str, int]:
        return {
            "AS": self.memory,
            "NPROC": self.processes,
            "NOFILE": self.files,
            "FSIZE": self.disk,
            "CORE": 0,
            "MEMLOCK": 0,
            "MSGQUEUE": 0,
        }


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter on this machine, and where its parts are."""

    executable: Path
    prefix: Path
    library: Path
    """The standard library."""
    shared: Path
    """The interpreter as a shared library, if it was built as one."""
    payload: bytes
    """`child.py` for it: compiled, if it is of our version; it starts faster then."""

    @staticmethod
    async def at(path: Path | None) -> Python:
        """Ask an interpreter about itself; by default the one we run on."""
        asked = str(path or sys.executable)
        code, out, err = await run_quietly(asked, "-I", "-S", "-c", _ABOUT)
        if code != 0:
            raise SandboxError(f"{asked} is no Python to run code with: {err.strip()[-300:]}")
        executable, prefix, library, shared, magic = json.loads(out)
        source = files("podium.sandbox").joinpath("child.py").read_text("utf-8")
        ours = magic == MAGIC_NUMBER.hex()
        payload = marshal.dumps(compile(source, "child.py", "exec") if ours else source)
        return Python(Path(executable), Path(prefix), Path(library), Path(shared), payload)


_ABOUT = """
import json, os, sys, sysconfig
from importlib.util import MAGIC_NUMBER
soname = str(sysconfig.get_config_var("INSTSONAME"))
places = [os.path.join(sys.base_prefix, "lib"), str(sysconfig.get_config_var("LIBDIR"))]
shared = next((p for p in (os.path.join(d, soname) for d in places) if os.path.isfile(p)), "")
print(json.dumps([os.path.realpath(sys._base_executable), sys.base_prefix,
    sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}), shared,
    MAGIC_NUMBER.hex()]))
"""

BOOT = (
    "import marshal, os, sys\n"
    "fd, size = int(sys.argv[1]), int(sys.argv[2])\n"
    "data = b''\n"
    "while len(data) < size: data += os.read(fd, size - len(data)) or sys.exit()\n"
    "exec(marshal.loads(data))"
)
"""Reads `child.py` from the channel, so that no file of ours has to be seen inside."""

FLAGS = ("-s", "-P", "-S", "-B", "-X", "utf8", "-c", BOOT)

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

ENVIRONMENT = {
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "LD_LIBRARY_PATH": "/python/lib",
    "PYTHONHASHSEED": "0",  # equal programs grade equally
    "MALLOC_ARENA_MAX": "2",  # or each thread takes 64 MB of address space
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MPLBACKEND": "Agg",
}


@dataclass(frozen=True, slots=True)
class Walls:
    """How to start an interpreter. `names` says which walls stand around it."""

    names: tuple[str, ...]
    python: Python
    bounds: Bounds
    packages: tuple[Path, ...] = ()
    bwrap: str = ""
    """Empty: none of the walls but resource limits and Landlock."""
    filter: bytes = b""
    stage: int = -1
    """A descriptor of the mount namespace that a sandbox of root's is started in."""

    @staticmethod
    async def bubblewrap(
        bwrap: str, python: Python, bounds: Bounds, packages: tuple[Path, ...]
    ) -> Walls:
        """The real ones.

        Raises:
            SandboxError: something they need is not installed. The message says what.
        """
        found = shutil.which(bwrap)
        if found is None:
            raise SandboxError(
                f"code that a model wrote runs only in a sandbox, and {bwrap} is not installed: "
                f"{INSTALL}"
            )
        names = ("bubblewrap", "seccomp")
        walls = Walls(names, python, bounds, packages, found, seccomp_filter())
        _check(packages)
        if os.geteuid() != 0:
            return walls
        stage = await _stage([source for source, _ in walls.shown])
        return Walls(names, python, bounds, packages, found, walls.filter, stage)

    def close(self) -> None:
        if self.stage >= 0:
            os.close(self.stage)

    @property
    def shown(self) -> list[tuple[Path, str]]:
        """What of this machine can be read inside, and where it appears."""
        python = self.python
        stdlib = python.library.relative_to(python.prefix)
        places = [
            (python.executable, f"/python/bin/{python.executable.name}"),
            (python.library, f"/python/{stdlib}"),
            (Path("/usr/lib"), "/usr/lib"),
            (Path("/usr/lib64"), "/usr/lib64"),
            (Path("/usr/share/zoneinfo"), "/usr/share/zoneinfo"),
        ]
        if python.shared.is_file():
            places.append((python.shared, f"/python/lib/{python.shared.name}"))
        for top in (Path("/lib"), Path("/lib64")):
            if not top.is_symlink():
                places.append((top, str(top)))
        places += [(path, self._package(i)) for i, path in enumerate(self.packages)]
        return [(source, place) for source, place in places if source.exists()]

    def command(self, channel: int, filter_fd: int) -> list[str]:
        """What to execute, given the descriptors that it inherits."""
        arguments = (*FLAGS, str(channel), str(len(self.python.payload)))
        if not self.bwrap:
            return [str(self.python.executable), *arguments]
        return [
            *self._enter(),
            *(self.bwrap, "--unshare-user", "--unshare-all", "--disable-userns"),
            *("--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox"),
            # A reaper of bubblewrap's own would outlive it, for someone else to bury.
            *("--die-with-parent", "--as-pid-1", "--new-session", "--cap-drop", "ALL"),
            *("--seccomp", str(filter_fd), "--clearenv"),
            *(word for pair in ENVIRONMENT.items() for word in ("--setenv", *pair)),
            *self._mounts(),
            *(f"/python/bin/{self.python.executable.name}", *arguments),
        ]

    def _enter(self) -> tuple[str, ...]:
        if self.stage < 0:
            return ()
        user = ("--setuid", str(NOBODY), "--setgid", str(NOBODY))
        return ("nsenter", f"--mount=/proc/{os.getpid()}/fd/{self.stage}", *user, "--")

    def _mounts(self) -> list[str]:
        words = []
        for i, (source, place) in enumerate(self.shown):
            words += ["--ro-bind", str(source) if self.stage < 0 else _staged(i), place]
        for top in (Path("/lib"), Path("/lib64")):
            if top.is_symlink():
                words += ["--symlink", str(top.readlink()), str(top)]
        for device in DEVICES:
            words += ["--dev-bind", device, device]
        memory = ("--size", str(self.bounds.disk), "--perms", "1777", "--tmpfs", "/tmp")
        return [*words, *memory, "--symlink", "/tmp", "/dev/shm", "--remount-ro", "/",
                "--chdir", "/tmp"]  # fmt: skip

    @property
    def settings(self) -> dict[str, object]:
        """What `child` is told at its start."""
        if self.bwrap:
            packages = [self._package(i) for i in range(len(self.packages))]
            readable, writable = ["/python", "/usr", *packages], ["/tmp", *DEVICES]
        else:
            packages = [str(path) for path in self.packages]
            readable = [str(source) for source, _ in self.shown]
            writable = [".", *DEVICES]
        return {
            "limits": self.bounds.limits,
            "packages": packages,
            "readable": readable,
            "writable": writable,
        }

    @staticmethod
    def _package(index: int) -> str:
        return f"/packages/{index}"


def _check(packages: Sequence[Path]) -> None:
    for path in packages:
        if not path.is_dir():
            raise SandboxError(f"there is no directory of packages {path}")
        if os.geteuid() == 0 and path.stat().st_mode & 0o005 != 0o005:
            raise SandboxError(
                f"code in the sandbox is nobody, who cannot read {path}: chmod -R o=rX {path}"
            )


STAGE = Path("/mnt")


def _staged(index: int) -> str:
    return f"{STAGE}/{index}"


_STAGE_SCRIPT = """
mount -t tmpfs -o mode=755 podium "$0"
i=0
for source in "$@"; do
  if [ -d "$source" ]; then mkdir "$0/$i"; else touch "$0/$i"; fi
  mount --bind "$source" "$0/$i"
  i=$((i + 1))
done
echo ready
read -r _
"""


async def _stage(sources: Sequence[Path]) -> int:
    """A mount namespace where nobody can reach the sources; it lives while its descriptor does."""
    if any(source.is_relative_to(STAGE) for source in sources):
        raise SandboxError(f"run as another user than root, or move Python out of {STAGE}")
    words = ("unshare", "--mount", "--propagation", "private", "sh", "-ec", _STAGE_SCRIPT)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *words, str(STAGE), *map(str, sources), stdin=pipe, stdout=pipe, stderr=pipe
    )
    assert process.stdout and process.stderr and process.stdin
    try:
        if await process.stdout.readline() != b"ready\n":
            message = (await process.stderr.read()).decode(errors="replace").strip()
            raise SandboxError(f"root cannot set up a sandbox here: {message[-300:]}")
        return os.open(f"/proc/{process.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        process.stdin.close()
        await process.wait()


async def run_quietly(*words: str) -> tuple[int, str, str]:
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe)
    except OSError as exc:
        raise SandboxError(f"cannot start {words[0]}: {exc.strerror}") from exc
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")


# -- seccomp

DENIED = frozenset(
    """
ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp
mount umount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick
mount_setattr unshare setns
keyctl add_key request_key bpf perf_event_open userfaultfd
io_uring_setup io_uring_enter io_uring_register
kexec_load kexec_file_load init_module finit_module delete_module create_module reboot
swapon swapoff acct quotactl quotactl_fd syslog vhangup nfsservctl
settimeofday stime clock_settime clock_adjtime adjtimex sethostname setdomainname
iopl ioperm modify_ldt personality uselib ustat sysfs _sysctl lookup_dcookie
name_to_handle_at open_by_handle_at fanotify_init
mbind set_mempolicy set_mempolicy_home_node migrate_pages move_pages
memfd_create memfd_secret shmget shmat msgget semget
mknod mknodat
""".split()  # noqa: SIM905
)
"""System calls that a program under test has no use for, and an attacker has. Those that make
memory outside any address space (`memfd_create`, `shmget`) would slip through the limits."""

_NAMESPACE_FLAGS = [1 << bit for bit in (17, 25, 26, 27, 28, 29, 30)]
_TERMINAL_INJECTION = (0x5412, 0x541C)
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NOT_EQUAL, _EQUAL, _MASKED_EQUAL = 1, 4, 7


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


def seccomp_filter() -> bytes:
    """The filter as a BPF program for this machine, made by libseccomp."""
    try:
        lib = ctypes.CDLL("libseccomp.so.2")
    except OSError as exc:
        raise SandboxError(f"libseccomp is not installed: {INSTALL}") from exc
    lib.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(lib.seccomp_init(ctypes.c_uint32(_ALLOW)))
    for name in DENIED:
        _deny(lib, context, name)
    # Without clone3, whose flags a filter cannot read, the C library falls back on clone.
    _deny(lib, context, "clone3", error=errno.ENOSYS)
    for flag in _NAMESPACE_FLAGS:
        _deny(lib, context, "clone", _Comparison(0, _MASKED_EQUAL, flag, flag))
    _deny(lib, context, "socket", _Comparison(0, _NOT_EQUAL, 1, 0))
    for request in _TERMINAL_INJECTION:
        _deny(lib, context, "ioctl", _Comparison(1, _EQUAL, request, 0))
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as program:
        lib.seccomp_export_bpf(context, writer)
        os.close(writer)
        lib.seccomp_release(context)
        return program.read()


def _deny(
    lib: ctypes.CDLL,
    context: ctypes.c_void_p,
    name: str,
    *comparisons: _Comparison,
    error: int = errno.EPERM,
) -> None:
    number = lib.seccomp_syscall_resolve_name(name.encode())
    rules = (_Comparison * len(comparisons))(*comparisons)
    if number == -1:
        return  # this architecture, or this libseccomp, does not know it
    code = lib.seccomp_rule_add_array(
        context, ctypes.c_uint32(_ERRNO | error), number, len(comparisons), rules
    )
    if code != 0:
        raise SandboxError(f"seccomp refuses a rule for {name}: {os.strerror(-code)}")
