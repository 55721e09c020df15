"""What several test files need."""

from contextlib import AsyncExitStack

import pytest


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
