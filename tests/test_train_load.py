"""What was trained writes the same drafts by whichever road it is loaded."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the `train` extra is not installed")
pytest.importorskip("trl", reason="the `train` extra is not installed")

from podium.checkpoints import load_conductor  # noqa: E402
from podium.cli import cli  # noqa: E402
from podium.errors import ConfigError  # noqa: E402
from podium.eval.results import Results  # noqa: E402
from podium.eval.world import World  # noqa: E402
from podium.ledger import Ledger  # noqa: E402
from podium.models import ADAPTERS, SMOLLM2, find_model  # noqa: E402
from podium.prompts import planner_messages  # noqa: E402
from podium.records import load_run  # noqa: E402
from podium.testing import ScriptedWorker  # noqa: E402
from podium.types import Limits, Message, Question, Request, Sampling  # noqa: E402
from podium.workers import Call, Pool  # noqa: E402
from podium.workers.transformers import TransformersWorker  # noqa: E402
from podium.workers.weights import base_directory, quick_dtype, unpack, weights_digest  # noqa: E402
from toy_training import recipe, save_base, save_world, trained  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")

TEAM = ("strong", "vote")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("load")


@pytest.fixture(scope="module")
def world(folder: Path) -> Path:
    return save_world(folder)


@pytest.fixture(scope="module")
def checkpoint(folder: Path, world: Path) -> Path:
    """A tiny model that knows what to write: its pool has one model, so little is in doubt."""
    text = recipe(world, save_base(folder), drafts="1280", pool='only = ["strong"]', grpo="steps=1")
    text = text.replace("[pool]", "contested = false\n[pool]")
    return trained(folder / "run", text) / "checkpoint"


def asked(world: Path) -> list[str]:
    return [item.question for item in World.load(world).split("test")]


def by_transformers(checkpoint: Path, questions: list[str]) -> list[str]:
    """As anybody would who knows nothing of Podium but the prompt."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from podium.checkpoints import find_checkpoint
    from podium.prompts import Style

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=quick_dtype())
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    manner = find_checkpoint(str(checkpoint)).manner
    pool = Pool.of(*(ScriptedWorker([], name=n) for n in manner.workers))
    drafts = []
    for question in questions:
        style = Style(**manner.style.model_dump())
        messages = planner_messages(Question(question), pool, style, steps=manner.steps)
        talk = [{"role": m.role, "content": m.content} for m in messages]
        prompt = tokenizer.apply_chat_template(
            talk, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        written = model.generate(**prompt, do_sample=False, max_new_tokens=manner.max_tokens)
        own = written[0, prompt["input_ids"].size(1) :]
        drafts.append(str(tokenizer.decode(own, skip_special_tokens=True)))
    return drafts


async def by_load_conductor(checkpoint: Path, questions: list[str]) -> list[str]:
    pool = Pool.of(*(ScriptedWorker([], name=n) for n in TEAM))
    conductor, limits = load_conductor(str(checkpoint), pool, Limits())
    drafts = await asyncio.gather(
        *(conductor.planner.draft(Question(q), pool, Call(Ledger(limits))) for q in questions)
    )
    return [draft.text for draft in drafts]


async def drafts_in(results: Path) -> dict[str, str]:
    kept = await Results.read(results)
    try:
        found = {}
        for sample in await kept.samples("test"):
            record = await kept.store.record(sample.run)
            assert record is not None
            run = load_run(record)
            found[run.question.text] = run.rounds[0].drafts[-1].text
        return found
    finally:
        await kept.close()


def test_a_checkpoint_drafts_alike_in_transformers_in_podium_and_in_its_evaluation(
    folder: Path, world: Path, checkpoint: Path
):
    questions = asked(world)
    plain = by_transformers(checkpoint, questions)
    assert any("model_id = [0]" in draft for draft in plain)
    assert asyncio.run(by_load_conductor(checkpoint, questions)) == plain
    out = folder / "results"
    flags = ["--world", world, "--strategy", f"conductor:{checkpoint}", "--out", out, "--yes"]
    cli.main(["eval", *map(str, flags)], standalone_mode=False)
    evaluated = asyncio.run(drafts_in(out))
    assert [evaluated[q] for q in questions] == plain


# An adapter, on the embedded model


@pytest.fixture(scope="module")
def embedded() -> Path:
    try:
        return find_model(SMOLLM2.name)
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def adapter(folder: Path, embedded: Path) -> Path:
    """A specialist that ships as GGUF, turned back into what peft keeps: it is sure of itself."""
    there = folder / "adapter"
    there.mkdir()
    save_as_peft(ADAPTERS / "reverse.gguf", embedded, there)
    from transformers import AutoTokenizer

    base = base_directory(SMOLLM2.name)
    AutoTokenizer.from_pretrained(base).save_pretrained(there)
    manner = {"steps": 5, "base": SMOLLM2.name, "base_digest": weights_digest(Path(base))}
    (there / "conductor.json").write_text(json.dumps(manner))
    return there


def test_whoever_unpacks_a_base_second_leaves_that_of_the_first_and_no_rest(
    embedded: Path, folder: Path
) -> None:
    directory = folder / "unpacked"
    for _ in range(2):
        unpack(embedded, directory)
    assert weights_digest(directory) == weights_digest(Path(base_directory(SMOLLM2.name)))
    assert list(folder.glob("*.partial")) == []


def save_as_peft(file: Path, base: Path, there: Path) -> None:
    """The way back from llama.cpp's names and order of rows."""
    import numpy as np
    from gguf import GGUFReader, quants
    from safetensors.numpy import save_file

    from podium.train.gguf_adapter import _NAMES, _Base

    names = {ours: theirs for theirs, ours in _NAMES.items()}
    heads = _Base.read(base).heads
    reader, tensors, modules, rank = GGUFReader(file), {}, set(), 0
    for tensor in reader.tensors:
        _, layer, kind, _, side = tensor.name.split(".")
        matrix = quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if side == "lora_b" and kind in heads:
            rows, columns = matrix.shape
            pairs = matrix.reshape(heads[kind], rows // heads[kind] // 2, 2, columns)
            matrix = pairs.swapaxes(1, 2).reshape(rows, columns)
        if side == "lora_a":
            rank = len(matrix)
        place = f"base_model.model.model.layers.{layer}.{names[kind]}"
        letter = side[-1].upper()
        tensors[f"{place}.lora_{letter}.weight"] = np.ascontiguousarray(matrix)
        modules.add(names[kind].rpartition(".")[2])
    save_file(tensors, there / "adapter_model.safetensors")
    alpha = reader.get_field("adapter.lora.alpha").contents()
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": alpha}
    config |= {"target_modules": sorted(modules), "base_model_name_or_path": SMOLLM2.name}
    (there / "adapter_config.json").write_text(json.dumps(config))


QUESTIONS = [f"Reverse {number}." for number in (4712, 385, 9016)]


async def answers(worker: Any) -> list[str]:
    said = Sampling(max_tokens=16, temperature=0.0)
    requests = [Request((Message("user", q),), sampling=said) for q in QUESTIONS]
    return [(await worker.complete(r, Call(Ledger()))).text for r in requests]


async def test_an_adapter_says_the_same_under_torch_and_under_llama_cpp(
    folder: Path, embedded: Path, adapter: Path
):
    pytest.importorskip("xllamacpp", reason="needs the extra 'local'")
    from podium.train.gguf_adapter import export
    from podium.workers.local import LocalModel, LocalWorker

    exported = export(adapter, embedded, folder / "exported.gguf")
    model = LocalModel(embedded, context=512)
    here = LocalWorker("here", model, exported)
    bare = LocalWorker("bare", model)
    try:
        there = await answers(TransformersWorker("there", adapter))
        assert await answers(here) == there
        assert await answers(bare) != there
    finally:
        await model.close()
    assert there[0] == "2174"


async def test_an_adapter_of_other_weights_is_refused(folder: Path, adapter: Path):
    stranger = folder / "stranger"
    shutil.copytree(adapter, stranger)
    manner = json.loads((stranger / "conductor.json").read_text()) | {"base_digest": "0" * 16}
    (stranger / "conductor.json").write_text(json.dumps(manner))
    with pytest.raises(ConfigError, match="adapter of another model"):
        await answers(TransformersWorker("stranger", stranger))


@pytest.mark.parametrize(
    ("instructions", "dtype"),
    [({"avx512_bf16": True}, torch.bfloat16), ({"avx512_f": True}, torch.float32)],
)
def test_weights_are_computed_in_what_the_processor_has_instructions_for(
    monkeypatch: pytest.MonkeyPatch, instructions: dict[str, bool], dtype: Any
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: instructions)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert quick_dtype() is dtype
