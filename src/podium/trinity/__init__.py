"""TRINITY: a linear head on a small model's hidden state picks a worker and a role, turn by turn.

    head          the weights, and the file they are kept in
    states        hidden states, from llama.cpp or transformers, cached
    roles         thinker, worker, verifier: who is shown what, and what a reply changes
    coordinator   the strategy: decide, perform a turn, decide again
    prompts       what the roles and the coordinator's model read

No text is generated to decide. `podium.train.trinity` finds the weights.
"""

from podium.trinity.coordinator import Coordinator, Trinity
from podium.trinity.head import Head, Reading
from podium.trinity.roles import ROLES, Role, Rules
from podium.trinity.states import CachedStates, LocalStates, States, TransformersStates

__all__ = [
    "ROLES",
    "CachedStates",
    "Coordinator",
    "Head",
    "LocalStates",
    "Reading",
    "Role",
    "Rules",
    "States",
    "TransformersStates",
    "Trinity",
]
