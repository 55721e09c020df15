"""Evaluation: tasks, graders, statistics. The graders are also what training is rewarded by."""
