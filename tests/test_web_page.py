"""The page in a real browser, against a real server over a scripted upstream.

Pictures of what the tests see are kept under artefacts/.
"""

import asyncio
import re
from dataclasses import replace
from importlib.resources import files

import pytest

from pages import (
    browsing,
    keep,
    needs_chromium,
    number,
    stored,
    wire,
    write_evaluation,
    write_training,
)
from podium.serve.keys import Key
from podium.testing import Refuse, Say
from podium.types import Failure, Question, Step
from serving import worker, workflow
from test_web_payloads import PAYLOADS

pytestmark = needs_chromium
PLAN = workflow(
    Step(0, "Count them."),
    Step(1, "Count them in another way."),
    Step(0, "Write the answer.", (0, 1)),
)
WORDS = "# So many\n\nThere are **25**, since $\\pi(100) = 25$.\n\n```python\nprint(25)\n```\n"


@pytest.fixture
async def look():
    async with browsing() as at:
        yield at


async def test_a_workflow_is_drawn_when_planned_and_fills_while_it_is_performed(serve, look):
    gate = asyncio.Event()
    server = await serve(
        {
            "plan": ["no workflow at all", PLAN],
            "a": ["first count: 25", Say(WORDS, gate=gate, pieces=20)],
            "b": [Refuse(500, "overloaded"), "second count: 25"],
        },
        worker=[lambda up: worker("a", up), lambda up: worker("b", up, retries=2)],
    )
    sight = await look(server.url)
    await sight.open()
    await sight.ask("How many primes are there below 100?")
    node = sight.page.locator(".node")
    await sight.page.locator(".node.working", has_text="Write the answer.").wait_for()
    assert await node.count() == 3 and await sight.page.locator("path.edge").count() == 2
    assert await sight.page.locator(".node.done").count() == 2
    await sight.see("draft rejected once")
    await sight.see("again", ".node .again")
    await sight.picture("ask-live")
    gate.set()
    await sight.page.locator(".answer strong", has_text="25").wait_for()
    await sight.page.locator(".answer math").wait_for()
    await sight.page.locator(".answer pre code").wait_for()
    await sight.page.locator(".pill", has_text="Answered").wait_for()
    await sight.picture("ask-answered")
    assert sight.complaints == []


async def test_stop_cancels_upstream_and_shows_what_was_reached(serve, look):
    gate = asyncio.Event()
    server = await serve({"plan": [PLAN], "a": ["a", Say("x", gate=gate)], "b": ["b"]})
    sight = await look(server.url)
    await sight.open()
    await sight.ask("How many?")
    await server.upstream.arrived(4)
    await sight.page.get_by_role("button", name="Stop").click()
    await sight.page.locator(".run-head .pill", has_text=re.compile("Stopped|Cut short")).wait_for()
    await server.upstream.quiet()
    assert server.upstream.aborted == 1
    await sight.picture("ask-stopped")


async def test_a_follow_up_goes_on_with_the_conversation(serve, look):
    server = await serve({"a": ["Blue.", "Quite sure."]})
    sight = await look(server.url)
    await sight.open()
    await sight.page.get_by_label("Model or strategy").select_option("a")
    await sight.ask("What colour is the sky?")
    await sight.see("Blue.", ".answer")
    await sight.page.locator("button.main:enabled").wait_for()
    await sight.ask("Are you sure?")
    await sight.see("Quite sure.", ".answer")
    said = [m["content"] for m in server.upstream.requests[-1].body["messages"]]
    assert said == ["What colour is the sky?", "Blue.", "Are you sure?"]


async def test_a_dropped_connection_goes_on_where_it_was(serve, look):
    gate = asyncio.Event()
    server = await serve({"plan": [PLAN], "a": ["one", Say("the end", gate=gate)], "b": ["two"]})
    async with wire(server.url) as (url, cut):
        sight = await look(url)
        await sight.open()
        await sight.ask("How many?")
        await sight.page.locator(".node.working", has_text="Write the answer.").wait_for()
        cut()
        gate.set()
        await sight.see("the end", ".answer")
        await sight.page.locator(".pill", has_text="Answered").wait_for()
        assert await sight.page.locator(".node").count() == 3
        assert len(server.upstream.requests) == 4
        await sight.page.close()


