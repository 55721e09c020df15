"""Write with a Hugging Face model in this process: many drafts at once, shared prompts read once.

Drafts resemble each other: they open alike, and once the first line says who works, the rest
hardly ever surprises. A `Habit` remembers how drafts opened and ended; where questions ask for
different things, the drafts under one of them follow the first that is written. What is expected
is checked in one pass instead of being written token by token. Each expected token is accepted with
exactly the probability that the model gives it, and replaced by another one of the model's
otherwise, so what is written has the model's own distribution (speculative sampling).

The trainer, the evaluation of a checkpoint and the worker that serves one all sample here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

Tokens = list[int]

TOGETHER = 32
"""Rows whose expected ends are checked in one pass: each needs logits at all of its tokens."""


COMMON = 0.9
"""Share of drafts that must agree on a token for it to be expected of the next."""

AHEAD = 24
"""Tokens of a leader's draft that those who follow it are checked against at a time."""

ASTRAY = 4
"""Checks in a row at whose first token a row may leave its leader before it goes on alone."""

ROOM = 64
"""Tokens for which room is made at a time."""

EPSILON = 1e-6

USUAL = 0.5
"""Share of drafts with a first line of one length that must end alike for it to be expected."""


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

    def sample(self, scores: Tensor, points: Tensor) -> Tensor:
        """One token for each row of log-probabilities, drawn by a point between 0 and 1."""
        if not self.temperature:
            return scores.argmax(-1, keepdim=True)
        below = scores.exp().cumsum(-1)
        # The sum may miss 1 by a rounding error, which must not let a last token slip in.
        reached = torch.searchsorted(below, points[:, None] * below[:, -1:])
        return reached.clamp(max=scores.size(-1) - 1)

    def accepts(self, scores: Tensor, expected: Tensor, points: Tensor) -> Tensor:
        """Whether each expected token is taken: as often as the model would have written it."""
        if not self.temperature:
            return scores.argmax(-1) == expected
        return points < scores.gather(-1, expected[..., None])[..., 0].exp()


def spread(groups: Sequence[int]) -> Tensor:
    """A random number between 0 and 1 for each row; those of a group lie evenly apart.

    Each is uniform by itself, so a draft has the model's own distribution. But drafts that are
    compared with each other cover more of it than independent ones would.
    """
    order, there = torch.randperm(len(groups)).tolist(), Counter(groups)
    taken: Counter[int] = Counter()
    points = torch.rand(len(groups))
    for row in order:
        group = groups[row]
        points[row] = (points[row] + taken[group]) / there[group]
        taken[group] += 1
    return points


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
        for head, counts in ends.items():
            usual, count = counts.most_common(1)[0]
            self._ends[head] = list(usual) if count >= USUAL * counts.total() else []


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
    model: Any,
    prompts: Sequence[Tokens],
    how: Sampler,
    *,
    given: Sequence[Tokens] | None = None,
    habit: Habit | None = None,
    foresee: Callable[[Tokens], Tokens] | None = None,
) -> list[Written]:
    """Sample under each prompt and what is `given` below it; what rows share is read once.

    Args:
        model: that writes.
        how: it is sampled.
        prompts: a row each.
        given: what stands below each prompt already.
        habit: what drafts have been like so far.
        foresee: what follows from a first line, in drafts that say in it what they will list.
    """
    work = _Work(model, how, prompts, given or [[]] * len(prompts))
    if foresee is not None:
        work.write(work.going(), until=how.newline)
        work.check({i: foresee(work.written[i].tokens) for i in work.going()})
        work.write(work.going())
        return work.written
    if habit is None:
        work.follow(work.going())
        work.write(work.going())
        return work.written
    work.check(dict.fromkeys(work.going(), habit.opening))
    work.write(work.going(), until=how.newline)
    ends = {i: habit.end(work.written[i].tokens) for i in work.going()}
    work.check(ends)
    work.follow([i for i, end in ends.items() if not end])
    work.write(work.going())
    habit.learn([w.tokens for w in work.written], how)
    return work.written


