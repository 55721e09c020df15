"""Teach a small model one skill: supervised fine-tuning of a LoRA adapter, on the answer alone.

A specialist reads what the executor sends in compact form: its subtask, below the earlier answers
that it may see. It meets many wordings, answers that its subtask does not speak of, and no other
skill, so it does the same thing to whatever it is given. All prompts begin alike (the system
message of the chat template), which is computed once a batch and shared. Examples follow from seed
and step, so a run that was killed continues on the same curve from its last checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, GgufConfig

from podium.eval.tiny.skills import Skill
from podium.train.tiny.recipe import Lesson
from podium.train.tiny.subtasks import Example, example
from podium.workers.weights import quick_dtype

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Base:
    """The model that all specialists share, with its tokenizer."""

    model: Any
    tokenizer: Any

    @staticmethod
    def load(gguf: Path) -> Base:
        """Read the weights out of a GGUF file, as llama.cpp will see them."""
        at = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
        model = AutoModelForCausalLM.from_pretrained(
            **at, dtype=quick_dtype(), quantization_config=GgufConfig(dequantize=True)
        )
        return Base(model, AutoTokenizer.from_pretrained(**at))

    def encode(self, example: Example) -> tuple[list[int], list[int]]:
        """The tokens of the prompt in its chat template, and those of the answer with its end."""
        messages = [{"role": "user", "content": example.prompt}]
        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        answer = self.tokenizer(example.answer + "<|im_end|>")["input_ids"]
        return self.tokenizer(text)["input_ids"], answer


@dataclass(frozen=True, slots=True)
class Batch:
    prefix: Tensor
    """Tokens that all rows begin with."""
    rest: Tensor
    targets: Tensor
    """The answer's tokens, each where it is to be predicted; -100 elsewhere."""

    @staticmethod
    def of(rows: Sequence[tuple[list[int], list[int]]]) -> Batch:
        shared = _shared([prompt for prompt, _ in rows])
        length = max(len(p) + len(a) for p, a in rows) - shared
        rest = torch.zeros((len(rows), length), dtype=torch.long)
        targets = torch.full((len(rows), length), -100)
        for i, (prompt, answer) in enumerate(rows):
            tokens = [*prompt[shared:], *answer]
            start = len(prompt) - shared - 1
            rest[i, : len(tokens)] = torch.tensor(tokens)
            targets[i, start : start + len(answer)] = torch.tensor(answer)
        return Batch(torch.tensor([rows[0][0][:shared]]), rest, targets)


def _shared(rows: Sequence[list[int]]) -> int:
    """How many tokens all rows begin with; at least one token of each is left over."""
    shortest = min(map(len, rows)) - 1
    first = rows[0]
    return next((i for i in range(shortest) if any(r[i] != first[i] for r in rows)), shortest)


def logits(model: PeftModel, batch: Batch) -> Tensor:
    """The logits at the answers' tokens only: the vocabulary is a fifth of such a model's work."""
    inner = cast(Any, model.base_model).model
    cache = DynamicCache()
    inner.model(batch.prefix, past_key_values=cache, use_cache=True)
    cache.batch_repeat_interleave(len(batch.rest))
    hidden = inner.model(batch.rest, past_key_values=cache, use_cache=True).last_hidden_state
    return cast(Tensor, inner.lm_head(hidden[batch.targets != -100]).float())


class Specialist:
    """An adapter in training."""

    def __init__(self, skill: Skill, lesson: Lesson, base: Base) -> None:
        torch.manual_seed(lesson.seed)
        self.skill, self.lesson, self.base = skill, lesson, base
        config = LoraConfig(
            r=lesson.rank,
            lora_alpha=lesson.alpha,
            target_modules=list(lesson.modules),
            task_type="CAUSAL_LM",
        )
        self.model = cast(PeftModel, get_peft_model(base.model, config))
        self.weights = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.weights, lr=lesson.learning_rate, weight_decay=0.0)

    def batch(self, step: int) -> Batch:
        rng = Random(f"{self.lesson.seed} {self.skill.name} {step}")
        examples = [example(self.skill, rng, "train") for _ in range(self.lesson.batch)]
        return Batch.of([self.base.encode(e) for e in examples])

    def learn(self, step: int) -> float:
        """One step; returns its loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.lesson.learning_rate * self._schedule(step)
        batch = self.batch(step)
        wanted = batch.targets[batch.targets != -100]
        loss = torch.nn.functional.cross_entropy(logits(self.model, batch), wanted)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.optimizer.step()
        return float(loss.detach())

    def _schedule(self, step: int) -> float:
        left = (self.lesson.steps - step) / (self.lesson.steps - self.lesson.warmup)
        return min((step + 1) / self.lesson.warmup, left)

    def accuracy(self, examples: Sequence[Example]) -> float:
        """How many it answers right when it writes greedily.

        If every token of the right answer is the likeliest one after those before it, then it is
        what greedy decoding writes, so nothing needs to be decoded.
        """
        with torch.no_grad():
            parts = [examples[i : i + 32] for i in range(0, len(examples), 32)]
            return sum(self._right(part) for part in parts) / len(examples)

    def _right(self, examples: Sequence[Example]) -> int:
        batch = Batch.of([self.base.encode(e) for e in examples])
        answers = batch.targets != -100
        agrees = torch.ones_like(answers)
        agrees[answers] = logits(self.model, batch).argmax(-1) == batch.targets[answers]
        return int(agrees.all(dim=1).sum())

    def save(self, file: Path, step: int) -> None:
        state = {
            "step": step,
            "weights": [w.detach() for w in self.weights],
            "optimizer": self.optimizer.state_dict(),
        }
        partial = file.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(file)

    def resume(self, file: Path) -> int:
        """Take up a checkpoint if there is one; returns the step to begin with."""
        if not file.exists():
            return 0
        state = torch.load(file, weights_only=True)
        for weight, saved in zip(self.weights, state["weights"], strict=True):
            weight.data.copy_(saved)
        self.optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])


def teach(skill: Skill, lesson: Lesson, *, gguf: Path, into: Path) -> Path:
    """Train a specialist and return the directory of its adapter, in peft's format."""
    directory = into / skill.name
    directory.mkdir(parents=True, exist_ok=True)
    specialist = Specialist(skill, lesson, Base.load(gguf))
    checkpoint = directory / "checkpoint.pt"
    dev = [example(skill, Random(f"dev {i}"), "dev") for i in range(128)]
    for step in range(specialist.resume(checkpoint), lesson.steps):
        loss = specialist.learn(step)
        if (step + 1) % lesson.every == 0 or step + 1 == lesson.steps:
            specialist.save(checkpoint, step + 1)
            right = specialist.accuracy(dev)
            log.info("%s step %d loss %.4f dev %.3f", skill.name, step + 1, loss, right)
    specialist.model.save_pretrained(str(directory))
    return directory
