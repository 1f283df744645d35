"""Access control: the host names that the server answers to, its bearer token, and the rate limit per client."""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import socket
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from gnnretrieval.errors import InputError
from gnnretrieval.serve.listening import is_loopback_address

_SHORTEST = 16  # minimum characters of a token
_LONGEST = 4096  # maximum bytes of a token and of its file
_EXTRA = 20  # burst beyond a second's requests: the explorer's page sends about ten at once
_NAME = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_ADDRESSES = 10_000  # maximum number of clients that are remembered


def read_token(path: Path) -> str:
    """The token in a file: its only line.

    Raises:
        InputError: The file cannot be read, every user of this machine may read or write it, or it holds no token.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_LONGEST + 1)
    except OSError as error:
        raise InputError(f"the token cannot be read ({error.strerror}).", path) from None
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise InputError("every user of this machine can read or write this token: chmod 600 it.", path)
    token = text.strip()
    if not _SHORTEST <= len(token) <= _LONGEST or not all(33 <= byte < 127 for byte in token):
        raise InputError(
            f"this is no token: give one line of {_SHORTEST} or more letters and digits (openssl rand -hex 32).",
            path,
        )
    return token.decode("ascii")


def has_token(authorization: str, token: str) -> bool:
    """Whether an ``Authorization`` header carries the token; compared in constant time."""
    scheme, _, given = authorization.partition(" ")
    same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode())
    return same and scheme.lower() == "bearer"


class Names:
    """Host names that the server answers to.

    This stops DNS rebinding. A page of another site makes its name resolve to this server, sends that name as the host
    and is refused. IP addresses are safe, since they cannot be made to resolve elsewhere.

    Args:
        allowed: Further names, as :func:`host_name` takes them.
        on_loopback: Whether to accept only ``localhost`` and loopback addresses; otherwise also this machine's name
            and every IP address.
    """

    def __init__(self, allowed: Sequence[str], *, on_loopback: bool) -> None:
        own = ["localhost"] if on_loopback else ["localhost", socket.gethostname()]
        self._names = {_plain(name) for name in own} | {host_name(name) for name in allowed}
        self._on_loopback = on_loopback

    def __contains__(self, host: str) -> bool:
        """Whether ``host``, a ``Host`` header with or without a port, is accepted."""
        name = _name(host)
        if name in self._names or is_loopback_address(name):
            return True
        return not self._on_loopback and _is_address(name)


def host_name(given: str) -> str:
    """The name that ``Host`` headers give for a name of ``--allow-host``: without a port, and in ASCII.

    Raises:
        InputError: It is no name: an address of the web, for example, or a pattern.
    """
    text = given.strip()
    name = _plain(text) if _is_address(text) else _name(text)
    try:
        name = name if name.isascii() else name.encode("idna").decode()  # what browsers send for bücher.example
    except UnicodeError:
        name = ""
    if "/" in text or not (_NAME.fullmatch(name) or _is_address(name)):
        raise InputError(f"--allow-host {given}: this is no name. Give the name alone, such as search.example.org.")
    return name


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _name(host: str) -> str:
    """The host of a ``Host`` header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return _plain(host.partition(":")[0])


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Rate:
    """Rate limit by one token bucket per client: ``rate`` requests a second, with a burst.

    Only the 10,000 most recent clients are remembered. A client is an IPv4 address or an IPv6 network of 64 bits, of
    which one machine can use every address.

    Args:
        rate: Requests a second.
        clock: A monotonic clock in seconds.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._most, self._clock = rate, rate + _EXTRA, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # by client: requests left, and when that was

    def wait(self, address: str) -> float:
        """Seconds until a client may send a request; 0: it may now, and the request is counted."""
        client, now = _client(address), self._clock()
        left, then = self._left.pop(client, (self._most, now))
        left = min(self._most, left + (now - then) * self._rate)
        wait = 0.0 if left >= 1 else (1 - left) / self._rate
        self._left[client] = (left if wait else left - 1, now)
        if len(self._left) > _ADDRESSES:
            self._left.popitem(last=False)
        return wait


def _client(address: str) -> str:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((ip, 64), strict=False))
    return address