async def test_limits_and_denied_workers_reach_the_run(serve, look):
    server = await serve({"plan": [workflow(Step(0, "Answer."))], "b": ["from b"]})
    sight = await look(server.url)
    await sight.open("pool")
    await sight.page.get_by_role("switch").first.uncheck()
    await sight.see("No later request is given it")
    await sight.picture("pool")
    other = await look(server.url)
    await other.open("pool")
    await other.see("Denied just now")
    await sight.open("ask")
    await sight.page.get_by_role("button", name="Limits and workers").click()
    await sight.see("Denied to everybody: a.")
    await sight.page.get_by_label("At most, dollars").fill("0.25")
    await sight.page.get_by_label("Steps").fill("1")
    await sight.picture("ask-options")
    await sight.ask("Who are you?")
    await sight.see("from b", ".answer")
    (row,) = await server.desk.podium.store.runs()
    run = await server.desk.podium.run(row.id)
    assert run.limits.dollars == 0.25 and run.limits.steps == 1 and run.workers == ("b",)
    await other.page.get_by_role("switch").first.check()
    await other.see("It is asked again.")
    assert await server.desk.denials.known() == frozenset()


async def test_runs_are_searched_opened_compared_and_shared(serve, look, tmp_path):
    server = await serve(["ok"])
    runs = [
        stored(number(i), f"Answer **{i}**", steps=3, question=f"Riddle {i}") for i in range(60)
    ]
    await keep(server, *runs)
    sight = await look(server.url)
    await sight.open("runs")
    rows = sight.page.locator(".runs tbody tr")
    await rows.nth(49).wait_for()
    await sight.page.get_by_role("button", name="More").click()
    await rows.nth(59).wait_for()
    await sight.page.get_by_label("Search the questions").fill("riddle 4")
    await rows.nth(11).wait_for(state="detached")
    await rows.nth(10).wait_for()
    await sight.picture("runs")
    for i in range(2):
        await rows.nth(i).get_by_role("checkbox").check()
    await sight.page.get_by_role("button", name="Compare two").click()
    await sight.see("Two runs side by side")
    assert await sight.page.locator(".pair .node").count() == 6
    await sight.picture("compare")
    await sight.open(f"runs/{number(4)}")
    await sight.see("Riddle 4", ".asked")
    await sight.page.get_by_role("tab", name="Timeline").click()
    assert await sight.page.locator(".lane .span").count() == 4
    await sight.picture("timeline")
    await sight.page.get_by_role("tab", name="Graph").click()
    await sight.page.locator(".node").nth(1).press("Enter")
    await sight.see("The exact messages it was sent", "dialog")
    await sight.picture("step")
    await sight.page.keyboard.press("Escape")
    async with sight.page.expect_download() as download:
        await sight.page.get_by_role("button", name="Share as a file").click()
    await (await download.value).save_as(tmp_path / "run.html")
    alone = await look("file:")
    await alone.page.goto(f"file://{tmp_path}/run.html")
    assert await alone.page.locator(".node").count() == 3
    await alone.page.locator("details", has_text="step 2").click()
    await alone.see("The exact messages it was sent")
    await alone.picture("shared")
    assert sight.complaints == [] and alone.complaints == [] and alone.strangers == []


async def test_with_keys_the_page_asks_for_one_and_shows_its_runs_alone(serve, look):
    server = await serve({"a": ["mine"]})
    keys = server.desk.keys
    one, two = await keys.new(Key("one", "one", daily=1.0)), await keys.new(Key("two", "two"))
    sight = await look(server.url)
    await sight.open()
    await sight.page.get_by_role("dialog").get_by_label("Key").fill("pk-wrong")
    await sight.page.keyboard.press("Enter")
    await sight.see("not known here", "dialog")
    await sight.page.get_by_role("dialog").get_by_label("Key").fill(one)
    await sight.page.keyboard.press("Enter")
    await sight.page.get_by_label("Model or strategy").select_option("a")
    await sight.ask("Whose is it?")
    await sight.see("mine", ".answer")
    await sight.open("spend")
    await sight.see("Key “one” today")
    await sight.picture("spend-key")
    kept = await sight.page.evaluate(
        "[location.href, JSON.stringify(localStorage), document.cookie]"
    )
    assert not any(one in text for text in kept)
    other = await look(server.url)
    await other.open("runs")
    await other.page.get_by_role("dialog").get_by_label("Key").fill(two)
    await other.page.keyboard.press("Enter")
    await other.see("No run is like that.")


async def test_an_operator_looks_at_the_runs_of_a_key_and_at_a_kind_of_failure(serve, look):
    server = await serve(["ok"])
    boss = await server.desk.keys.new(Key("k1", "boss"))
    await server.desk.keys.new(Key("k2", "guest", daily=1.0))
    server.desk._operators = frozenset({"boss"})
    broke = Failure("LimitError", "the dollars are spent", "limits")
    for i, failure in enumerate((None, broke)):
        run = replace(stored(number(i), "so", question=f"Riddle {i}"), failure=failure)
        await server.desk.podium.store.end_run(run, owner="k2", config="")
    sight = await look(server.url)
    await sight.open("runs")
    await sight.page.get_by_role("dialog").get_by_label("Key").fill(boss)
    await sight.page.keyboard.press("Enter")
    await sight.see("No run is like that.")
    await sight.page.get_by_label(re.compile("^Key")).select_option("guest")
    rows = sight.page.locator(".runs tbody tr")
    await rows.nth(1).wait_for()
    await sight.page.get_by_label("Failure").select_option("LimitError")
    await rows.nth(1).wait_for(state="detached")
    await sight.see("Riddle 1", ".runs")
    assert await sight.page.evaluate("location.hash") == "#/runs?failure=LimitError&key=k2"
    await sight.picture("runs-operator")
    await rows.first.get_by_role("link").click()
    await sight.see("the dollars are spent")
    await sight.open("spend")
    await sight.see("$0 of $1.00 today")


