"""GRPO on TRL: the model drafts, its drafts are performed, and what came of them teaches it.

`ConductorTrainer` leaves the algorithm to TRL and adds three things. A rollout may have several
rounds: the next draft is written under the tokens that were sampled before, so nothing is
tokenised twice, and the tokens that others wrote are masked. Every round has its own reward, so
advantages are per token. And a prompt that a whole group shares is computed once, in drafting as
in learning.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import DistributedType
from accelerate.utils import gather_object
from datasets import Dataset
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PrinterCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from podium.errors import ConfigError
from podium.prompts import Style, announced_in, planner_messages
from podium.train.checkpoint import check_reports, last_whole, needing_room
from podium.train.pools import Row
from podium.train.processes import processes
from podium.train.recipe import Recipe
from podium.train.reward import advantages_of
from podium.train.rollouts import Outcome, Rehearsal, Sketch
from podium.types import Message, Round
from podium.workers import Pool
from podium.workers.sampling import Habit, Sampler, Table, Tokens, Written, below, generate
from podium.workflow import render


@dataclass(slots=True)
class Rollout:
    """A question's way through its rounds, in tokens and in what came of them."""

    row: Row
    prompt: Tokens
    tokens: Tokens
    """Everything after the prompt."""
    drafted: list[int]
    """For each of `tokens` the round whose draft it belongs to, or -1 for what others wrote."""
    logprobs: list[float]
    """Of `tokens` when they were sampled; `UNKNOWN` where nobody said, 0 where others wrote."""
    outcomes: list[Outcome]

    @property
    def rounds(self) -> tuple[Round, ...]:
        return tuple(o.round for o in self.outcomes)


UNKNOWN = -math.inf
"""The log-probability of a token of which nothing is known: it counts as in doubt."""

BUCKETS = (24, 48, 96, 192, 384)
"""Lengths in tokens up to which rows are computed together."""

AT_ONCE = 512
"""Tokens whose scores over the whole vocabulary are in memory together."""

PER_TOKEN = {
    "completion_ids",
    "completion_mask",
    "tool_mask",
    "advantages",
    "old_per_token_logps",
    "sampling_per_token_logps",
    "importance_sampling_ratio",
}
"""What TRL keeps for each token that was written."""

Watch = Callable[[int, Sequence[Rollout]], None]
"""Told the step and its rollouts, group by group."""


class Writer:
    """Puts a conversation into the model's tokens, and only what is new of it."""

    def __init__(self, tokenizer: Any, style: Style, steps: int) -> None:
        self.tokenizer, self.style, self.steps = tokenizer, style, steps

    def messages(self, row: Row, rounds: Sequence[Round] = ()) -> tuple[Message, ...]:
        return planner_messages(
            row.problem.question, row.pool, self.style, steps=self.steps, rounds=rounds
        )

    def opening(self, row: Row) -> Tokens:
        return self._encode(self._render(self.messages(row)))

    def next_turn(self, row: Row, rounds: Sequence[Round]) -> Tokens:
        """What stands between the end of the last draft and the beginning of the next."""
        *before, said = self.messages(row, rounds)
        end = self.tokenizer.eos_token
        text = self._render((*before[:-1], Message("assistant", end), said))
        return self._encode(text.rpartition(end + end)[2])

    def draft(self, text: str) -> Tokens:
        return [*self._encode(text), self.tokenizer.eos_token_id]

    def line(self, text: str) -> Tokens:
        """The first line of a draft that goes on."""
        return self._encode(f"{text}\n")

    def lists_after(self, line: Tokens) -> Tokens:
        """The rest of a draft that opens with this line, as far as it says."""
        announced = announced_in(self.text(line))
        return self.draft(render(announced)) if announced.steps else []

    def text(self, tokens: Tokens) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))

    def ended(self, tokens: Tokens) -> bool:
        return bool(tokens) and tokens[-1] == self.tokenizer.eos_token_id

    def _render(self, messages: Sequence[Message]) -> str:
        talk = [{"role": m.role, "content": m.content} for m in messages]
        rendered = self.tokenizer.apply_chat_template(
            talk, tokenize=False, add_generation_prompt=True
        )
        return str(rendered)

    def _encode(self, text: str) -> Tokens:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


