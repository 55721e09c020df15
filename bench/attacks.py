"""Programs that try to get out of a sandbox, or to bring the machine down from within.

Each prints ESCAPED if it believes it got through; whether it did is decided from outside, by
`sandbox.py`. What stands in braces is filled in: a readable file that holds a secret, a mark for
what is left behind, addresses that someone listens on, and the process id of a bystander. The
numbers of system calls are those of x86-64.
"""

from __future__ import annotations

LIBC = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(what, *arguments):
    if libc.syscall(*arguments) >= 0:
        print("ESCAPED", what)
    else:
        print(what, os.strerror(ctypes.get_errno()))
"""
"""What `attempt`, a system call that must fail, needs; it comes before every attack."""

ATTACKS = {
    "host files": """
        import os
        for path in ("{file}", "/etc/passwd", "/etc/shadow", "/proc/self/root{file}"):
            try: print("ESCAPED", open(path).read())
            except OSError as error: print(error)
        for path in ("/etc", "/root", "/home", "/var", "/work"):
            if os.path.exists(path): print("ESCAPED", os.listdir(path))
        """,
    "environment": """
        import os
        print(dict(os.environ))
        for pid in ("self", "1", "2", os.getppid()):
            try: print("ESCAPED", open(f"/proc/{pid}/environ").read())
            except OSError as error: print(error)
        """,
    "tcp to the host": """
        import socket
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            try:
                socket.socket(family).connect((host, {tcp}))
                print("ESCAPED")
            except OSError as error: print(error)
        """,
    "udp, raw and netlink": """
        import socket
        kinds = ((socket.AF_INET, socket.SOCK_DGRAM), (socket.AF_INET, socket.SOCK_RAW),
                 (socket.AF_NETLINK, socket.SOCK_RAW), (socket.AF_PACKET, socket.SOCK_RAW),
                 (socket.AF_VSOCK, socket.SOCK_STREAM), (socket.AF_ALG, socket.SOCK_SEQPACKET))
        for family, kind in kinds:
            try:
                socket.socket(family, kind).sendto(b"{mark}", ("127.0.0.1", {udp}))
                print("ESCAPED", family)
            except (OSError, TypeError) as error: print(error)
        """,
    "abstract unix socket": """
        import socket
        for address in ("\\0{abstract}", "{unix}"):
            try:
                socket.socket(socket.AF_UNIX).connect(address)
                print("ESCAPED", address)
            except OSError as error: print(error)
        """,
    "ptrace": """
        for pid in (1, os.getppid(), {victim}):
            attempt("attach", 101, 16, pid, 0, 0)
            attempt("seize", 101, 0x4206, pid, 0, 0)
            attempt("process_vm_readv", 310, pid, None, 0, None, 0, 0)
        """,
    "/proc": """
        import os
        for path in ("/proc/1/mem", "/proc/self/mem", "/proc/kcore", "/proc/self/mounts",
                     "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger",
                     "/proc/{victim}/cmdline"):
            try:
                open(path, "r+b").close()
                print("ESCAPED", path)
            except OSError as error: print(error)
        """,
    "namespaces": """
        for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x08000000, 0x04000000):
            attempt("unshare", 272, flag)
            attempt("clone", 56, flag | 17, 0, 0, 0, 0)
        attempt("clone3", 435, ctypes.create_string_buffer(88), 88)
        attempt("setns", 308, 3, 0)
        """,
    "mounts": """
        attempt("tmpfs", 165, b"none", b"/tmp", b"tmpfs", 0, None)
        attempt("bind", 165, b"/", b"/tmp", None, 4096, None)
        attempt("remount", 165, b"none", b"/", None, 32, None)
        attempt("umount", 166, b"/usr/lib", 2)
        attempt("pivot_root", 155, b"/tmp", b"/tmp")
        attempt("fsopen", 430, b"tmpfs", 0)
        attempt("open_tree", 428, -100, b"/", 1)
        """,
    "fork bomb": """
        import os
        while True:
            try: os.fork()
            except OSError: pass
        """,
    "thread bomb": """
        import threading, time
        made = 0
        try:
            while made < 5000:
                threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
                made += 1
        except RuntimeError as error: print(error)
        print("ESCAPED" if made > 100 else made)
        """,
    "4 GB of memory": """
        block = bytearray(4 << 30)
        print("ESCAPED", len(block))
        """,
    "4 GB in many processes": """
        import os, time
        for _ in range(16):
            if os.fork() == 0:
                block = bytearray(256 << 20)
                for i in range(0, len(block), 4096): block[i] = 1
                time.sleep(60)
        time.sleep(60)
        """,
    "4 GB outside address space": """
        import mmap
        attempt("memfd_create", 319, b"x", 0)
        attempt("shmget", 29, 0, 1 << 30, 0o1600)
        attempt("msgget", 68, 0, 0o1600)
        try:
            for _ in range(4): shared = mmap.mmap(-1, 1 << 30)
            print("ESCAPED")
        except OSError as error: print(error)
        """,
    "1 GB of disk": """
        import os
        for place in ("/tmp", "/dev/shm", "/", "/usr/lib", "/python", "/dev", "."):
            for number in range(64):
                try:
                    with open(f"{place}/{mark}-{number}", "wb", buffering=0) as out:
                        for _ in range(64): out.write(bytes(1 << 20))
                except OSError: break
        disk = os.statvfs("/tmp")
        used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
        print("ESCAPED" if used > 64 << 20 else "", used)
        """,
    "descriptors": """
        import os
        opened = []
        try:
            while len(opened) < 100000: opened.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error: print(error)
        print("ESCAPED" if len(opened) > 1024 else len(opened))
        """,
    "inherited descriptors": """
        import os
        for fd in range(3, 1024):
            for act in (lambda: os.write(fd, b"{mark}\\n" * 100), lambda: os.fchdir(fd),
                        lambda: print("ESCAPED", fd, os.fstat(fd))):
                try: act()
                except OSError: pass
        """,
    "signals": """
        import os, signal
        for pid in (os.getppid(), {victim}, 1, 0, -1):
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    if pid > 1 and os.kill(pid, number) is None: print("ESCAPED", pid)
                    elif pid <= 1 and os.fork() == 0: os.kill(pid, number)
                except OSError as error: print(error)
        """,
    "symlinks": """
        import os
        os.symlink("{file}", "link")
        for path in ("link", "/tmp/../../..{file}", "/dev/fd/../..{file}", "/dev/shm/..{file}"):
            try: print("ESCAPED", open(path).read())
            except OSError as error: print(error)
        for act in (lambda: os.link("{file}", "hard"), lambda: os.rename("/usr", "/tmp/usr"),
                    lambda: os.symlink("/tmp", "/usr/lib/{mark}")):
            try:
                act()
                print("ESCAPED")
            except OSError as error: print(error)
        """,
    "setuid": """
        for act in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]),
                    lambda: os.setresuid(0, 0, 0), lambda: os.chown("/tmp", 0, 0)):
            try:
                act()
                print("ESCAPED")
            except OSError as error: print(error)
        everything = (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
        attempt("capset", 126, (ctypes.c_uint32 * 2)(0x20080522, 0), everything)
        """,
    "/dev": """
        import os
        for name in ("mem", "kmem", "port", "kmsg", "tty", "console", "ptmx", "fuse", "kvm", "vda",
                     "sda", "nvme0n1", "loop-control", "net/tun"):
            try:
                os.open(f"/dev/{name}", os.O_RDWR)
                print("ESCAPED", name)
            except OSError: pass
        for act in (lambda: os.mknod("disk", 0o60600, os.makedev(254, 0)), lambda: os.openpty()):
            try:
                act()
                print("ESCAPED")
            except OSError as error: print(error)
        """,
    "/sys": """
        import os
        for path in ("/sys/fs/cgroup", "/sys/kernel", "/sys/power/state", "/sys/class"):
            if os.path.exists(path): print("ESCAPED", path)
        """,
    "kernel keyring": """
        attempt("add_key", 248, b"user", b"{mark}", b"x", 1, -3)
        attempt("keyctl", 250, 0, -3, 1)
        attempt("request_key", 249, b"user", b"{mark}", None, -3)
        """,
    "huge output": """
        import sys
        while True: sys.stdout.write("x" * 65536)
        """,
    "sleeping for ever": """
        import time
        while True: time.sleep(3600)
        """,
    "daemons": """
        import os, time
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                if os.fork(): os._exit(0)
                for fd in range(1024):
                    try: os.close(fd)
                    except OSError: pass
                time.sleep(3600)
        print("started")
        """,
    "deaf to signals": """
        import signal
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        while True: pass
        """,
    "chroot": """
        os.mkdir("jail")
        try:
            os.chroot("jail")
            for _ in range(20): os.chdir("..")
            os.chroot(".")
            print("ESCAPED", open("{file}").read())
        except OSError as error: print(error)
        """,
    "prctl": """
        for option in ((1, 0), (4, 1), (8, 1), (28, 0x3F), (47, 2, 21)):
            libc.prctl(*option, 0, 0, 0)
        if libc.prctl(39, 0, 0, 0, 0) != 1: print("ESCAPED: new privileges are possible")
        if libc.prctl(38, 0, 0, 0, 0) == 0: print("ESCAPED: it takes no_new_privs back")
        attempt("still mounts", 165, b"none", b"/tmp", b"tmpfs", 0, None)
        """,
    "clock": """
        attempt("clock_settime", 227, 0, (ctypes.c_long * 2)(0, 0))
        attempt("settimeofday", 164, (ctypes.c_long * 2)(0, 0), None)
        attempt("adjtimex", 159, ctypes.create_string_buffer(208))
        """,
    "kernel interfaces": """
        attempt("io_uring", 425, 8, ctypes.create_string_buffer(120))
        attempt("bpf", 321, 0, ctypes.create_string_buffer(128), 128)
        attempt("perf_event_open", 298, ctypes.create_string_buffer(128), 0, -1, -1, 0)
        attempt("userfaultfd", 323, 0)
        attempt("kexec", 246, 0, 0, None, 0)
        attempt("init_module", 175, b"", 0, b"")
        attempt("reboot", 169, 0xFEE1DEAD, 672274793, 0, None)
        attempt("syslog", 103, 3, ctypes.create_string_buffer(64), 64)
        attempt("open_by_handle_at", 304, -100, ctypes.create_string_buffer(64), 0)
        """,
    "raising limits": """
        import os, resource
        for name in ("AS", "NPROC", "NOFILE", "FSIZE", "CPU"):
            kind = getattr(resource, f"RLIMIT_{name}")
            try:
                resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                print("ESCAPED", name)
            except (OSError, ValueError) as error: print(error)
        try:
            os.nice(-10)
            print("ESCAPED: priority")
        except OSError as error: print(error)
        """,
    "other programs": """
        import subprocess
        for program in ("/bin/sh", "/usr/bin/env", "/usr/bin/curl", "/usr/bin/mount"):
            try:
                subprocess.run([program], timeout=1)
                print("ESCAPED", program)
            except (OSError, subprocess.TimeoutExpired) as error: print(error)
        """,
    "our own code": """
        import sys
        for name in ("podium", "podium.sandbox.child", "aiohttp"):
            try:
                __import__(name)
                print("ESCAPED", name)
            except ImportError as error: print(error)
        """,
}
