"""Our own description of the API, turned into requests by schemathesis: none may be a failure."""

import asyncio
import sys
from importlib.util import find_spec

import pytest

from podium.testing import Say
from podium.types import Step
from serving import workflow

pytestmark = pytest.mark.skipif(
    find_spec("schemathesis") is None, reason="schemathesis is not installed"
)
FLOW = workflow(Step(1, "Answer."))


async def test_no_request_that_can_be_described_is_a_server_error(serve, tmp_path):
    served = await serve({"plan": [Say(FLOW)], "": ["fine"]}, limits={"seconds": 20})
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "schemathesis.cli", "run", f"{served.url}/openapi.json",
        "--checks", "not_a_server_error", "--phases", "fuzzing", "-n", "10",
        "--generation-database", "none", "--seed", "7",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=tmp_path,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert {"b", "plan"} <= {sent.model for sent in served.upstream.requests}
