"""What several test files need."""

import os
from contextlib import AsyncExitStack

import pytest

# Small models gain nothing from a second thread, and lose much where cores are shared.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture
async def serve(tmp_path):
    """A server over a scripted upstream; in a list of its configuration a function is given it."""
    from podium.testing import Upstream
    from serving import config, served

    async with AsyncExitStack() as stack:

        async def start(replies, **more):
            upstream = await stack.enter_async_context(Upstream(replies))
            for key, value in more.items():
                if isinstance(value, list):
                    more[key] = [item(upstream) if callable(item) else item for item in value]
            settings = config(tmp_path, upstream, **more)
            return await stack.enter_async_context(served(settings, upstream))

        yield start