async def test_no_payload_runs_is_fetched_or_leaves_a_handle(serve, look, tmp_path):
    assert len(PAYLOADS) >= 100
    server = await serve({"a": [Say("\n\n".join(PAYLOADS), pieces=50)]})
    runs = [stored(number(i), text, question=text) for i, text in enumerate(PAYLOADS)]
    await keep(server, *runs)
    sight = await look(server.url)
    for i in range(len(PAYLOADS)):
        await sight.open(f"runs/{number(i)}")
        await sight.page.locator(f".mono:text-is('{number(i)}')").wait_for()
        await sight.page.locator(".answer .words:not(:empty)").wait_for(state="attached")
        assert await sight.page.evaluate(PROVOKE) == [], PAYLOADS[i]
    await sight.open("runs")
    await sight.page.locator(".runs tbody tr").first.wait_for()
    assert await sight.page.evaluate(PROVOKE) == []
    await sight.open("ask")
    await sight.page.get_by_label("Model or strategy").select_option("a")
    await sight.ask("\n".join(PAYLOADS))
    await sight.page.locator(".pill", has_text="Answered").wait_for()
    await sight.page.locator(".node").click()
    await sight.see("The exact messages it was sent", "dialog")
    assert await sight.page.evaluate(PROVOKE) == []
    await sight.picture("payloads")
    await sight.page.keyboard.press("Escape")
    await sight.page.get_by_role("link", name="Open run").click()
    async with sight.page.expect_download() as download:
        await sight.page.get_by_role("button", name="Share as a file").click()
    await (await download.value).save_as(tmp_path / "run.html")
    alone = await look("file:")
    await alone.page.goto(f"file://{tmp_path}/run.html")
    assert await alone.page.evaluate(PROVOKE) == []
    assert sight.strangers == [] and alone.strangers == []
    assert sight.complaints == []


PROVOKE = """async () => {
  const found = [];
  for (const el of document.querySelectorAll("main *, dialog *")) {
    for (const { name } of el.attributes) if (name.startsWith("on")) found.push(el.outerHTML);
    const named = ["href", "xlink:href", "action"].map((name) => el.getAttribute(name));
    const href = named.find((value) => value !== null) ?? null;
    if (href !== null && !/^(https?:|mailto:|#)/i.test(href)) found.push(el.outerHTML);
  }
  const BARRED = "script iframe object embed img svg style form input video audio base meta link";
  const EVENTS = ["mouseover", "click", "focus", "animationstart", "toggle"];
  for (const el of document.querySelectorAll(".words *")) {
    if (BARRED.split(" ").includes(el.tagName.toLowerCase())) found.push(el.outerHTML);
    if (el.tagName === "A") el.addEventListener("click", (event) => event.preventDefault());
    for (const kind of EVENTS) el.dispatchEvent(new Event(kind, { bubbles: true }));
  }
  await new Promise((resolve) => setTimeout(resolve, 5));
  return [...found, ...(window.hits ?? []).map(() => "a script ran")];
}"""


async def test_two_hundred_steps_twenty_rounds_and_a_megabyte_stay_usable(serve, look):
    server = await serve(["ok"])
    many = stored(number(0), "a step's words", steps=32, rounds=7)
    deep = stored(number(1), "a step's words", steps=3, rounds=20)
    huge = stored(number(2), "All work and no play. " * 50_000)
    await keep(server, many, deep, replace(huge, question=Question("long " * 4000)))
    sight = await look(server.url)
    await sight.open(f"runs/{number(0)}")
    await sight.page.locator(".node").nth(223).wait_for()
    await sight.page.locator(".node").nth(40).click()
    await sight.see("The exact messages it was sent", "dialog")
    await sight.page.keyboard.press("Escape")
    await sight.picture("many-steps")
    await sight.open(f"runs/{number(1)}")
    await sight.page.locator(".round").nth(19).wait_for()
    await sight.open(f"runs/{number(2)}")
    await sight.page.get_by_role("button", name="Show all of it").click()
    assert await sight.page.locator(".answer pre").evaluate("el => el.textContent.length") > 1e6
    assert sight.complaints == []


