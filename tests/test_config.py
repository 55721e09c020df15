from pathlib import Path

import pytest

from podium.config import load
from podium.errors import ConfigError

GOOD = """
[planner]
worker = "a"
[[worker]]
name = "a"
model = "m"
base_url = "http://localhost:1/v1"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "podium.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_small_configuration_is_enough(tmp_path):
    config = load(written(tmp_path, GOOD))
    assert config.worker[0].name == "a" and config.limits.steps == 5


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (GOOD + "modle = 'x'", r"unknown key `worker\.0\.modle`: did you mean `model`\?"),
        ("[limit]\ndollars=1\n" + GOOD, "unknown key `limit`: did you mean `limits`"),
        ("[limits]\ndollars=-1\n" + GOOD, r"`limits\.dollars`: .*greater than 0"),
        ("[limits]\nsteps='many'\n" + GOOD, r"`limits\.steps`: .*integer"),
        (GOOD + GOOD.split("[planner]")[1].split("\n", 2)[2], "two workers are called 'a'"),
        (GOOD.replace('worker = "a"', 'worker = "b"'), r"\[planner\] names the worker 'b'"),
        (GOOD + 'fallback = "z"', "the fallback of 'a' names the worker 'z'"),
        (GOOD.replace('base_url = "http://localhost:1/v1"', ""), "worker 'a' needs `base_url`"),
        (GOOD.replace('model = "m"', ""), "worker 'a' needs `model`"),
        (GOOD + "price = { input = 1 }", r"price\.output`: Field required"),
        ("[planner]\nworker='a'", "`worker`: Field required"),
        ("[planner", "not valid TOML"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(tmp_path, text: str, complaint: str):
    with pytest.raises(ConfigError, match=complaint) as caught:
        load(written(tmp_path, text))
    assert "\n" not in str(caught.value) and "podium.toml" in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*nothing\.toml: No such file"):
        load(tmp_path / "nothing.toml")
