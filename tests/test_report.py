"""The report: figures that say what they rest on, doubts in words, and a page in a real browser."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from podium.cli.report import report as command
from podium.eval.page import write_page
from podium.eval.plots import dollars
from podium.eval.report import summarise
from podium.eval.results import Results
from podium.eval.setting import recorded
from podium.eval.tally import read
from test_eval import evaluate, write_world

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'//"


def little(folder: Path, *, questions: int = 120, answers=None) -> Path:
    """`a` is wrong in every sixth, `b` in every fourth, `c` in every fifth, each in its own way."""
    gold = {f"{split}-{i}": str(i) for split in ("dev", "test") for i in range(questions)}

    def said(worker: str, id: str) -> str:
        number = int(id.split("-")[1])
        wrong = number % {"a": 6, "b": 4, "c": 5}[worker] == 1
        return f"The answer is {number + 100 * ord(worker) if wrong else number}."

    made = {w: {id: said(w, id) for id in gold} | (answers or {}) for w in ("a", "b", "c")}
    return write_world(folder, made, gold)


async def made_report(out: Path):
    (tally,) = await read([out])
    return tally, summarise(tally)


async def test_figures_rest_on_paired_questions(tmp_path):
    world = recorded(little(tmp_path / "little"))
    await evaluate(world, tmp_path / "out", "best-single,vote:3,oracle")
    _, report = await made_report(tmp_path / "out")
    best, vote, oracle = (report.figures[name] for name in ("best-single", "vote:3", "oracle"))
    assert list(report.figures)[:3] == ["best-single", "vote:3", "oracle"]
    assert best.n == 120 and best.accuracy == pytest.approx(100 / 120)
    assert best.low < best.accuracy < best.high
    assert best.p_vs_best_single is None and best.says == "a"
    assert vote.accuracy > best.accuracy and vote.p_vs_best_single < 0.05 and vote.paired == 120
    assert oracle.gap_closed == pytest.approx(1.0) and best.gap_closed == pytest.approx(0.0)
    assert oracle.usd_per_question == pytest.approx(200 * 12 / 1e6)
    assert vote.steps == {4: 120} and vote.workers == {"a": 1.0, "b": 1.0, "c": 1.0}
    assert best.categories["odd"].n + best.categories["even"].n == 120
    assert report.front[0] == "single:c" and report.front[-1] == "vote:3"


async def test_a_gain_that_was_bought_with_more_calls_is_doubted(tmp_path):
    world = recorded(little(tmp_path / "little"))
    await evaluate(world, tmp_path / "out", "best-single,vote:3")
    _, report = await made_report(tmp_path / "out")
    # `a` costs ten times what the others do, so three voices cost hardly more than `a` alone
    assert not report.figures["vote:3"].doubts
    tally, _ = await made_report(tmp_path / "out")
    tally.samples["vote:3"] = [replace(s, usd=3 * s.usd) for s in tally.samples["vote:3"]]
    (doubt,) = summarise(tally).figures["vote:3"].doubts
    assert "3.6 times" in doubt and "nothing of equal spend" in doubt
    rival = [replace(s, strategy="self-consistency:a:3") for s in tally.samples["vote:3"]]
    tally.samples["self-consistency:a:3"] = rival
    tally.score()
    (doubt,) = summarise(tally).figures["vote:3"].doubts
    assert "vanishes at equal spend: self-consistency:a:3" in doubt


async def test_few_questions_chance_and_replay_are_said_in_words(tmp_path):
    world = recorded(little(tmp_path / "little", questions=12))
    await evaluate(world, tmp_path / "out", "best-single,vote:3")
    _, report = await made_report(tmp_path / "out")
    assert any(doubt.startswith("replay:") for doubt in report.doubts)
    assert any("only 12 questions" in doubt for doubt in report.doubts)
    assert any("may be chance" in doubt for doubt in report.figures["vote:3"].doubts)
    assert report.title == "little, test (replay)"


async def test_a_best_single_that_was_chosen_on_these_questions_is_doubted(tmp_path):
    await evaluate(recorded(little(tmp_path / "little")), tmp_path / "out", "single:a,single:b")
    _, report = await made_report(tmp_path / "out")
    assert any("chosen on these very questions" in doubt for doubt in report.doubts)


async def test_workers_whose_successes_have_nothing_in_common_are_doubted(tmp_path):
    await evaluate(recorded(little(tmp_path / "little")), tmp_path / "out", "best-single,single:*")
    _, report = await made_report(tmp_path / "out")
    assert any("hardly go together" in doubt for doubt in report.doubts)


async def test_an_unpaired_comparison_says_so(tmp_path):
    world = recorded(little(tmp_path / "little"))
    await evaluate(world, tmp_path / "one", "best-single")
    await evaluate(world, tmp_path / "two", "vote:3", limit=50)
    (tally,) = await read([tmp_path / "one", tmp_path / "two"])
    vote = summarise(tally).figures["vote:3"]
    assert vote.n == vote.paired == 50
    assert any("shares 50 of 120 questions" in doubt for doubt in vote.doubts)


async def test_rows_of_the_same_name_from_two_directories_stay_apart(tmp_path):
    world = recorded(little(tmp_path / "little", questions=10))
    for name in ("one", "two"):
        await evaluate(world, tmp_path / name, "single:a")
    (tally,) = await read([tmp_path / "one", tmp_path / "two"])
    assert set(tally.samples) == {"single:a", "single:a @two"}


def test_a_directory_without_results_is_named(tmp_path):
    done = CliRunner().invoke(command, [str(tmp_path)])
    assert "holds no results" in str(done.exception)


async def test_several_samples_of_a_question_count_as_one_question(tmp_path):
    world = recorded(little(tmp_path / "little", questions=10))
    await evaluate(world, tmp_path / "out", "best-single,single:*")
    tally, _ = await made_report(tmp_path / "out")
    for row, samples in tally.samples.items():
        tally.samples[row] = [*samples, *(replace(s, sample=1, score=0.0) for s in samples)]
    tally.score()
    figures = summarise(tally).figures
    assert figures["single:a"].n == 10 and figures["single:a"].accuracy == pytest.approx(0.4)
    assert figures["oracle"].accuracy >= max(figures[f"single:{w}"].accuracy for w in "abc")
    # ten questions of which a few differ prove nothing, however the means lie
    assert figures["single:b"].p_vs_best_single > 0.05


async def test_unscored_samples_are_left_out_and_counted(tmp_path):
    await evaluate(recorded(little(tmp_path / "little")), tmp_path / "out", "single:a")
    results = await Results.open(tmp_path / "out")
    sql = "UPDATE samples SET score = NULL WHERE item IN ('test-1', 'test-2', 'test-7')"
    await results.store.change((sql, ()))
    await results.close()
    _, report = await made_report(tmp_path / "out")
    alone = report.figures["single:a"]
    assert (alone.n, alone.unscored) == (117, 3)
    assert any("3 samples are unscored" in doubt for doubt in alone.doubts)


@pytest.mark.parametrize(
    ("usd", "text"), [(0.0, "$0.00"), (0.0000386, "$0.0000386"), (0.03, "$0.03"), (12.0, "$12.00")]
)
def test_dollars_are_written_out(usd, text):
    assert dollars(usd) == text


@pytest.fixture
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def page(tmp_path) -> Path:
    """A report with a reply that attacks its reader, made by the command."""
    import asyncio

    async def make() -> None:
        answers = {"test-3": f"{HOSTILE}\nThe answer is 3."}
        world = recorded(little(tmp_path / "little", answers=answers))
        await evaluate(world, tmp_path / "out", "best-single,vote:3,cascade,oracle")
        tally, report = await made_report(tmp_path / "out")
        await write_page(tmp_path / "page.html", tally, replace(report, label=HOSTILE))

    asyncio.run(make())
    done = CliRunner().invoke(command, [str(tmp_path / "out"), "--json"])
    assert done.exit_code == 0
    assert json.loads(done.output)["vote:3"]["n"] == 120
    assert (tmp_path / "out" / "report.html").is_file()
    return tmp_path / "page.html"


def test_the_page_opens_every_question_down_to_its_steps(page, browser):
    tab = browser.new_page()
    said, asked = [], []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(page.as_uri())
    tab.wait_for_selector("body[data-ready]")
    assert tab.locator("figure svg").count() == 4
    assert tab.locator("tbody tr").count() == 7
    assert "best-single" in tab.locator("table").inner_text()
    assert tab.locator(".item").count() == 50  # of 120, a page at a time
    tab.fill("#words", "test-3?")
    assert tab.locator("#count").inner_text() == "1 of 120"
    tab.locator(".item > button").click()
    vote = tab.locator(".open > details", has_text="vote:3")
    vote.locator("summary").first.click()
    vote.locator("details").nth(1).locator("summary").click()
    assert "<img src=x onerror=" in vote.locator("details").nth(1).locator("pre").inner_text()
    assert tab.title() == f"{HOSTILE}, test (replay) · Podium"
    assert tab.evaluate("document.querySelectorAll('img').length") == 0
    assert asked == [page.as_uri()] and not said


def test_the_list_of_questions_can_be_narrowed(page, browser):
    tab = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
    tab.goto(page.as_uri())
    tab.wait_for_selector("body[data-ready]")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    tab.select_option("#row", label="single:a")
    tab.select_option("#verdict", "wrong")
    assert tab.locator("#count").inner_text() == "20 of 120"
    tab.select_option("#category", "odd")
    assert tab.locator("#count").inner_text() == "20 of 120"
    tab.select_option("#category", "even")
    assert tab.locator("#where").inner_text() == "none"