class ConductorTrainer(GRPOTrainer):
    def __init__(
        self,
        recipe: Recipe,
        rows: Sequence[Row],
        *,
        writer: Writer,
        rehearsal: Rehearsal,
        runner: asyncio.Runner,
        watch: Watch,
        **settings: Any,
    ) -> None:
        self.recipe, self.rows, self.writer = recipe, rows, writer
        self.rehearsal, self.runner, self.watch = rehearsal, runner, watch
        self._batch: list[Row] = []
        self._rollouts: list[Rollout] = []
        self._habits = self._no_habits()
        super().__init__(reward_funcs=_last_reward, rollout_func=self._play, **settings)
        self.remove_callback(PrinterCallback)

    def train(self, *_: Any, **__: Any) -> Any:
        """As many steps as the recipe says, on from the last checkpoint that is whole.

        TRL takes no steps for as many as there are questions.
        """
        there = last_whole(Path(self.args.output_dir))
        if not self.recipe.grpo.steps:
            return None
        return super().train(resume_from_checkpoint=str(there) if there else None)

    # Rollouts

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._batch = [self.rows[example["row"]] for example in inputs]
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        output["advantages"] = self._token_advantages(output["completion_ids"])
        self.watch(self.state.global_step, everyones(self._rollouts))
        return self._without_certain_ends(output) if self._may_shorten else output

    @property
    def _may_shorten(self) -> bool:
        """Whether a token may be left out and the loss of the others stays as it was.

        A distance to the base model counts for every token, whatever its advantage; and two of the
        losses divide by the tokens they see, which only `certain` may change.
        """
        grpo = self.recipe.grpo
        return not grpo.kl and (grpo.loss in ("dapo", "dr_grpo") or grpo.certain > 0)

    def _without_certain_ends(self, output: dict[str, Any]) -> dict[str, Any]:
        """Leave out of learning what a draft ends in once nothing of it is in doubt any more.

        The gradient of a token that had probability p is at most of size 1 - p, and no token
        before it depends on it. After a cold start most of a draft is such an end. Of a draft
        without advantage nothing is left but a token, for those who count rows.
        """
        counts = (output["advantages"] != 0).tolist()
        lengths = [self._doubtful(*pair) for pair in zip(self._rollouts, counts, strict=True)]
        width = max(lengths)
        for name in PER_TOKEN & output.keys():
            output[name] = output[name][:, :width]
        kept = torch.arange(width)[None, :] < torch.tensor(lengths)[:, None]
        output["completion_mask"] = output["completion_mask"] * kept.to(
            output["completion_mask"].device
        )
        return output

    def _doubtful(self, rollout: Rollout, counts: Sequence[bool]) -> int:
        """How many tokens there are up to the last one that counts and was in doubt."""
        sure = math.log1p(-self.recipe.grpo.certain) if self.recipe.grpo.certain else math.inf
        doubt = [c and p < sure for p, c in zip(rollout.logprobs, counts, strict=False)]
        return max((i + 1 for i, doubted in enumerate(doubt) if doubted), default=1)

    def _play(self, prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
        """What TRL wants to know of the rollouts; the prompts are made of the rows themselves."""
        self._rollouts = rollouts = self.play()
        return {
            "prompt_ids": [r.prompt for r in rollouts],
            "completion_ids": [r.tokens for r in rollouts],
            "logprobs": None,
            "env_mask": [[int(number >= 0) for number in r.drafted] for r in rollouts],
            "earned": [r.outcomes[-1].reward for r in rollouts],
        }

    def play(self) -> list[Rollout]:
        """Draft and perform every round of the batch."""
        prompts = [self.writer.opening(row) for row in self._batch]
        rollouts = [
            Rollout(r, p, [], [], [], []) for r, p in zip(self._batch, prompts, strict=True)
        ]
        going = rollouts
        for number in range(self.recipe.limits.rounds):
            self._draft(going, number)
            going = [r for r in going if r.outcomes[-1].round.failure is None]
        return rollouts

    def _draft(self, rollouts: Sequence[Rollout], number: int) -> None:
        if number:
            for rollout in rollouts:
                turn = self.writer.next_turn(rollout.row, rollout.rounds)
                rollout.tokens += turn
                rollout.drafted += [-1] * len(turn)
                rollout.logprobs += [0.0] * len(turn)
        drafts = self._write(rollouts, number)
        sketches = [
            Sketch(
                r.row.problem,
                r.row.pool,
                self.writer.text(d.tokens),
                r.rounds,
                ended=self.writer.ended(d.tokens),
            )
            for r, d in zip(rollouts, drafts, strict=True)
        ]
        outcomes = self.runner.run(self.rehearsal.perform(sketches))
        for rollout, draft, outcome in zip(rollouts, drafts, outcomes, strict=True):
            rollout.tokens += draft.tokens
            rollout.drafted += [number] * len(draft.tokens)
            rollout.logprobs += draft.logprobs
            rollout.outcomes.append(outcome)

    def _token_advantages(self, completion_ids: Tensor) -> Tensor:
        """Each token's advantage is that of the round it was drafted in."""
        table = torch.zeros(completion_ids.shape, dtype=torch.float32, device=completion_ids.device)
        size = self.recipe.grpo.drafts
        groups = [self._rollouts[i : i + size] for i in range(0, len(self._rollouts), size)]
        worth = [rounds for group in groups for rounds in self._worth(group)]
        sure = math.log(self.recipe.grpo.blame)
        for i, (rollout, rounds) in enumerate(zip(self._rollouts, worth, strict=True)):
            for j, number in enumerate(rollout.drafted):
                if number >= 0 and (rounds[number] > 0 or rollout.logprobs[j] <= sure):
                    table[i, j] = rounds[number]
        return table

    def _worth(self, group: Sequence[Rollout]) -> list[list[float]]:
        """The advantage of every round of every rollout of a group."""
        settings, scale = self.recipe.grpo, self.recipe.reward
        earned = [[o.reward for o in r.outcomes] for r in group]
        return advantages_of(
            earned, scale, discount=settings.discount, by=settings.scale, against=settings.against
        )

    # Shared prompts

    def _write(self, rollouts: Sequence[Rollout], number: int) -> list[Written]:
        if self.use_vllm or not self._plain:
            return self._written_by_trl(rollouts, number)
        model = self.accelerator.unwrap_model(self.model)
        how = Sampler.of(
            self._tokenizer,
            temperature=self.recipe.grpo.temperature,
            max_tokens=self.recipe.grpo.max_tokens,
        )
        model.eval()
        written = generate(
            model,
            [r.prompt for r in rollouts],
            how,
            given=[r.tokens for r in rollouts],
            habit=self._habits[number],
            foresee=self.writer.lists_after if self.recipe.style.aloud else None,
        )
        model.train()
        return written

    def _written_by_trl(self, rollouts: Sequence[Rollout], number: int) -> list[Written]:
        """Sharded weights and a vLLM server are asked by all processes together.

        Each must then bring as many prompts as the others, also where fewer of its rollouts go on.
        """
        contexts = [r.prompt + r.tokens for r in rollouts]
        filled = contexts + [self.writer.opening(self._batch[0])] * (
            len(self._batch) - len(contexts)
        )
        shared = self.recipe.grpo.drafts if number == 0 else 1
        theirs: Any = self
        drafts, logprobs = theirs._generate_single_turn(filled, None, {}, shared)
        known = logprobs or [[UNKNOWN] * len(d) for d in drafts]
        return [Written(*both) for both in zip(drafts, known, strict=True)][: len(contexts)]

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        with needing_room(Path(self.args.output_dir)):
            cast(Any, super())._save_checkpoint(model, trial)
        self._habits = self._no_habits()  # nor has whoever goes on from here: the same curve

    def _no_habits(self) -> list[Habit]:
        """One for each round: a second draft is another than a first."""
        return [Habit() for _ in range(self.recipe.limits.rounds)]

    @property
    def _plain(self) -> bool:
        """Whether the whole model lies in this process's own memory."""
        shapes = (DistributedType.NO, DistributedType.MULTI_CPU)
        here = self.accelerator.device.type == "cpu"
        return here and self.accelerator.distributed_type in shapes

    @property
    def _alone(self) -> bool:
        """Whether this is the only process: several passes before one backward need that."""
        return self._plain and bool(self.accelerator.num_processes == 1)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        prompt = input_ids.size(1) - logits_to_keep
        if not self._alone or prompt < 2:
            found: tuple[Tensor, Tensor | None, Tensor | None] = (
                super()._get_per_token_logps_and_entropies(
                    model, input_ids, attention_mask, logits_to_keep, *args, **kwargs
                )
            )
            return found
        decoder, head = model.get_decoder(), model.get_output_embeddings()
        logps = torch.zeros(input_ids.size(0), logits_to_keep)
        entropies = torch.zeros_like(logps)
        for rows, width in _buckets(attention_mask[:, prompt:].sum(dim=1)):
            end = prompt + width
            # Drafts of one question are often the same: each different one is computed once.
            every = torch.stack([input_ids[rows, :end], attention_mask[rows, :end]], dim=-1)
            different, place = torch.unique(every, dim=0, return_inverse=True)
            ids, mask = different.unbind(-1)
            kept = mask[:, prompt:].bool()
            states = below(decoder, Table(ids, mask, prompt - 1)).last_hidden_state[:, :-1][kept]
            none = torch.zeros(kept.shape)
            likely, doubt = _scored(head, states, ids[:, prompt:][kept], self.temperature)
            where = (rows[:, None], torch.arange(width)[None, :])
            logps = logps.index_put(where, none.masked_scatter(kept, likely)[place])
            entropies = entropies.index_put(where, none.masked_scatter(kept, doubt)[place])
        return logps, entropies, None


def _scored(head: Any, states: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The log-probability of each token after its state, and how much in doubt it was (entropy).

    The whole vocabulary is scored for a few tokens at a time, and again on the way back: kept for
    all of them it would take more memory than the rest of the model.
    """

    def some(states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        scores = (head(states).float() / temperature).log_softmax(-1)
        doubt = -(scores.detach().exp() * scores.detach()).sum(-1)
        return scores.gather(-1, tokens[:, None])[:, 0], doubt

    parts = zip(states.split(AT_ONCE), tokens.split(AT_ONCE), strict=True)
    found = [checkpoint(some, *part, use_reentrant=False) for part in parts]
    return torch.cat([likely for likely, _ in found]), torch.cat([doubt for _, doubt in found])


def _buckets(lengths: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Rows of like length together, so that few long ones do not make all the others long."""
    shorter = 0
    for limit in (*BUCKETS, int(lengths.max())):
        rows = ((lengths > shorter) & (lengths <= limit)).nonzero()[:, 0]
        if len(rows):
            yield rows, int(lengths[rows].max())
        shorter = max(shorter, limit)


def everyones(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Those of all processes, in the order of the step's questions.

    What travels is what was said; the pools stay where their connections are.
    """
    if processes().num_processes == 1:
        return list(rollouts)
    told = [replace(r, row=Row(r.row.problem, Pool(()))) for r in rollouts]
    return list(gather_object(told))


def _last_reward(completions: Any, earned: list[float | None], **_: Any) -> list[float | None]:
    """For TRL's own log; the advantages are worked out round by round."""
    return earned


def dataset(rows: Sequence[Row]) -> Dataset:
    """For TRL: which row comes when. The prompts are made of the rows themselves."""
    return Dataset.from_list(
        [{"prompt": row.problem.id, "row": number} for number, row in enumerate(rows)]
    )


def settings(recipe: Recipe, folder: Path) -> GRPOConfig:
    """The recipe in TRL's words."""
    grpo = recipe.grpo
    check_reports(grpo.report_to)
    size = grpo.questions * grpo.drafts
    batch = grpo.batch or size
    several = processes().num_processes
    if grpo.questions % several or batch % several:
        raise ConfigError(
            f"{grpo.questions} questions a step in batches of {batch} cannot be shared by "
            f"{several} processes: make both divisible by it"
        )
    return GRPOConfig(
        output_dir=str(folder),
        seed=recipe.seed,
        max_steps=grpo.steps,
        num_generations=grpo.drafts,
        per_device_train_batch_size=batch // several,
        gradient_accumulation_steps=size // batch,
        max_completion_length=grpo.max_tokens,
        temperature=grpo.temperature,
        learning_rate=grpo.learning_rate,
        lr_scheduler_type=grpo.schedule,
        warmup_steps=round(grpo.warmup * grpo.steps),
        weight_decay=0.0,
        max_grad_norm=1.0,
        beta=grpo.kl,
        epsilon=grpo.clip,
        loss_type=grpo.loss,
        scale_rewards="none",  # the advantages are ours
        use_vllm=bool(grpo.vllm),
        vllm_mode=grpo.vllm or "server",
        use_cpu=not torch.cuda.is_available(),
        bf16=torch.cuda.is_available() and recipe.model.dtype != "float32",
        gradient_checkpointing=torch.cuda.is_available(),
        shuffle_dataset=False,
        save_steps=grpo.save,
        logging_steps=1,
        disable_tqdm=True,
        report_to=list(grpo.report_to) or "none",
    )
