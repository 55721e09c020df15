import asyncio

import pytest

from podium.errors import LimitError
from podium.ledger import Ledger
from podium.types import Limits, Usage


async def test_a_call_that_cannot_fit_is_refused_before_it_is_made():
    ledger = Ledger(Limits(dollars=0.10))
    with pytest.raises(LimitError, match=r"\$0\.2 may pass the limit of \$0\.1"):
        await ledger.reserve(10, 0.20)
    assert (ledger.calls, ledger.dollars) == (0, 0.0)


async def test_settling_books_what_the_call_really_used():
    ledger = Ledger(Limits(dollars=1.0, tokens=1000))
    reservation = await ledger.reserve(500, 0.5)
    assert (ledger.held_dollars, ledger.held_tokens) == (0.5, 500)
    reservation.settle(Usage(10, 20), 0.01)
    assert (ledger.dollars, ledger.tokens, ledger.held_dollars, ledger.held_tokens) == (
        0.01,
        30,
        0,
        0,
    )


async def test_settling_twice_books_once():
    ledger = Ledger()
    reservation = await ledger.reserve(5, 0.5)
    reservation.settle(Usage(1, 1), 0.1)
    reservation.settle(Usage(1, 1), 0.1)
    assert ledger.dollars == 0.1


async def test_an_unknown_cost_is_booked_as_the_worst_case():
    ledger = Ledger()
    (await ledger.reserve(5, 0.5)).settle(Usage(), None)
    assert ledger.dollars == 0.5


async def test_a_call_waits_while_others_hold_the_money_and_goes_on_when_they_settle():
    ledger = Ledger(Limits(dollars=1.0))
    first = await ledger.reserve(0, 0.8)
    second = asyncio.create_task(ledger.reserve(0, 0.8))
    await asyncio.sleep(0)
    assert not second.done()
    first.settle(Usage(), 0.1)
    (await second).settle(Usage(), 0.1)
    assert ledger.dollars == pytest.approx(0.2)


async def test_a_call_that_waited_in_vain_is_refused():
    ledger = Ledger(Limits(dollars=1.0))
    first = await ledger.reserve(0, 0.8)
    second = asyncio.create_task(ledger.reserve(0, 0.8))
    await asyncio.sleep(0)
    first.settle(Usage(), 0.8)
    with pytest.raises(LimitError):
        await second


async def test_a_cancelled_waiter_does_not_block_the_next():
    ledger = Ledger(Limits(dollars=1.0))
    first = await ledger.reserve(0, 0.9)
    waiting = [asyncio.create_task(ledger.reserve(0, 0.9)) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    first.settle(Usage(), 0.0)
    (await waiting[1]).release()


async def test_runs_of_one_process_cannot_pass_its_limit_together():
    process = Ledger(Limits(dollars=1.0))
    spent = 0.0

    async def run() -> None:
        nonlocal spent
        ledger = Ledger(Limits(), process)
        try:
            reservation = await ledger.reserve(0, 0.09)
        except LimitError:
            return
        await asyncio.sleep(0)
        spent += 0.05
        reservation.settle(Usage(), 0.05)

    await asyncio.gather(*(run() for _ in range(200)))
    assert 0.9 < spent <= 1.0
    assert process.dollars == pytest.approx(spent)


async def test_a_nested_run_draws_on_the_outer_account():
    outer = Ledger(Limits(dollars=1.0, depth=1))
    inner = outer.nested()
    (await inner.reserve(0, 0.4)).settle(Usage(1, 1), 0.4)
    assert outer.dollars == 0.4
    with pytest.raises(LimitError, match="1 deep"):
        inner.nested()


async def test_an_unknown_price_is_refused_under_a_dollar_limit_and_allowed_without():
    with pytest.raises(LimitError, match="price is unknown"):
        await Ledger(Limits(), Ledger(Limits(dollars=1.0))).reserve(5, None)
    assert (await Ledger().reserve(5, None)).open


async def test_the_number_of_calls_is_kept_exactly():
    ledger = Ledger(Limits(calls=2))
    for _ in range(2):
        (await ledger.reserve(0, 0.0)).release()
    with pytest.raises(LimitError, match="2 calls"):
        await ledger.reserve(0, 0.0)


async def test_a_replayed_call_counts_for_the_run_and_not_for_the_process():
    process = Ledger(Limits(dollars=1.0))
    run = Ledger(Limits(dollars=0.5), process)
    run.book_replayed(Usage(3, 4), 0.4)
    assert (run.dollars, run.tokens, process.dollars) == (0.4, 7, 0.0)
    with pytest.raises(LimitError):
        run.book_replayed(Usage(3, 4), 0.4)
