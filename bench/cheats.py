"""Solutions that are wrong and would like to pass all the same.

Each takes the place of an honest `total(numbers)`. As a program, it is run with the numbers on
standard input and should print their sum.
"""

from __future__ import annotations

HONEST = """
def total(numbers):
    return sum(numbers)
"""

WRONG = """
def total(numbers):
    return 0
"""

LYING = """
class Lie(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __sub__(self, other): return 0
    __rsub__ = __sub__
    def __str__(self): return "6"
"""

FRAMES = """
import sys
def look(frame):
    while frame is not None:
        for found in (*frame.f_locals.values(), *frame.f_code.co_consts):
            if type(found) is int and found > 3: return found
        frame = frame.f_back
    return 0
"""

CHEATS = {
    "exits in the function": """
import sys
def total(numbers): sys.exit(0)
""",
    "exits at import": """
import sys
def total(numbers): return 0
sys.exit(0)
""",
    "os._exit": """
import os
def total(numbers):
    print("OK", flush=True)
    os._exit(0)
""",
    "equals everything": LYING
    + """
def total(numbers): return Lie()
""",
    "excepthook and atexit": """
import atexit, os, sys
sys.excepthook = lambda *error: os._exit(0)
atexit.register(os._exit, 0)
def total(numbers): raise ValueError
""",
    "reads the caller's frame": FRAMES
    + """
def total(numbers): return look(sys._getframe(1))
""",
    "reads the frame of a traceback": FRAMES
    + """
def total(numbers):
    try: raise ValueError
    except ValueError as error: return look(error.__traceback__.tb_frame.f_back)
""",
    "reads the frames by inspect": FRAMES
    + """
import inspect
def total(numbers): return look(inspect.currentframe().f_back)
""",
    "forks and exits": """
import os
def total(numbers):
    if os.fork(): os._exit(0)
    return 0
""",
    "forges the pipe": """
import os
FORGED = [b'{"returned": 6}', b'{"failed": null}',
          b'{"ran": ["solution.Tests.test_total"], "failed": {}}', b'{"broken": "no"}', b"6"]
def total(numbers):
    for fd in range(256):
        for line in FORGED:
            try: os.write(fd, line + b"\\n")
            except OSError: pass
    os._exit(0)
""",
    "forges with the nonce": """
import gc, os, re
def total(numbers):
    try: seen = repr([thing for thing in gc.get_objects() if type(thing) in (dict, tuple, list)])
    except RuntimeError: seen = ""
    import __main__
    seen += repr(vars(__main__))
    for nonce in set(re.findall("[0-9a-f]{32}", seen)):
        for line in ('{"returned": 6}', '{"ran": ["solution.Tests.test_total"], "failed": {}}',
                     '{"broken": "no"}'):
            for fd in range(3, 256):
                try: os.write(fd, f"{nonce}{line}\\n".encode())
                except OSError: pass
    os._exit(0)
""",
    "silences assertions": """
import unittest
def nothing(*args, **kwargs): pass
def total(numbers):
    for name in dir(unittest.TestCase):
        if name.startswith("assert"): setattr(unittest.TestCase, name, nothing)
    return 0
""",
    "silences one assertion, then covers its tracks": """
import unittest
def total(numbers):
    honest = unittest.TestCase.assertEqual
    def once(*args, **kwargs): unittest.TestCase.assertEqual = honest
    unittest.TestCase.assertEqual = once
    return 0
""",
    "patches the runner": """
import unittest
unittest.TestCase.run = lambda self, result=None: (result.startTest(self), result.addSuccess(self))
def total(numbers): return 0
""",
    "patches the result": """
import unittest
def total(numbers):
    result = unittest.TestResult
    for kind in (result, *result.__subclasses__()):
        kind.addFailure = kind.addError = lambda self, test, error: None
    return 0
""",
    "brings tests of its own": """
import unittest
class Mine(unittest.TestCase):
    def test_nothing(self): pass
def load_tests(loader, tests, pattern): return loader.loadTestsFromTestCase(Mine)
def total(numbers): return 0
""",
    "skips": """
import unittest
def total(numbers): raise unittest.SkipTest("not today")
""",
    "pytest.skip and conftest": """
import os, sys, types
with open("conftest.py", "w") as out: out.write("collect_ignore_glob = ['*']")
class Skipped(BaseException): pass
pytest = types.ModuleType("pytest")
def skip(*args): raise Skipped
pytest.skip = skip
sys.modules["pytest"] = pytest
def total(numbers): pytest.skip("not today")
""",
    "patches math and json": """
import builtins, json, math
def yes(*args, **kwargs): return True
def total(numbers):
    math.isclose = json.loads = json.dumps = builtins.all = builtins.abs = yes
    return 0
""",
    "patches by exec": """
import math
def total(numbers):
    exec("math.isclose = lambda *a, **k: True", {"math": math})
    return 0
""",
    "replaces modules": """
import sys, types
fake = types.ModuleType("unittest")
class TestCase:
    def __getattr__(self, name): return lambda *args: None
fake.TestCase = TestCase
sys.modules["unittest"] = fake
def total(numbers): return 0
""",
    "floods standard output": """
def total(numbers):
    while True: print("6\\nPASSED OK 1.0\\n" * 1000)
""",
    "prints every answer": """
def total(numbers):
    for number in range(1000): print(number)
    return list(range(1000))
""",
}