class _Work:
    """Drafts in the making."""

    def __init__(
        self, model: Any, how: Sampler, prompts: Sequence[Tokens], given: Sequence[Tokens]
    ) -> None:
        self.model, self.how = model, how
        self.written = [Written() for _ in prompts]
        self._last = [(g or p)[-1] for p, g in zip(prompts, given, strict=True)]
        """What a row reads next: the first word of its own follows from it."""
        first, of_prompt = _different([tuple(p) for p in prompts])
        prompts_read = [[*p[:-1]] for p in first]
        common = same_opening(prompts_read)
        read = Read.nothing(1).then(model, [prompts_read[0][:common]], how.pad)
        read = read.of([0] * len(first)).then(model, [p[common:] for p in prompts_read], how.pad)
        below, self._place = _different(
            [(n, tuple(g)) for n, g in zip(of_prompt, given, strict=True)]
        )
        rest = [[first[n][-1], *g[:-1]] if g else [] for n, g in below]
        self._read = read.of([n for n, _ in below]).then(model, rest, how.pad)
        """Everything above, by `_place`."""

    def going(self) -> list[int]:
        return [i for i, w in enumerate(self.written) if not self._ended(w)]

    def _ended(self, written: Written) -> bool:
        full = len(written.tokens) >= self.how.max_tokens
        return full or bool(written.tokens and written.tokens[-1] in self.how.ends)

    def _own(self, row: int) -> Tokens:
        return [self._last[row], *self.written[row].tokens]

    def follow(self, rows: Sequence[int]) -> None:
        """Of rows with the same above them and heads of one length, one leads the others.

        What is asked for decides how a draft goes on, more than who is asked to do it. A row that
        goes another way at one place is expected to come back to the leader's at the next.
        """
        alike, place = _different([(self._place[i], len(self.written[i].tokens)) for i in rows])
        leads = [rows[place.index(n)] for n in range(len(alike))]
        self.write(leads)
        lead = {i: leads[n] for i, n in zip(rows, place, strict=True) if i != leads[n]}
        astray = Counter[int]()
        while lead:
            before = {i: len(self.written[i].tokens) for i in lead}
            self.check({i: self.written[n].tokens[before[i] :][:AHEAD] for i, n in lead.items()})
            for i, length in before.items():
                gained = len(self.written[i].tokens) - length
                astray[i] = astray[i] + 1 if gained <= 1 else 0
            lead = {
                i: n
                for i, n in lead.items()
                if astray[i] < ASTRAY and not self._ended(self.written[i])
            }

    def write(self, rows: Sequence[int], *, until: int = -1) -> None:
        """Token by token. Rows that have ended, or reached `until`, leave the batch."""
        if not rows:
            return
        read = self._read.of([self._place[i] for i in rows])
        ids, mask = _left([self._own(i) for i in rows], self.how.pad)
        mask = torch.cat([read.mask, mask], dim=1)
        cache = read.cache
        cache.layers = [Roomy(layer) for layer in cache.layers]
        out = read.under(self.model, ids, mask, keep=1)
        while True:
            scores = self.how.scores(out.logits[:, -1])
            last = self.how.sample(scores, spread([self._place[row] for row in rows]))
            chosen = last[:, 0].tolist()
            for row, token, p in zip(rows, chosen, scores.gather(-1, last)[:, 0], strict=True):
                self.written[row].add(token, float(p))
            mask = torch.cat([mask, torch.ones_like(last)], dim=1)
            still = [
                n
                for n, row in enumerate(rows)
                if chosen[n] != until and not self._ended(self.written[row])
            ]
            if not still:
                return
            if len(still) < len(rows):
                rows, kept = [rows[n] for n in still], torch.tensor(still)
                last, mask = last[kept], mask[kept]
                cache.batch_select_indices(kept)
            out = self.model(
                input_ids=last,
                attention_mask=mask,
                position_ids=positions(mask)[:, -1:],
                past_key_values=cache,
                use_cache=True,
            )

    def check(self, expected: dict[int, Tokens]) -> None:
        """Take of what is expected as much as the model goes along with, and its own word then."""
        most = self.how.max_tokens
        room = {i: e[: most - len(self.written[i].tokens)] for i, e in expected.items()}
        rows = sorted(
            (i for i, e in room.items() if e), key=lambda i: (len(room[i]), self._place[i])
        )
        for start in range(0, len(rows), TOGETHER):
            some = rows[start : start + TOGETHER]
            self._check(some, [room[i] for i in some])

    def _check(self, rows: Sequence[int], expected: Sequence[Tokens]) -> None:
        """Rows that are alike and expect the same are computed once; each draws for itself."""
        alike = [(i, tuple(e)) for i, e in zip(map(self._so_far, rows), expected, strict=True)]
        different, place = _different(alike)
        read = self._read.of([at for (at, _), _ in different])
        own, own_mask = _left([[*tokens] for (_, tokens), _ in different], self.how.pad)
        more, more_mask = _right([[*e] for _, e in different], self.how.pad)
        ids, width = torch.cat([own, more], dim=1), more.size(1)
        mask = torch.cat([read.mask, own_mask, more_mask], dim=1)
        logits = read.under(self.model, ids, mask, keep=width + 1).logits[:, :-1]
        scores = self.how.scores(logits)
        likely = scores.gather(-1, more[..., None])[..., 0]
        groups = [self._place[row] for row in rows]
        points = torch.stack([spread(groups) for _ in range(width)], dim=1)
        for n, row, wanted, drawn in zip(place, rows, expected, points, strict=True):
            taken = self.how.accepts(scores[n], more[n], drawn)
            count = next((t for t in range(len(wanted)) if not taken[t]), None)
            for token, p in zip(wanted[:count], likely[n].tolist(), strict=False):
                self.written[row].add(token, p)
            if count is not None:
                self._instead(row, scores[n, count], wanted[count], float(drawn[count]))

    def _so_far(self, row: int) -> tuple[int, tuple[int, ...]]:
        return self._place[row], tuple(self._own(row))

    def _instead(self, row: int, scores: Tensor, refused: int, point: float) -> None:
        """Another token than the refused one, by what is left of the point that refused it.

        That is uniform again, and those of a group still lie evenly apart.
        """
        other = scores.clone()
        other[refused] = -torch.inf
        taken = float(scores[refused].exp())
        left = min(1.0, (point - taken) / max(1.0 - taken, EPSILON))
        token = int(self.how.sample(other[None], torch.tensor([max(0.0, left)]))[0, 0])
        self.written[row].add(token, float(scores[token]))


