"""Every word that TRINITY adds to what models read: its coordinator's, and the three roles'.

The coordinator's model writes nothing. It reads the question and the team's ideas so far, and one
hidden state of that reading is all that is used.
"""

from __future__ import annotations

from collections.abc import Sequence

from podium.prompts import shortened
from podium.types import Message, Question

COORDINATOR = "You read a question and decide who on a team of models should work on it next."

IDEA = "\nIdea {number}: {text}"

WORKER = """\
Answer the question. The ideas and the suggestion of other members, if there are any, are there to \
be used or to be doubted. First write down how you arrive at your answer, briefly, between <idea> \
and </idea>; then the answer itself, in the form that the question asks for, between <answer> and \
</answer>."""

THINKER = """\
Do not answer the question. Think about how the team should go on: what is missing, what is \
doubtful in the ideas and in the answer so far, which way would settle it. Write one concrete \
suggestion for the member whose turn is next between <suggestion> and </suggestion>, and what that \
member should be, worker (to write an answer) or verifier (to check the answer so far), between \
<suggested_role> and </suggested_role>."""

VERIFIER = """\
Check the answer so far: redo the decisive step on your own and compare. Begin your reply with the \
one word ACCEPT if the answer is right and complete, or with REJECT if it is not; then say why."""

GO_ON = "Now do it to the previous answer."
"""To a worker that does one thing: shown the whole question again it would do it to that."""

COMPACT_THINKER = """\
{question}
What should be done next? Write <suggestion>what</suggestion> and \
<suggested_role>worker</suggested_role> or <suggested_role>verifier</suggested_role>."""

COMPACT_VERIFIER = """\
{question}
Is the previous answer right? Reply ACCEPT or REJECT."""
"""In the fewest words, for a very small model."""

THE_IDEA = "think of a way to answer"
THE_SUGGESTION = "suggest how to go on"
THE_ANSWER = "give the answer so far"
THE_OBJECTION = "check the answer before this one, which was rejected"
"""What a quoted text was written for, as its reader is told."""


def coordinator_messages(
    question: Question, ideas: Sequence[str], *, chars: int
) -> tuple[Message, ...]:
    """What the hidden state is taken of."""
    asked = shortened(question.text, chars)
    said = [
        IDEA.format(number=i, text=shortened(idea, chars)) for i, idea in enumerate(ideas, start=1)
    ]
    return (Message("system", COORDINATOR), Message("user", "".join([asked, *said])))
