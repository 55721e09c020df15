"""Podium: a small language model, the Conductor, manages bigger ones."""

from podium.conductor import Conductor, Strategy, StrategyWorker, Terms, stream
from podium.errors import PodiumError
from podium.ledger import Ledger
from podium.planner import FixedPlanner, ModelPlanner, Planner
from podium.types import Limits, Question, Round, Rules, Run, Step, StepResult, Usage, Workflow
from podium.workers import Member, Pool, Price, Worker
from podium.workflow import parse, render

__all__ = [
    "Conductor",
    "FixedPlanner",
    "Ledger",
    "Limits",
    "Member",
    "ModelPlanner",
    "Planner",
    "PodiumError",
    "Pool",
    "Price",
    "Question",
    "Round",
    "Rules",
    "Run",
    "Step",
    "StepResult",
    "Strategy",
    "StrategyWorker",
    "Terms",
    "Usage",
    "Worker",
    "Workflow",
    "parse",
    "render",
    "stream",
]
