"""Makes workers out of their sections of the configuration, and the embedded default.

Connections and loaded models are shared by the workers that need the same ones, and are let go
together.
"""

from __future__ import annotations

import os
from pathlib import Path

from podium.config import Config, LimitsSection, PlannerSection, WorkerSection
from podium.errors import ConfigError
from podium.models import adapter as find_adapter
from podium.models import find_model
from podium.workers import FREE, Member
from podium.workers.chat import ChatWorker, Secret, Transport
from podium.workers.local import LocalModel, LocalWorker
from podium.workers.prices import price_of
from podium.workers.python import PythonWorker
from podium.workers.tools import VoteWorker
