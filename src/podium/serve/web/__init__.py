"""The page that `podium serve` opens: watch a workflow happen, and look at everything that ran.

files.py    what the browser loads, under a content policy that lets nothing else run
live.py     a run under way, followed by any number of readers, each from where it left off
outline.py  runs and events as the page reads them: everything but the long messages
runs.py     the list of runs: filters in bounded windows, so that no search holds the server up
figures.py  the pool and the spending, counted out of what was run
shelf.py    where the directories of `podium train` and `podium eval` are found: training.py,
            evaluations.py read them
api.py      the routes
"""

from podium.serve.web.api import mount

__all__ = ["mount"]
