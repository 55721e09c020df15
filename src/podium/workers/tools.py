"""Workers that are programs: they read what a step may see, and cost nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from podium.answers import voices
from podium.errors import WorkerError
from podium.types import Completion, Piece, Request, Usage
from podium.workers import Call


@dataclass(frozen=True, slots=True)
class VoteWorker:
    """The answer that most of the visible outputs state, in the words of the first to state it.

    Ties go to the answer that was stated first. Earlier votes are not counted as voices.
    """

    name: str = "vote"

    @property
    def fingerprint(self) -> str:
        return "vote"

    async def complete(self, request: Request, call: Call) -> Completion:
        outputs = [seen.output for seen in request.visible if seen.worker != self.name]
        read = voices(outputs)
        if not read:
            raise WorkerError(
                f"{self.name}: none of the {len(outputs)} outputs it may read states an answer",
                status=422,
            )
        reservation = await call.ledger.reserve(0, 0.0)
        reservation.settle(Usage(), 0.0)
        counts = Counter(answer for answer, _ in read)
        winner, votes = counts.most_common(1)[0]  # equal counts keep the order they came in
        text = next(text for answer, text in read if answer == winner)
        if call.hear is not None:
            call.hear(Piece(text))
        return Completion(text, reasoning=f"{votes} of {len(outputs)} say {winner}")
