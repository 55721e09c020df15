"""Tasks are read as published or not at all, and their own answers prove their graders."""

from __future__ import annotations

import base64
import csv
import gzip
import http.server
import json
import os
import pickle
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import pytest

from podium.errors import ConfigError, SandboxError
from podium.eval.tasks import FAMILIES, TASKS, Item, check, digest, draw, find, grade, paper_mixture
from podium.eval.tasks.check import gold, spoilt
from podium.eval.tasks.hidden import decode_tests
from podium.sandbox import Sandbox

DATA = Path(__file__).parents[2] / "shared" / "data" / "sets"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no question sets at {DATA}")


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def packed(tests: object) -> str:
    """Hidden tests as LiveCodeBench publishes them."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def math500(n: int) -> list[dict[str, object]]:
    return [
        {"problem": f"What is {i} + 1?", "answer": str(i + 1), "unique_id": f"t/{i}"}
        for i in range(n)
    ]


CONTEST = {
    "question_id": "abc_a",
    "question_content": "Print the sum of two integers.",
    "starter_code": "",
    "public_test_cases": json.dumps([{"input": "1 2", "output": "3", "testtype": "stdin"}]),
    "private_test_cases": packed([{"input": "5 6", "output": "11", "testtype": "stdin"}]),
    "metadata": "{}",
    "difficulty": "easy",
}

CALL = {
    **CONTEST,
    "question_id": "3000",
    "starter_code": "class Solution:\n    def total(self, a: int, b: List[int]) -> int:\n        ",
    "public_test_cases": json.dumps([{"input": "1\n[2]", "output": "3", "testtype": "functional"}]),
    "private_test_cases": packed([{"input": "5\n[6]", "output": "11", "testtype": "functional"}]),
    "metadata": json.dumps({"func_name": "total"}),
}

ROWS: dict[str, dict[str, object]] = {
    "math500": math500(1)[0],
    "math-train": {"problem": "1+1?", "solution": "It is $\\boxed{2}$.", "level": "Level 1"},
    "mmlu": {"question": "Sky?", "subject": "art", "choices": ["red", "blue"], "answer": 1},
    "mmlu-pro": {
        "question_id": 7,
        "question": "Sky?",
        "options": ["red", "blue"],
        "answer": "B",
        "category": "art",
    },
    "gsm8k": {"question": "2+2?", "answer": "It is <<2+2=4>>4.\n#### 4"},
    "rlpr": {
        "prompt": [
            {"role": "system", "content": "Think."},
            {"role": "user", "content": "Speed of light in m/s?"},
        ],
        "reward_model": {"ground_truth": "2.998e8 m/s", "style": "rule"},
        "ability": "Physics",
    },
    "livecodebench-v1": CONTEST,
    "livecodebench-release-v6": CALL,
    "aime-2024": {"id": 60, "problem": "1+1?", "answer": "2"},
    "aime-2025": {"id": "0", "problem": "1+1?", "answer": "2"},
    "gpqa-diamond": {
        "Record ID": "rec1",
        "Question": "Sky?",
        "Correct Answer": "blue",
        "Incorrect Answer 1": "red",
        "Incorrect Answer 2": "green",
        "Incorrect Answer 3": "black",
    },
    "bigcodebench": {
        "task_id": "BigCodeBench/0",
        "complete_prompt": 'import math\ndef task_func(x):\n    """Its floor."""\n',
        "canonical_solution": "    return math.floor(x)",
        "test": "import unittest\nclass TestCases(unittest.TestCase):\n"
        "    def test_floor(self):\n        self.assertEqual(task_func(2.5), 2)\n",
        "libs": "['math']",
    },
    "humaneval": {
        "task_id": "HumanEval/0",
        "prompt": 'def twice(x):\n    """Two times x."""\n',
        "entry_point": "twice",
        "canonical_solution": "    return 2 * x\n",
        "test": "def check(candidate):\n    assert candidate(4) == 8\n",
    },
}
OPTIONAL = {"level", "subject", "category", "ability", "difficulty", "id", "metadata", "libs"}
ROWS["bigcodebench-hard"] = ROWS["bigcodebench"]
WHOLE = {"math500", "rlpr"} | {name for name in TASKS if name.startswith("livecodebench")}


@pytest.fixture
async def sandbox():
    try:
        opened = await Sandbox.open().__aenter__()
    except SandboxError as exc:
        pytest.skip(f"no sandbox here: {exc}")
    yield opened
    await opened.close()


def load(name: str, path: Path) -> Item:
    task = TASKS[name]
    (item,) = task.load("all" if name in WHOLE else task.splits[0], path)
    return item


# ── reading ──


@pytest.mark.parametrize("name", ROWS)
def test_every_task_reads_its_published_schema(name, tmp_path):
    item = load(name, write(tmp_path / "rows.jsonl", [ROWS[name]]))
    assert item.id
    assert item.grader == TASKS[name].grader
    assert json.loads(json.dumps(item.target)) == item.target
    question = {"math500": "What is 0 + 1?", "rlpr": "Speed of light in m/s?"}.get(name, "")
    assert question in item.question
    assert any(form in item.question for form in ("\\boxed{}", "<answer></answer>", "```python"))


@pytest.mark.parametrize("name", ROWS)
async def test_every_tasks_gold_answer_passes_and_its_spoilt_one_does_not(name, tmp_path, sandbox):
    item = load(name, write(tmp_path / "rows.jsonl", [ROWS[name]]))
    report = await check(TASKS[name], [item], sandbox=sandbox)
    assert report.sound, report
    assert report.without_gold == name.startswith("livecodebench")


@pytest.mark.parametrize("name", ROWS)
def test_a_missing_field_is_an_error_that_names_file_row_and_field(name, tmp_path):
    optional = OPTIONAL | ({"task_id"} if name.startswith("big") else set())
    for field in ROWS[name].keys() - optional:
        broken = {key: value for key, value in ROWS[name].items() if key != field}
        path = write(tmp_path / "rows.jsonl", [broken])
        with pytest.raises(ConfigError) as caught:
            load(name, path)
        assert f"{path}, row 1: " in str(caught.value)
        assert field in str(caught.value) or field in ("choices", "options")


def test_every_task_names_its_source_licence_splits_and_grader():
    for name, task in TASKS.items():
        assert name == task.name
        assert task.source and task.licence and task.splits and task.grader
        assert "{question}" in task.prompt


def test_all_formats_hold_the_same_rows(tmp_path):
    rows = math500(3)
    plain = write(tmp_path / "a.jsonl", rows)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "c.json").write_text(json.dumps(rows))
    with (tmp_path / "d.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "e.parquet")
    read = [TASKS["math500"].load("all", path) for path in sorted(tmp_path.iterdir())]
    assert len(read) == 5
    assert all(items == read[0] for items in read)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("rows.jsonl", b'{"problem": "x"\n', "line 1 is not JSON"),
        ("rows.jsonl", b'"just a text"\n', "row 1: not an object"),
        ("rows.json", b'{"problem": "x"}', "not a list of rows"),
        ("rows.json", b"[", "is not JSON"),
        ("rows.jsonl.gz", b"not gzip", "cannot be read"),
        ("rows.jsonl.gz", gzip.compress(b"{}")[:-9], "cannot be read"),
        ("rows.csv", b"problem\n\xff\xfe\n", "cannot be read"),
        ("rows.parquet", b"not parquet", "is not Parquet"),
        ("rows.txt", b"", "not one of .json, .jsonl, .csv, .parquet"),
    ],
)
def test_a_broken_file_is_one_clear_error(name, content, complaint, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=complaint) as caught:
        TASKS["math500"].load("all", tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


def test_a_file_that_is_not_there_is_not_replaced_by_the_hub(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        TASKS["math500"].load("all", tmp_path / "missing.jsonl")


def test_an_unknown_task_or_split_is_told_the_known_ones(tmp_path):
    with pytest.raises(ConfigError, match=r"no task 'maths'.*math500.*reasoning-gym:…"):
        find("maths")
    with pytest.raises(ConfigError, match="no split 'valid'; it has: train, dev, test, all"):
        TASKS["math500"].load("valid", tmp_path)


def test_ids_that_occur_twice_are_refused(tmp_path):
    path = write(tmp_path / "rows.jsonl", math500(2) + math500(1))
    with pytest.raises(ConfigError, match="1 ids occur twice, such as math500/t/0"):
        TASKS["math500"].load("all", path)


def test_rows_published_without_an_answer_are_left_out_and_counted(tmp_path, caplog):
    rows = [{"problem": "1+1?", "answer": "2"}, {"problem": "lost?", "answer": None}]
    items = TASKS["math-train"].load("train", write(tmp_path / "rows.jsonl", rows))
    assert [item.target for item in items] == ["2"]
    assert "1 rows have no answer and are left out" in caplog.text


def test_the_right_option_of_gpqa_stands_anywhere(tmp_path):
    rows = [{**ROWS["gpqa-diamond"], "Record ID": f"rec{i}"} for i in range(40)]
    items = TASKS["gpqa-diamond"].load("test", write(tmp_path / "rows.jsonl", rows))
    assert {item.target["letter"] for item in items} == set("ABCD")
    for item in items:
        options, letter = item.target["options"], item.target["letter"]
        assert options["ABCD".index(letter)] == "blue"


# ── the hub ──


def test_without_the_extra_the_hub_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"pip install 'podium\[eval\]', or name a local file"):
        TASKS["math500"].load("test")


def test_a_hub_out_of_reach_is_one_clear_error(tmp_path):
    said = in_child("math500", tmp_path, HF_HUB_OFFLINE="1")
    assert "HuggingFaceH4/MATH-500 could not be loaded from the Hugging Face hub" in said
    assert "--data" in said


def test_files_on_the_hub_are_downloaded_and_read(tmp_path):
    content = json.dumps(CONTEST).encode()

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            found = self.path.endswith(
                "/livecodebench/code_generation_lite/resolve/main/test6.jsonl"
            )
            self.send_response(200 if found else 404)
            self.send_header("ETag", '"1"')
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        said = in_child("livecodebench-v6", tmp_path, HF_ENDPOINT=address, HF_HUB_DISABLE_XET="1")
        server.shutdown()
    assert said.strip() == "livecodebench/abc_a"


def in_child(task: str, home: Path, **environment: str) -> str:
    """The ids that a fresh interpreter loads, or the error: the hub's settings are read once."""
    pytest.importorskip("datasets")
    code = (
        "import sys; from podium.errors import ConfigError; from podium.eval.tasks import find\n"
        "try: print(*(item.id for item in find(sys.argv[1]).load('all')))\n"
        "except ConfigError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, task],
        env={**os.environ, "HF_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ── splits and the mixture ──


def test_a_set_without_splits_is_cut_the_same_way_whatever_its_order(tmp_path):
    rows = math500(500)
    path = write(tmp_path / "a.jsonl", rows)
    turned = write(tmp_path / "b.jsonl", rows[::-1])
    cut = {split: TASKS["math500"].load(split, path) for split in ("train", "dev", "test", "all")}
    assert [len(items) for items in cut.values()] == [300, 100, 100, 500]
    ids = [item.id for split in ("train", "dev", "test") for item in cut[split]]
    assert len(set(ids)) == 500
    assert all(item.split == "dev" for item in cut["dev"])
    assert digest(TASKS["math500"].load("train", turned)) == digest(cut["train"])
    assert digest(cut["train"]) != digest(cut["test"])


def test_a_draw_depends_on_its_seed_and_is_the_same_for_everybody(tmp_path):
    items = TASKS["math500"].load("all", write(tmp_path / "a.jsonl", math500(50)))
    assert draw(items, 5) == draw(list(reversed(items)), 5)
    assert draw(items, 5) != draw(items, 5, seed=1)
    assert digest(draw(items, 5)) == "ef78530aa420a926"


def mixture_files(folder: Path) -> dict[str, Path]:
    long = {**ROWS["rlpr"], "reward_model": {"ground_truth": "far " * 10}}
    rows = {
        "math500": math500(20),
        "mmlu": [ROWS["mmlu"]] * 12,
        "rlpr": [ROWS["rlpr"]] * 15 + [long] * 15,
        "livecodebench-v1": [{**CONTEST, "question_id": f"q{i}"} for i in range(20)],
    }
    return {name: write(folder / f"{name}.jsonl", found) for name, found in rows.items()}


def test_the_papers_mixture_has_equal_parts_and_a_digest(tmp_path):
    files = mixture_files(tmp_path)
    mixture = paper_mixture(files, each=4)
    parts = [item.id.partition("/")[0] for item in mixture.items]
    assert parts == ["math500"] * 4 + ["mmlu"] * 4 + ["rlpr"] * 4 + ["livecodebench"] * 4
    assert all(len(str(i.target)) <= 30 for i in mixture.items if i.id.startswith("rlpr"))
    assert all(item.split == "train" for item in mixture.items)
    assert paper_mixture(files, each=4) == mixture
    assert paper_mixture(files, each=4, seed=1).digest != mixture.digest


def test_a_part_that_is_too_small_or_unknown_is_refused(tmp_path):
    files = mixture_files(tmp_path)
    with pytest.raises(ConfigError, match="math500 has 12 problems to draw from, not 240"):
        paper_mixture(files)
    with pytest.raises(ConfigError, match="no part gsm8k"):
        paper_mixture({**files, "gsm8k": tmp_path})


# ── LiveCodeBench's hidden tests ──


def test_hidden_tests_are_decoded_and_plain_ones_too():
    tests = [{"input": "1", "output": "2", "testtype": "stdin"}]
    assert decode_tests(packed(tests)) == tests
    assert decode_tests(json.dumps(tests)) == tests


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch evil",)


@pytest.mark.parametrize(
    "encoded",
    [
        base64.b64encode(zlib.compress(pickle.dumps(Evil()))).decode(),
        base64.b64encode(zlib.compress(pickle.dumps([1, 2]))).decode(),
        base64.b64encode(zlib.compress(pickle.dumps("[]"))[:-3]).decode(),
        base64.b64encode(b"not zlib").decode(),
        "not base64!",
        packed({"input": "x"}),
        packed([{"input": 1, "output": 2}]),
        "[1]",
        "",
    ],
)
def test_hidden_tests_that_are_no_text_are_refused_and_nothing_runs(encoded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="hidden tests"):
        decode_tests(encoded)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("row", "right", "wrong"),
    [
        (CONTEST, "print(sum(map(int, input().split())))", "print(3)"),
        (
            CALL,
            "class Solution:\n    def total(self, a, b): return a + sum(b)",
            "class Solution:\n    def total(self, a, b): return 3",
        ),
    ],
)
async def test_a_contest_is_won_by_the_hidden_tests_too(row, right, wrong, tmp_path, sandbox):
    (item,) = TASKS["livecodebench-v1"].load("all", write(tmp_path / "rows.jsonl", [row]))
    assert (await grade(item, f"```python\n{right}\n```", sandbox=sandbox)).value == 1.0
    assert (await grade(item, f"```python\n{wrong}\n```", sandbox=sandbox)).value == 0.0


async def test_code_without_a_sandbox_is_refused(tmp_path):
    item = load("humaneval", write(tmp_path / "rows.jsonl", [ROWS["humaneval"]]))
    with pytest.raises(ConfigError, match="code is graded in a sandbox, and none was given"):
        await TASKS["humaneval"].grade(item, gold(item) or "")


@pytest.mark.parametrize(
    ("grader", "target"),
    [
        ("program", None),
        ("program", {"cases": [["1"]]}),
        ("function", {"cases": []}),
        ("check", "x"),
        ("unittests", {}),
        ("contest", {"public": "[", "private": "[]", "function": None}),
        ("contest", {"public": "[]", "private": "!", "function": None}),
    ],
)
async def test_a_bad_target_of_code_is_a_fault_of_the_task(grader, target, sandbox):
    with pytest.raises(ConfigError, match=r"item one: bad target|hidden tests"):
        await grade(Item("one", "?", target, grader), "print(1)", sandbox=sandbox)


# ── reasoning-gym ──


async def test_a_family_of_reasoning_gym_is_a_task():
    pytest.importorskip("reasoning_gym")
    task = find("reasoning-gym:chain_sum")
    items = task.load("dev")[:3]
    assert items == task.load("dev")[:3]
    assert {item.id for item in items}.isdisjoint(item.id for item in task.load("test"))
    assert (await check(task, items)).sound


@pytest.mark.parametrize("family", ["countdown", "n_queens", "polynomial_multiplication"])
async def test_an_answer_that_would_be_evaluated_as_python_never_runs(family, tmp_path):
    pytest.importorskip("reasoning_gym")
    item = find(f"reasoning-gym:{family}").load("dev")[0]
    mark = tmp_path / "ran"
    for attack in (
        f"__import__('pathlib').Path({str(mark)!r}).touch()",
        f"open({str(mark)!r}, 'w')",
    ):
        assert (await grade(item, f"<answer>{attack}</answer>")).value == 0.0
    assert not mark.exists()
    assert (await grade(item, gold(item) or "")).value == 1.0


def test_an_unknown_family_is_told_the_known_ones():
    pytest.importorskip("reasoning_gym")
    with pytest.raises(ConfigError, match=r"no family 'chess960'; there are: .*countdown"):
        find("reasoning-gym:chess960").load("test")


# ── the user's own ──


async def test_your_own_questions_are_a_task(tmp_path):
    rows = [
        {"question": "6 × 7?", "answer": "42", "grader": "value"},
        {"id": "sky", "question": "Sky?", "answer": "b", "grader": "choice",
         "options": ["red", "blue"], "category": "art", "split": "dev"},
        {"id": "half", "question": "½?", "answer": "\\frac12", "grader": "math"},
        {"id": "list", "question": "[1]?", "answer": "[1]", "grader": "literal"},
    ]  # fmt: skip
    task = find(f"jsonl:{write(tmp_path / 'own.jsonl', rows)}")
    assert task.splits == ("test", "dev")
    assert [item.id for item in task.load("test")] == ["1", "half", "list"]
    (sky,) = task.load("dev")
    assert "A. red\nB. blue" in sky.question
    assert sky.category == "art"
    assert (await check(task, [*task.load("test"), sky])).sound
    assert set(FAMILIES) == {"reasoning-gym", "jsonl", "tiny"}


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"question": "x"}, "'grader'"),
        ({"question": "x", "grader": "guess", "answer": "1"}, "not one of choice, exact"),
        ({"question": "x", "grader": "exact"}, "no field 'answer'"),
        ({"question": "x", "grader": "choice", "answer": "C", "options": ["a", "b"]}, "letter"),
        ({"question": "x", "grader": "choice", "answer": "A", "options": "ab"}, "list of texts"),
    ],
)
def test_a_bad_row_of_yours_is_named(row, complaint, tmp_path):
    path = write(tmp_path / "own.jsonl", [row])
    with pytest.raises(ConfigError, match=complaint) as caught:
        find(f"jsonl:{path}")
    assert f"{path}, row 1" in str(caught.value)