async def test_twenty_rounds_and_a_megabyte_stay_usable_while_they_arrive(serve, look):
    gate = asyncio.Event()
    words = "All work and no play. " * 50_000
    server = await serve(
        {
            "plan": [workflow(Step(0, "Go on."))] * 20,
            "a": [*["so far"] * 19, Say(words, pieces=2_000, gate=gate)],
        },
        limits={"rounds": 20},
    )
    async with wire(server.url) as (url, cut):
        sight = await look(url)
        await sight.open()
        await sight.ask("Go on and on.")
        await sight.page.locator(".round").nth(19).locator(".node.working").wait_for()
        gate.set()
        await sight.page.locator(".answer pre").wait_for()
        cut()
        await sight.page.locator(".round").nth(18).locator(".node").click()
        await sight.see("Go on.", "dialog")
        await sight.page.keyboard.press("Escape")
        await sight.page.locator(".run-head .pill", has_text="Answered").wait_for()
        await sight.page.get_by_role("button", name="Show all of it").click()
        shown = sight.page.locator(".answer pre")
        assert await shown.evaluate("el => el.textContent.length") == len(words)
        assert await sight.page.locator(".round").count() == 20
        assert len(server.upstream.requests) == 40
        await sight.page.close()


async def test_axe_finds_nothing_serious_on_any_page_in_light_and_dark(
    serve, look, tmp_path, monkeypatch
):
    monkeypatch.setenv("PODIUM_RUNS", str(tmp_path / "shelf"))
    write_training(tmp_path / "shelf" / "tiny", range(1, 7))
    await write_evaluation(tmp_path / "shelf" / "sums")
    server = await serve({"a": ["fine"]})
    await keep(server, *(stored(number(i), WORDS, steps=3, rounds=2) for i in range(3)))
    axe = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    places = {
        "ask": "textarea", "runs": ".runs tbody tr", f"runs/{number(0)}": ".node",
        f"compare/{number(0)}/{number(1)}": ".pair .node", "pool": ".worker",
        "evaluations": "circle.mark", "evaluations/sums": ".stack",
        "evaluations/sums?a=podium&b=single%3Ab": ".asked-of tbody tr",
        "training": "a.worker", "training/tiny": ".draft", "spend": ".meter",
    }  # fmt: skip
    for scheme in ("light", "dark"):
        sight = await look(server.url, color_scheme=scheme)
        for place, sign in places.items():
            await sight.open(place)
            await sight.page.locator(sign).first.wait_for()
            await sight.page.evaluate(axe)
            found = await sight.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            bad = [
                (v["id"], v["nodes"][0]["html"], v["nodes"][0]["failureSummary"])
                for v in found["violations"]
                if v["impact"] in ("serious", "critical")
            ]
            assert bad == [], f"{place} in {scheme}"


async def test_a_phone_shows_every_page_without_scrolling_sideways(
    serve, look, tmp_path, monkeypatch
):
    monkeypatch.setenv("PODIUM_RUNS", str(tmp_path / "shelf"))
    write_training(tmp_path / "shelf" / "tiny", range(1, 7))
    await write_evaluation(tmp_path / "shelf" / "sums")
    server = await serve({"a": ["fine"]})
    await keep(server, stored(number(0), WORDS, steps=5))
    sight = await look(server.url)
    await sight.page.set_viewport_size({"width": 390, "height": 844})
    for place, sign in {
        "ask": "textarea", "runs": ".runs tbody tr", f"runs/{number(0)}": ".node",
        "pool": ".worker", "spend": ".plot canvas", "training/tiny": ".draft",
        "evaluations/sums": ".stack", "evaluations/sums?a=podium": ".asked-of tbody tr",
    }.items():  # fmt: skip
        await sight.open(place)
        await sight.page.locator(sign).first.wait_for()
        wide = await sight.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, place
        await sight.picture(f"phone-{place.partition('/')[0]}{'-open' if '/' in place else ''}")


async def test_the_page_is_used_with_the_keyboard_alone(serve, look):
    server = await serve({"a": ["fine"]})
    await keep(server, stored(number(0), WORDS, steps=2))
    sight = await look(server.url)
    await sight.open(f"runs/{number(0)}")
    await sight.page.locator(".node").first.wait_for()
    for _ in range(40):
        await sight.page.keyboard.press("Tab")
        if await sight.page.evaluate("document.activeElement.classList.contains('node')"):
            break
    await sight.page.keyboard.press("Enter")
    await sight.see("The exact messages it was sent", "dialog")
    await sight.page.keyboard.press("Escape")
    assert await sight.page.evaluate("document.activeElement.classList.contains('node')")
