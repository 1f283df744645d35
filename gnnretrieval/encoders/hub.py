"""Checkpoints of the model hub: from its cache without a request, otherwise downloaded while bytes arrive."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gnnretrieval.errors import GnnRetrievalError, InputError
from gnnretrieval.progress import say

WAIT_VARIABLE = "GNNRETRIEVAL_HUB_WAIT"
_WAIT = 30.0  # seconds without a byte, after which a download is given up
_WANTED = ("*.json", "*.txt", "*.model", "*.safetensors")
_LOOK = 0.1  # seconds between two checks of what has arrived


class HubError(GnnRetrievalError):
    """The hub does not give the checkpoint."""


def cached(name: str) -> Path | None:
    """Directory of the checkpoint ``name`` in the hub's cache; None if it is not there, or not whole.

    Raises:
        InputError: ``name`` cannot be a hub name.
    """
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        snapshot = snapshot_download(
            name, cache_dir=constants.HF_HUB_CACHE, allow_patterns=list(_WANTED), local_files_only=True
        )
    except HFValidationError:
        raise InputError("no such directory, and no name that a model hub could have. Check the path.", name) from None
    except (OSError, ValueError):
        return None
    return Path(snapshot) if _is_whole(Path(snapshot)) else None


def download(name: str) -> Path:
    """Download the checkpoint ``name`` into the hub's cache; returns its directory.

    Raises:
        HubError: The hub does not have it, refuses, cannot be reached, or gives no byte for 30 seconds
            (``GNNRETRIEVAL_HUB_WAIT``).
        InputError: ``GNNRETRIEVAL_HUB_WAIT`` is not a number of seconds.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise HubError("HF_HUB_OFFLINE is set.")
    wait, cache = _seconds(), Path(constants.HF_HUB_CACHE)
    say(
        f"checkpoint {name!r}: waiting for the model hub, {constants.ENDPOINT}; it is given up after {wait:g} s "
        f"without a byte ({WAIT_VARIABLE}). A directory instead of a name needs no hub."
    )
    program = Path(__file__).with_name("hub_process.py")
    # Xet stores arriving bytes elsewhere, so that a download would seem to hang.
    process = subprocess.Popen(
        [sys.executable, str(program), name, str(cache), *_WANTED],
        stdout=subprocess.PIPE,
        text=True,
        env={"HF_HUB_DISABLE_XET": "1", **os.environ},
    )
    try:
        _await(process, cache / f"models--{name.replace('/', '--')}", wait)
        answer = process.stdout.read() if process.stdout else ""
    finally:
        process.kill()
        process.wait()
    try:
        result = json.loads(answer)
        return Path(result["directory"])
    except ValueError:
        raise HubError(f"the download ended with exit code {process.returncode}.") from None
    except KeyError:
        raise HubError(result["reason"].rstrip(".") + ".") from None


def _await(process: subprocess.Popen[str], place: Path, wait: float) -> None:
    """Wait for the end of ``process``, for as long as the files at ``place`` change."""
    size, last = -1, time.monotonic()
    while process.poll() is None:
        time.sleep(_LOOK)
        if (now := _bytes_at(place)) != size:
            size, last = now, time.monotonic()
        elif time.monotonic() - last > wait:
            raise HubError(f"it gave no byte for {wait:g} seconds.")


def _bytes_at(place: Path) -> int:
    total = 0
    for file in place.rglob("*"):
        with suppress(FileNotFoundError):  # it was renamed in between
            total += 1 + file.lstat().st_size
    return total


def _seconds() -> float:
    text = os.environ.get(WAIT_VARIABLE) or str(_WAIT)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InputError(f"{WAIT_VARIABLE} is {text!r}: give seconds, such as 30.")
    return seconds


def _is_whole(directory: Path) -> bool:
    """Whether the checkpoint in ``directory`` is complete, as far as its own files tell."""
    shards: set[str] = set()
    modules: Sequence[dict[str, str]] = []
    try:
        for index in directory.glob("*.safetensors.index.json"):
            shards |= {*json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
        if (directory / "modules.json").is_file():
            modules = json.loads((directory / "modules.json").read_text(encoding="utf-8"))
        folders = [module["path"] for module in modules if not module["type"].endswith(".Normalize")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    has_words = any(any(directory.glob(pattern)) for pattern in ("tokenizer*", "vocab*", "*.model"))
    has_weights = any(directory.rglob("*.safetensors"))
    return has_words and has_weights and all((directory / name).exists() for name in (*shards, *folders))
