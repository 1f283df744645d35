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

_QUEUE = 2048  # connections that may wait to be taken
AT_ONCE = 64  # of them that are taken together
_SPARE = 64  # descriptors that are left for files
_FEWEST = 16  # connections below which serving makes no sense
_MOST = 65536  # descriptors: more only make the tables of the system larger
_NO_MORE = (errno.EMFILE, errno.ENFILE)


class Listener(socket.socket):
    """A socket that takes a connection even where no descriptor is left, and closes it at once.

    A descriptor is kept for that. Without it, the connection would stay in the queue, and the event loop would try to
    take it again and again, with a line in the log each time.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._kept = os.open(os.devnull, os.O_RDONLY)

    def listen(self, backlog: int = _QUEUE, /) -> None:
        """Listen, with a long queue however few are taken together."""
        super().listen(max(backlog, _QUEUE))

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection.

        Raises:
            ConnectionAbortedError: it had to be closed, since no descriptor is left.
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
        """Close it, and the descriptor that was kept."""
        if self.fileno() >= 0:
            os.close(self._kept)
        super().close()


@contextmanager
def bound(host: str, port: int) -> Iterator[Listener]:
    """A socket that has the address, before any work is done for it.

    Raises:
        GnnRetrievalError: the address cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = Listener(family, kind, protocol)
    except OSError as error:
        raise GnnRetrievalError(
            f"{host}: this address cannot be had ({error.strerror}). Give another --host."
        ) from None
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just left can be had again
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
    """Whether only this machine reaches a socket."""
    return is_loopback_address(listener.getsockname()[0])


def is_loopback_address(text: str) -> bool:
    """Whether a text is an address of this machine alone: 127.0.0.0/8, ::1, and the former written as IPv6."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def connections_that_fit(wanted: int) -> int:
    """How many connections may be open, ``wanted`` at most, so that descriptors are left for the index's files.

    Call it when the index is open: a reload opens as many files again. The soft limit is raised first.

    Raises:
        GnnRetrievalError: hardly any descriptors are left.
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
