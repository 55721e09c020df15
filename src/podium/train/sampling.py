"""Write with a Hugging Face model in this process: many drafts at once, shared prompts read once.

Drafts resemble each other: they open alike, and once the first line says who works, the rest
hardly ever surprises. A `Habit` remembers how drafts opened and ended, and what it expects is
checked in one pass instead of being written token by token. Each expected token is accepted with
exactly the probability that the model gives it, and replaced by another one of the model's
otherwise, so what is written has the model's own distribution (speculative sampling).

The trainer, the evaluation of a checkpoint and the worker that serves one all sample here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

Tokens = list[int]

TOGETHER = 32
"""Rows whose expected ends are checked in one pass: each needs logits at all of its tokens."""


COMMON = 0.9
"""Share of drafts that must agree on a token for it to be expected of the next."""


@dataclass(frozen=True, slots=True)
class Sampler:
    temperature: float
    """0 takes the likeliest token."""
    max_tokens: int
    ends: frozenset[int]
    pad: int
    newline: int = -1
    """The token that ends a line."""

    @staticmethod
    def of(tokenizer: Any, *, temperature: float, max_tokens: int) -> Sampler:
        newline = tokenizer("\n", add_special_tokens=False)["input_ids"][-1]
        ends = frozenset({tokenizer.eos_token_id})
        return Sampler(temperature, max_tokens, ends, tokenizer.pad_token_id, newline)

    def scores(self, logits: Tensor) -> Tensor:
        return (logits.float() / (self.temperature or 1.0)).log_softmax(-1)

    def sample(self, scores: Tensor) -> Tensor:
        """One token for each row of log-probabilities."""
        if not self.temperature:
            return scores.argmax(-1, keepdim=True)
        below = scores.exp().cumsum(-1)
        # The sum may miss 1 by a rounding error, which must not let a last token slip in.
        point = torch.rand(len(scores), 1) * below[:, -1:]
        return torch.searchsorted(below, point).clamp(max=scores.size(-1) - 1)

    def accepts(self, scores: Tensor, expected: Tensor) -> Tensor:
        """Whether each expected token is taken: as often as the model would have written it."""
        if not self.temperature:
            return scores.argmax(-1) == expected
        likely = scores.gather(-1, expected[..., None])[..., 0].exp()
        return torch.rand(expected.shape) < likely


@dataclass(slots=True)
class Written:
    """A draft in tokens, up to and with the one that ends it, and how likely each of them was."""

    tokens: Tokens = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def add(self, token: int, logprob: float) -> None:
        self.tokens.append(token)
        self.logprobs.append(logprob)


class Habit:
    """How drafts have opened so far, and how they ended after a first line of each length."""

    def __init__(self) -> None:
        self.opening: Tokens = []
        self._ends: dict[int, Tokens] = {}

    def end(self, head: Tokens) -> Tokens:
        return self._ends.get(len(head), [])

    def learn(self, drafts: Sequence[Tokens], how: Sampler) -> None:
        self.opening = _opening(drafts)
        ends: dict[int, Counter[tuple[int, ...]]] = {}
        for draft in drafts:
            if how.newline in draft and draft[-1] in how.ends:
                head = draft.index(how.newline) + 1
                ends.setdefault(head, Counter())[tuple(draft[head:])] += 1
        self._ends |= {n: list(counts.most_common(1)[0][0]) for n, counts in ends.items()}


def _opening(drafts: Sequence[Tokens]) -> Tokens:
    """What nearly all drafts begin with."""
    opening: Tokens = []
    for tokens in zip(*drafts, strict=False):
        token, count = Counter(tokens).most_common(1)[0]
        if count < COMMON * len(drafts):
            break
        opening.append(token)
    return opening


@torch.no_grad()
def generate(
    model: Any, prompts: Sequence[Tokens], how: Sampler, habit: Habit | None = None
) -> list[Written]:
    """Sample under each prompt."""
    habit = habit or Habit()
    work = _Work(model, how, prompts)
    work.check(dict.fromkeys(work.going(), habit.opening))
    work.write(until=how.newline)
    work.check({i: habit.end(work.written[i].tokens) for i in work.going()})
    work.write()
    habit.learn([w.tokens for w in work.written], how)
    return work.written


class _Work:
    """Drafts in the making."""

    def __init__(self, model: Any, how: Sampler, prompts: Sequence[Tokens]) -> None:
        self.model, self.how, self.prompts = model, how, prompts
        self.written = [Written() for _ in prompts]

    def going(self) -> list[int]:
        return [i for i, w in enumerate(self.written) if not self._ended(w)]

    def _ended(self, written: Written) -> bool:
        full = len(written.tokens) >= self.how.max_tokens
        return full or bool(written.tokens and written.tokens[-1] in self.how.ends)

    def _contexts(self, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        whole = [self.prompts[i] + self.written[i].tokens for i in rows]
        width, pad = max(map(len, whole)), self.how.pad
        ids = torch.tensor([[pad] * (width - len(t)) + t for t in whole])
        mask = torch.tensor([[0] * (width - len(t)) + [1] * len(t) for t in whole])
        return ids, mask

    def write(self, *, until: int = -1) -> None:
        """Token by token. Rows that have ended, or reached `until`, leave the batch."""
        rows = self.going()
        if not rows:
            return
        ids, mask = self._contexts(rows)
        cache, last = prefix(self.model, ids[:, :-1], mask[:, :-1]), ids[:, -1:]
        while rows:
            out = self.model(
                input_ids=last, attention_mask=mask, past_key_values=cache, use_cache=True
            )
            scores = self.how.scores(out.logits[:, -1])
            last = self.how.sample(scores)
            chosen = last[:, 0].tolist()
            for row, token, p in zip(rows, chosen, scores.gather(-1, last)[:, 0], strict=True):
                self.written[row].add(token, float(p))
            mask = torch.cat([mask, torch.ones_like(last)], dim=1)
            still = [
                n
                for n, row in enumerate(rows)
                if chosen[n] != until and not self._ended(self.written[row])
            ]
            if len(still) < len(rows):
                rows, kept = [rows[n] for n in still], torch.tensor(still, dtype=torch.long)
                last, mask = last[kept], mask[kept]
                cache.batch_select_indices(kept)

    def check(self, expected: dict[int, Tokens]) -> None:
        """Take of what is expected as much as the model goes along with, and its own word then."""
        room = {
            i: e[: self.how.max_tokens - len(self.written[i].tokens)] for i, e in expected.items()
        }
        rows = sorted((i for i, e in room.items() if e), key=lambda i: len(room[i]))
        for start in range(0, len(rows), TOGETHER):
            some = rows[start : start + TOGETHER]
            self._check(some, [room[i] for i in some])

    def _check(self, rows: Sequence[int], expected: Sequence[Tokens]) -> None:
        ids, mask = self._contexts(rows)
        width = max(map(len, expected))
        more = torch.tensor([e + [self.how.pad] * (width - len(e)) for e in expected])
        out = self.model(
            input_ids=torch.cat([ids[:, -1:], more[:, :-1]], dim=1),
            attention_mask=torch.cat([mask, torch.ones_like(more[:, :-1])], dim=1),
            past_key_values=prefix(self.model, ids[:, :-1], mask[:, :-1]),
            use_cache=True,
        )
        scores = self.how.scores(out.logits)
        taken = self.how.accepts(scores, more)
        likely = scores.gather(-1, more[..., None])[..., 0]
        for n, row in enumerate(rows):
            count = next((t for t in range(len(expected[n])) if not taken[n, t]), None)
            for token, p in zip(expected[n][:count], likely[n].tolist(), strict=False):
                self.written[row].add(token, p)
            if count is not None:
                self._instead(row, scores[n, count], expected[n][count])

    def _instead(self, row: int, scores: Tensor, refused: int) -> None:
        other = scores.clone()
        other[refused] = -torch.inf
        token = int(self.how.sample(other[None])[0, 0])
        self.written[row].add(token, float(scores[token]))


def prefix(model: Any, ids: Tensor, mask: Tensor) -> DynamicCache:
    """The cache of these prompts, each different one computed once."""
    both = torch.stack([ids, mask.to(ids.dtype)], dim=-1)
    unique, inverse = torch.unique(both, dim=0, return_inverse=True)
    cache = DynamicCache()
    model(
        input_ids=unique[..., 0],
        attention_mask=unique[..., 1],
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    cache.batch_select_indices(inverse)
    return cache