# ── the check itself ──


async def test_a_check_tells_a_grader_that_passes_everything():
    lax = Item("lax", "Is it so?", {"letter": "A", "options": ["only this one"]}, "choice")
    report = await check(TASKS["mmlu"], [lax])
    assert [failed.id for failed in report.spoilt_passed] == ["lax"]
    assert not report.sound


async def test_a_check_tells_gold_that_does_not_pass_and_graders_that_cannot_run():
    broken = Item("broken", "?", {"solution": "    return 1 +\n", "prompt": "def f():\n",
                                  "entry_point": "f", "test": ""}, "check")  # fmt: skip
    fine = Item("fine", "?", "3", "value")
    two = Item("two", "?", "<answer>1</answer> or 2", "value")
    report = await check(TASKS["gsm8k"], [fine, two])
    assert [failed.id for failed in report.gold_failed] == ["two"]
    assert report.passed == 1
    with pytest.raises(ConfigError, match="none was given"):
        await check(TASKS["humaneval"], [broken])


@pytest.mark.parametrize(
    "answer", ["7", "-2.5", "1,000", "\\frac{1}{2}", "x^2", "blue", "0.5 = 50%"]
)
def test_a_spoilt_answer_is_another_one(answer):
    item = Item("one", "?", answer, "math")
    assert spoilt(item) != gold(item)


@needs_data
@pytest.mark.parametrize(
    ("name", "split", "file", "items"),
    [
        ("math500", "test", "math500.json.gz", 100),
        ("gsm8k", "train", "gsm8k_train.jsonl.gz", 7473),
        ("mmlu", "test", "mmlu_test_sample.jsonl.gz", 1140),
    ],
)
async def test_the_gold_answers_of_public_sets_pass(name, split, file, items):
    loaded = TASKS[name].load(split, DATA / file)
    assert len(loaded) == items
    report = await check(TASKS[name], loaded)
    assert report.sound, report
