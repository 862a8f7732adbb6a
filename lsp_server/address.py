"""`HOST:PORT`, as users write it."""

from __future__ import annotations

from dataclasses import dataclass

from lsp_server.errors import BadAddress


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `HOST:PORT`; an IPv6 host stands in brackets.

        Raises:
            BadAddress: it is not of that form.
        """
        host, colon, port = text.strip().rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise BadAddress(f"{text!r} is not HOST:PORT", "write an IPv6 host as [::1]:9000")
        if not colon or not host or not (port.isascii() and port.isdigit()):
            raise BadAddress(f"{text!r} is not HOST:PORT", "for example 127.0.0.1:9000")
        if int(port) > 0xFFFF:
            raise BadAddress(f"there is no port {port}", "ports go up to 65535")
        return cls(host, int(port))
