"""`vf-eval podium-conductor`: the name under which the library `verifiers` finds Podium.

It looks its environments up as top-level packages; what this one holds is written in
`podium.train.environment`.
"""

from podium.train.environment import ConductorEnv, ConductorHarness, ConductorTaskset

__all__ = ["ConductorEnv", "ConductorHarness", "ConductorTaskset"]
