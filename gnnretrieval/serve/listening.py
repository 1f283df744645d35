"""The socket that the server listens on, and how many connections this process can hold."""

from __future__ import annotations

import errno
import ipaddress
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gnnretrieval.errors import GnnRetrievalError

_QUEUE = 2048  # connections that may wait to be accepted
AT_ONCE = 64  # connections that are accepted in one go
_SPARE = 64  # descriptors that are left for other files
_FEWEST = 16  # minimum number of connections that is worth serving
_MOST = 65536  # descriptors: more would only enlarge the system's tables
_NO_MORE = (errno.EMFILE, errno.ENFILE)


class Listener(socket.socket):
    """A socket that accepts a connection even if no descriptor is left, and then closes it at once.

    One descriptor is kept in reserve for this. Without it, the connection would stay in the queue, and the event loop
    would retry it again and again, with a line in the log each time.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._kept = os.open(os.devnull, os.O_RDONLY)

    def listen(self, backlog: int = _QUEUE, /) -> None:
        """Listen with a long queue, even if ``backlog`` is short: asyncio also accepts that many in one go."""
        super().listen(max(backlog, _QUEUE))

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection.

        Raises:
            ConnectionAbortedError: No descriptor is left, so the connection was closed.
        """
        try:
            return super().accept()
        except OSError as error:
            if error.errno not in _NO_MORE:
                raise
        os.close(self._kept)
        try:
            with suppress(OSError):
                super().accept()[0].close()
        finally:
            self._kept = os.open(os.devnull, os.O_RDONLY)
        raise ConnectionAbortedError(errno.ECONNABORTED, "no descriptor is left for it")

    def close(self) -> None:
        """Close the socket and the reserve descriptor."""
        if self.fileno() >= 0:
            os.close(self._kept)
        super().close()


@contextmanager
def bound(host: str, port: int) -> Iterator[Listener]:
    """A socket that is bound to the address but does not listen yet, so that a taken port is noticed before loading.

    Raises:
        GnnRetrievalError: The address is unknown, in use or not permitted.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = Listener(family, kind, protocol)
    except OSError as error:
        raise GnnRetrievalError(
            f"{host}: this address cannot be had ({error.strerror}). Give another --host."
        ) from None
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just released can be bound
        try:
            listener.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                message = f"port {port} of {host} is in use: stop what uses it, or give another --port."
            elif error.errno == errno.EACCES:
                message = f"port {port} wants more rights than you have: give a --port from 1024 on."
            else:
                message = f"{host}: this address cannot be had ({error.strerror}). Give another --host."
            raise GnnRetrievalError(message) from None
        yield listener


def is_loopback(listener: socket.socket) -> bool:
    """Whether a socket can be reached from this machine only."""
    return is_loopback_address(listener.getsockname()[0])


def is_loopback_address(text: str) -> bool:
    """Whether a text is a loopback address: one in 127.0.0.0/8, also when mapped to IPv6, or ::1."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def connections_that_fit(wanted: int) -> int:
    """Number of connections that may be open, at most ``wanted``, so that descriptors are left for the index's files.

    Call it when the index is open: the files that are open now count twice, since a reload opens as many again. The
    soft limit of descriptors is raised first.

    Raises:
        GnnRetrievalError: Fewer than 16 connections fit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    raised = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and raised > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = raised
    if soft == resource.RLIM_INFINITY:
        return wanted
    fit = min(wanted, soft - 2 * _open_files() - 2 * AT_ONCE - _SPARE)
    if fit < _FEWEST:
        raise GnnRetrievalError(f"only {soft:,} files may be open (ulimit -n): allow 1,024.")
    return fit
