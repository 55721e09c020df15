"""A trained router: who is likely to be right on a question like this one, and at what price.

It learns from the scores of every worker alone on the training split. A question is embedded (by
the words in it, or by a sentence model if one is named), each worker's chance is predicted from
its nearest neighbours or by a logistic regression, and the worker with the highest chance less
its price is asked. It stands for RouterDC and RouteLLM: the best that choosing one worker by the
question can be expected to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from podium.conductor import Conductor
from podium.errors import ConfigError
from podium.eval.baselines import Rule
from podium.prompts import WHOLE
from podium.types import Question, Round, Step, Workflow
from podium.workers import Pool

Method = Literal["knn", "logistic"]

NEIGHBOURS = 40
"""Fewer are noise: a worker's score on one question is a coin that was thrown once."""

WORDS = "tfidf"
"""The embedding that needs no model."""


@dataclass(frozen=True, slots=True)
class Lessons:
    """What each worker scored on the training questions."""

    questions: Sequence[str]
    workers: Sequence[str]
    scores: Sequence[Sequence[float]]
    """By question, then by worker."""
    usd: Sequence[float]
    """Mean dollars per question, by worker."""
    embedding: str = WORDS


def router(
    name: str, method: Method, pool: Pool, lessons: Lessons, *, weight: float = 0.0
) -> Conductor:
    """Ask the worker with the best prospects.

    Args:
        name: of the strategy.
        method: how a worker's chance is predicted.
        pool: that is routed over.
        lessons: what was learned from the training split.
        weight: how much of its chance the dearest worker loses for its price: 0 looks at nothing
            but the chance; raising it traces a front from dear to cheap.
    """
    chances = train(method, lessons)
    dearest = max(lessons.usd) or 1.0
    toll = [weight * usd / dearest for usd in lessons.usd]
    numbers = [pool.names.index(worker) for worker in lessons.workers]

    def choose(question: Question, rounds: Sequence[Round]) -> Workflow:
        prospects = [p - t for p, t in zip(chances(question.text), toll, strict=True)]
        return Workflow((Step(numbers[prospects.index(max(prospects))], WHOLE),))

    return Conductor(Rule(choose), pool, name)


def train(method: Method, lessons: Lessons) -> Callable[[str], Sequence[float]]:
    """Each worker's chance, as a function of the question."""
    embed = _embedder(lessons)
    known = embed(list(lessons.questions))
    predict = (_knn if method == "knn" else _logistic)(known, lessons)

    @cache  # several samples of one question are routed alike
    def chances(question: str) -> Sequence[float]:
        return predict(embed([question]))

    return chances


def _knn(known: Any, lessons: Lessons) -> Callable[[Any], Sequence[float]]:
    import numpy as np
    from sklearn.neighbors import KNeighborsRegressor

    count = min(NEIGHBOURS, len(lessons.questions))
    model = KNeighborsRegressor(count, metric="cosine").fit(known, np.asarray(lessons.scores))
    return lambda found: [float(p) for p in model.predict(found)[0]]


def _logistic(known: Any, lessons: Lessons) -> Callable[[Any], Sequence[float]]:
    from sklearn.linear_model import LogisticRegression

    def one(column: Sequence[bool]) -> Callable[[Any], float]:
        if len(set(column)) == 1:  # always right, or never: there is nothing to regress
            return lambda _: float(column[0])
        model = LogisticRegression(max_iter=1000).fit(known, column)
        return lambda found: float(model.predict_proba(found)[0][1])

    columns = zip(*lessons.scores, strict=True)
    models = [one([score >= 1.0 for score in column]) for column in columns]
    return lambda found: [model(found) for model in models]


def _embedder(lessons: Lessons) -> Callable[[list[str]], Any]:
    if lessons.embedding == WORDS:
        return _words(lessons.questions)
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as exc:
        raise ConfigError(
            f"the embedding {lessons.embedding!r} needs pip install sentence-transformers; "
            f"{WORDS!r} needs no model"
        ) from exc
    model = SentenceTransformer(lessons.embedding)
    return lambda texts: model.encode(texts, normalize_embeddings=True)


def _words(questions: Sequence[str]) -> Callable[[list[str]], Any]:
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError as exc:
        raise ConfigError("a router needs scikit-learn: pip install 'podium[eval]'") from exc
    model = TfidfVectorizer(sublinear_tf=True, min_df=2 if len(questions) >= 100 else 1)
    model.fit(questions)
    return lambda texts: model.transform(texts)
