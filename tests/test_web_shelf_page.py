"""Training and evaluations in a real browser."""

import re

import pytest

from pages import browsing, needs_chromium, write_evaluation, write_training

pytestmark = needs_chromium


@pytest.fixture
async def look():
    async with browsing() as at:
        yield at


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    monkeypatch.setenv("PODIUM_RUNS", str(tmp_path / "shelf"))
    return tmp_path / "shelf"


async def test_training_is_followed_while_it_learns(serve, look, shelf):
    write_training(shelf / "tiny", range(1, 7))
    server = await serve(["ok"])
    sight = await look(server.url)
    await sight.open("training")
    await sight.page.get_by_role("link", name=re.compile("tiny")).click()
    await sight.see("Step 6 of 9:")
    then, now = sight.page.locator(".drafts").first, sight.page.locator(".drafts").last
    await now.locator(".flow", has_text="Count to 6.").wait_for()
    await then.locator(".flow", has_text="Count to 1.").wait_for()
    await now.get_by_text("one … 6").wait_for()
    await now.get_by_text("cannot be performed").wait_for()
    write_training(shelf / "tiny", [7])
    await sight.see("Step 7 of 9:")
    await sight.page.get_by_label("Step", exact=True).press("ArrowRight")
    await now.locator(".flow", has_text="Count to 7.").wait_for()
    await sight.picture("training")
    await sight.page.locator(".hero .u-over").click(position={"x": 3, "y": 40})
    await now.locator(".flow", has_text="Count to 1.").wait_for()
    (shelf / "tiny" / "metrics.jsonl").write_text("")
    (shelf / "tiny" / "samples.jsonl").write_text("")
    write_training(shelf / "tiny", range(1, 4))
    await sight.see("Step 3 of 9:")
    assert sight.complaints == []


async def test_a_point_opens_its_questions_a_question_its_run_and_two_what_differs(
    serve, look, shelf
):
    await write_evaluation(shelf / "sums")
    server = await serve(["ok"])
    sight = await look(server.url)
    await sight.open("evaluations")
    await sight.see("80.0 %")
    assert await sight.page.locator("circle.mark").count() == 4  # the oracle too
    await sight.picture("evaluations")
    point = sight.page.get_by_role("link", name=re.compile("^podium: 80.0 %"))
    await point.locator("circle.mark").click()
    await sight.see("Of 20 questions 16 are right")
    await sight.picture("evaluation-questions")
    await sight.page.get_by_label("Show").select_option("wrong")
    await sight.page.get_by_role("link", name="What is 5 + 5?", exact=True).click()
    await sight.page.locator(".node").click()
    await sight.see("The exact messages it was sent", "dialog")
    await sight.page.keyboard.press("Escape")
    await sight.page.get_by_role("link", name="← sums").click()
    await sight.page.get_by_label("One strategy").select_option("podium")
    await sight.page.get_by_label("The other strategy").select_option("single:b")
    await sight.picture("evaluation")
    await sight.page.get_by_role("button", name="differ").click()
    await sight.see("they differ on")
    await sight.picture("evaluation-differ")
    await sight.page.get_by_role("link", name="Side by side").first.click()
    await sight.see("Two runs side by side")
    assert await sight.page.locator(".pair .node").count() == 2
    assert sight.complaints == []


async def test_the_report_opens_without_an_origin(serve, look, shelf):
    await write_evaluation(shelf / "sums")
    server = await serve(["ok"])
    sight = await look(server.url)
    await sight.open("evaluations")
    async with sight.page.context.expect_page() as opened:
        await sight.page.get_by_role("button", name="Open the report").click()
    report = await opened.value
    await report.get_by_text("arithmetic").first.wait_for()
    assert await report.evaluate("origin") == "null"
