"""From the command line to the page: `ask --open`, `serve --open`, and the link of `report`."""

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager

import aiohttp
import pytest

from pages import PATIENCE
from podium.serve import visit
from podium.serve.keys import Key
from podium.testing import Say, Upstream
from serving import config, served
from test_serve_process import running
from test_web import CONFIG

PODIUM = """
import signal
from podium.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
main()
"""


@pytest.fixture
def browser(tmp_path, monkeypatch):
    """A browser that notes which address it was given."""
    noted = tmp_path / "opened"
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" >> {noted}\necho "opened $1" >&2\n')
    script.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{script} %s")
    return noted


@asynccontextmanager
async def command(*words, **variables):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PODIUM, *words, env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line(stream, word):
    async with asyncio.timeout(PATIENCE):
        while word not in (said := (await stream.readline()).decode()):
            assert said, f"it ended before it said {word!r}"
    return said


async def test_a_run_is_opened_on_the_server_that_shows_its_store(tmp_path, browser):
    async with Upstream(["fine"]) as upstream, served(config(tmp_path, upstream), upstream) as one:
        path = tmp_path / "podium.toml"
        path.write_text(CONFIG.format(store=tmp_path / "podium.sqlite", url=upstream.url))
        words = ("ask", "-c", str(path), "-s", "single:a", "--open", "Why?")
        async with command(*words, PODIUM_PAGE=one.url) as process:
            out, _ = await process.communicate()
        assert (process.returncode, out) == (0, b"fine\n")
        (row,) = await one.desk.podium.store.runs()
        assert browser.read_text() == f"{one.url}/#/runs/{row.id}\n"


async def test_without_a_server_the_page_is_there_until_it_is_interrupted(tmp_path, browser):
    gate = asyncio.Event()
    async with Upstream([Say("fine", gate=gate)]) as upstream, aiohttp.ClientSession() as client:
        path = tmp_path / "podium.toml"
        path.write_text(CONFIG.format(store=tmp_path / "podium.sqlite", url=upstream.url))
        words = ("ask", "-c", str(path), "-s", "single:a", "--open", "Why?")
        async with command(*words, PODIUM_PAGE="http://127.0.0.1:1") as process:
            page = (await line(process.stderr, "watch it at")).split()[-1]
            url, _, run = page.partition("/#/runs/")
            async with client.get(f"{url}/web/api/runs/{run}") as reply:
                assert (await reply.json())["state"] == "unfinished"
            gate.set()
            assert await line(process.stdout, "fine")
            await line(process.stderr, "Ctrl-C")
            async with client.get(f"{url}/web/api/runs/{run}") as reply:
                assert (await reply.json())["answer"] == "fine"
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(PATIENCE):
                await process.wait()
            assert process.returncode == 0
        assert browser.read_text().split() == [page]


async def test_a_server_shows_its_page_where_it_is_told_to(tmp_path, browser):
    path = tmp_path / "podium.toml"
    store, nowhere = tmp_path / "podium.sqlite", "http://127.0.0.1:1"
    path.write_text(CONFIG.format(store=store, url=nowhere))
    async with running(path, "--open") as process:
        page = str(process.openai.base_url).removesuffix("v1/")
        assert (await process.line("opened")).split() == ["opened", page]


async def test_with_keys_and_no_server_it_says_what_is_missing_before_anything_is_asked(tmp_path):
    async with Upstream(["never"]) as upstream:
        async with served(config(tmp_path, upstream), upstream) as server:
            await server.desk.keys.new(Key("k1", "alice"))
        path = tmp_path / "podium.toml"
        path.write_text(CONFIG.format(store=tmp_path / "podium.sqlite", url=upstream.url))
        words = ("ask", "-c", str(path), "--open", "Why?")
        async with command(*words, PODIUM_PAGE="http://127.0.0.1:1") as process:
            _, err = await process.communicate()
        assert process.returncode == 2 and b"podium serve --operator" in err
        assert upstream.requests == []


async def test_a_stranger_at_the_address_is_not_taken_for_a_server(monkeypatch):
    async def stranger(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        body = b"<html>a page for everything</html>"
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    server = await asyncio.start_server(stranger, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("PODIUM_PAGE", f"http://127.0.0.1:{port}/v1/")
    assert await visit.where("0123") == ""
    server.close()


async def test_results_are_found_on_the_shelf_of_the_server(serve, tmp_path, monkeypatch):
    folder = tmp_path / "shelf" / "deep" / "sums"
    folder.mkdir(parents=True)
    (folder / "results.sqlite").touch()
    monkeypatch.setenv("PODIUM_RUNS", str(tmp_path / "shelf"))
    server = await serve(["ok"])
    monkeypatch.setenv("PODIUM_PAGE", server.url)
    assert await visit.evaluation(folder) == f"{server.url}/#/evaluations/deep%2Fsums"
    assert await visit.evaluation(tmp_path) == ""
