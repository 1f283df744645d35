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


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with playwright.sync_playwright() as started:
        if chromium is None and not Path(started.chromium.executable_path).exists():
            pytest.skip("no Chromium here: apt install chromium, or playwright install chromium")
        arguments = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"]  # WebGL without a graphics card
        arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = started.chromium.launch(executable_path=chromium, args=arguments)
        yield browser
        browser.close()


@contextmanager
def served(retriever, **settings):
    """The address of a server over ``retriever``."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(create_app(retriever, ServeSettings(**settings)), log_level="warning"))
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    server.should_exit = True
    thread.join()