@dataclass(frozen=True, slots=True)
class Read:
    """Rows of tokens that a model has read, and what it keeps of them."""

    mask: Tensor
    cache: DynamicCache

    @staticmethod
    def nothing(rows: int) -> Read:
        return Read(torch.zeros(rows, 0, dtype=torch.long), DynamicCache())

    def of(self, rows: Sequence[int]) -> Read:
        """Some of the rows, or the same one several times; this reading stays as it is."""
        chosen = torch.tensor(rows)
        kept = [(layer.keys[chosen], layer.values[chosen]) for layer in self.cache.layers]
        return Read(self.mask[chosen], DynamicCache(kept))

    def then(self, model: Any, parts: Sequence[Tokens], pad: int) -> Read:
        """Read on, a part in each row."""
        if not any(parts):
            return self
        ids, mask = _left(parts, pad)
        mask = torch.cat([self.mask, mask], dim=1)
        self.under(model, ids, mask, keep=1)
        return Read(mask, self.cache)

    def under(self, model: Any, ids: Tensor, mask: Tensor, *, keep: int) -> Any:
        """The model's output for the tokens below, the last `keep` of each row with logits."""
        return model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions(mask)[:, -ids.size(1) :],
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=keep,
        )


class Roomy(DynamicLayer):
    """Keys and values with room for more of them: another token copies nothing of what is there."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.lazy_initialization(layer.keys, layer.values)
        self.keys, self.values = layer.keys, layer.values
        self._room: tuple[Tensor, ...] = ()

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        start, new = self.keys.size(2), key_states.size(2)
        if not self._fits(start + new):
            there = (self.keys, self.values)
            self._room = tuple(torch.nn.functional.pad(t, (0, 0, 0, new + ROOM)) for t in there)
        for room, states in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, start : start + new] = states
        self.keys, self.values = (room[:, :, : start + new] for room in self._room)
        return self.keys, self.values

    def _fits(self, width: int) -> bool:
        """Whether the room is that of the rows there are now, and wide enough."""
        if not self._room or self._room[0].size(2) < width:
            return False
        return self._room[0].data_ptr() == self.keys.data_ptr()


def _different(rows: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """What there is, each once, and where each row's stands among it."""
    there = {row: n for n, row in enumerate(dict.fromkeys(rows))}
    return [*there], [there[row] for row in rows]


