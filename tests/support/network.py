"""A wall around the test process: no socket leaves this machine while it stands."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

_LOCAL = ("127.", "::1", "localhost", "0.0.0.0")


class NetworkTouched(AssertionError):
    """Something tried to reach another machine. Not an OSError: nothing may swallow it."""


@contextmanager
def no_network() -> Generator[None]:
    """Refuse connections, datagrams and name look-ups beyond this machine."""
    real_connect, real_connect_ex = socket.socket.connect, socket.socket.connect_ex
    real_sendto, real_lookup = socket.socket.sendto, socket.getaddrinfo

    def connect(self: socket.socket, address: Any) -> None:
        _refuse_remote(self.family, address)
        real_connect(self, address)

    def connect_ex(self: socket.socket, address: Any) -> int:
        _refuse_remote(self.family, address)
        return real_connect_ex(self, address)

    def sendto(self: socket.socket, *args: Any) -> int:
        _refuse_remote(self.family, args[-1])
        return real_sendto(self, *args)

    def lookup(host: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_remote(socket.AF_INET, (host, 0))
        return real_lookup(host, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect)
        patch.setattr(socket.socket, "connect_ex", connect_ex)
        patch.setattr(socket.socket, "sendto", sendto)
        patch.setattr(socket, "getaddrinfo", lookup)
        yield


def _refuse_remote(family: int, address: Any) -> None:
    if family not in (socket.AF_INET, socket.AF_INET6):
        return
    host = address[0]
    if isinstance(host, bytes):
        host = host.decode()
    if host and not str(host).startswith(_LOCAL):
        raise NetworkTouched(f"something reached for {host}")
