"""Two hosts on one machine: network namespaces with an address each, on one bridge. It wants root and iproute2."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

BIN = Path(sys.executable).parent
HOSTS = ("10.77.0.1", "10.77.0.2")
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "eth0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}


def call(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program; its output is kept."""
    return subprocess.run([*map(str, words)], text=True, capture_output=True, env=ENVIRONMENT, **options)


def on_host(number: int, *words: object) -> list[str]:
    """The command that runs a program on a host."""
    return [*map(str, ("ip", "netns", "exec", f"gnnr{number}", *words))]


def processes(host: int) -> list[int]:
    """Processes of a host."""
    return [int(process) for process in call("ip", "netns", "pids", f"gnnr{host}").stdout.split()]


class Hosts:
    """The two hosts, while the block runs. They share the file system."""

    def __enter__(self) -> Self:
        self._take_down()
        steps = [
            *("link add gnnr-bridge type bridge", "link set gnnr-bridge up"),
            *(
                step
                for number, address in enumerate(HOSTS)
                for step in (
                    f"netns add gnnr{number}",
                    f"link add gnnr-veth{number} type veth peer name eth0 netns gnnr{number}",
                    f"link set gnnr-veth{number} master gnnr-bridge up",
                    f"-n gnnr{number} addr add {address}/24 dev eth0",
                    f"-n gnnr{number} link set eth0 up",
                    f"-n gnnr{number} link set lo up",
                )
            ),
        ]
        for step in steps:
            call("ip", *step.split(), check=True)
        return self

    def __exit__(self, *of_error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._take_down()

    def _take_down(self) -> None:
        for number in range(len(HOSTS)):
            call("ip", "netns", "del", f"gnnr{number}")
            call("ip", "link", "del", f"gnnr-veth{number}")
        call("ip", "link", "del", "gnnr-bridge")