def _left(rows: Sequence[Tokens], pad: int) -> tuple[Tensor, Tensor]:
    """Tokens and mask, padded on the left."""
    gaps = [max(map(len, rows)) - len(row) for row in rows]
    ids = [[pad] * gap + row for gap, row in zip(gaps, rows, strict=True)]
    mask = [[0] * gap + [1] * len(row) for gap, row in zip(gaps, rows, strict=True)]
    return torch.tensor(ids, dtype=torch.long), torch.tensor(mask, dtype=torch.long)


def _right(rows: Sequence[Tokens], pad: int) -> tuple[Tensor, Tensor]:
    ids, mask = _left([row[::-1] for row in rows], pad)
    return ids.flip(1), mask.flip(1)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of tokens in columns: a part that rows may share, and the parts below it."""

    ids: Tensor
    mask: Tensor
    shared: int
    """Columns of the first part."""
    common: int = 0
    """Of those the first few, where all rows are the same."""

    @staticmethod
    def of(
        shared: Sequence[Tokens], own: Sequence[Tokens], more: Sequence[Tokens], *, pad: int
    ) -> Table:
        """The first two parts end, and the third begins, at the same column in every row."""
        common = same_opening(shared)
        opening, rest = shared[0][:common], [row[common:] for row in shared]
        parts = [_left(rest, pad), _left(own, pad), _right(more, pad)]
        top = torch.tensor([opening] * len(rest), dtype=torch.long)
        ids = torch.cat([top, *(ids for ids, _ in parts)], dim=1)
        mask = torch.cat([torch.ones_like(top), *(mask for _, mask in parts)], dim=1)
        return Table(ids, mask, common + parts[0][0].size(1), common)


def same_opening(rows: Sequence[Tokens]) -> int:
    """How many tokens all rows begin with."""
    columns = enumerate(zip(*rows, strict=False))
    return next((i for i, column in columns if len(set(column)) > 1), min(map(len, rows)))


def positions(mask: Tensor) -> Tensor:
    """Of tokens among the real ones of their row, wherever the row is padded."""
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def below(model: Any, table: Table, **how: Any) -> Any:
    """The model's output under the shared columns, of which each different row is computed once."""
    place = positions(table.mask)
    return model(
        input_ids=table.ids[:, table.shared :],
        attention_mask=table.mask,
        position_ids=place[:, table.shared :],
        past_key_values=_shared(model, table, place),
        **how,
    )


def _shared(model: Any, table: Table, place: Tensor) -> DynamicCache:
    if not table.shared:
        return DynamicCache()
    columns = slice(0, table.shared)
    every = torch.stack([table.ids[:, columns], table.mask[:, columns], place[:, columns]], dim=-1)
    unique, inverse = torch.unique(every, dim=0, return_inverse=True)
    cache = DynamicCache()

    def read(rows: Tensor, start: int, end: int) -> None:
        model.get_decoder()(
            input_ids=rows[:, start:end, 0],
            attention_mask=rows[:, :end, 1],
            position_ids=rows[:, start:end, 2],
            past_key_values=cache,
            use_cache=True,
        )

    if table.common:
        read(unique[:1], 0, table.common)
        cache.batch_select_indices(torch.zeros(len(unique), dtype=torch.long))
    if table.common < table.shared:
        read(unique, table.common, table.shared)
    cache.batch_select_indices(inverse)
    return cache
