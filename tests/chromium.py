"""A real browser and a real server, for tests of pages. Import ``browser`` as a fixture."""

import os
import shutil
import socket
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from gnnretrieval.serve import ServeSettings, create_app

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here: pip install '.[browser]'")
TIMEOUT = (
    60_000  # milliseconds until something that a test waits for counts as missing; other programs may use the cores
)


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with playwright.sync_playwright() as started:
        if chromium is None and not Path(started.chromium.executable_path).exists():
            pytest.skip("no Chromium here: apt install chromium, or playwright install chromium")
        # WebGL without a graphics card; the watchdog ends a drawing process that gets no core for some seconds.
        arguments = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--disable-gpu-watchdog"]
        arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = started.chromium.launch(executable_path=chromium, args=arguments, timeout=2 * TIMEOUT)
        yield browser
        browser.close()


@contextmanager
def served(retriever, *, reader=None, **settings):
    """The address of a server over ``retriever``."""
    import uvicorn

    app = create_app(retriever, ServeSettings(**settings), reader=reader)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:  # after a failed test too: the thread would keep pytest from ending
        server.should_exit = True
        thread.join()
