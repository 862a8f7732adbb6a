"""Everything the server can refuse, as a tree of typed exceptions.

    ServerError
    ├── SettingsError          a setting that does not exist or has an impossible value
    ├── BadLocation            FILE:LINE:COLUMN that cannot be read
    │   ├── FileUnreadable     missing, a folder, binary, or not UTF-8
    │   └── PositionOutside    the line or column is past the end
    ├── BadAddress             not HOST:PORT, or an address this machine cannot listen at
    ├── AddressInUse           another program listens there
    └── CheckerUnavailable     Pyright is not installed, died, or did not answer in time

Each carries one line of what happened and one of what to do; the command line prints
both and exits with 2, the server turns them into an LSP error or a log line.
"""

from __future__ import annotations

from engine import Explained


class ServerError(Explained):
    """Base of all server errors."""


class SettingsError(ServerError):
    """A setting does not exist, or its value is impossible."""


class BadLocation(ServerError):
    """The place to complete at cannot be used."""


class FileUnreadable(BadLocation):
    """The file is missing, a folder, binary, or not UTF-8."""


class PositionOutside(BadLocation):
    """The line or column lies past the end."""


class BadAddress(ServerError):
    """An address is not HOST:PORT, or this machine cannot listen at it."""


class AddressInUse(ServerError):
    """Another program already listens at the address."""


class CheckerUnavailable(ServerError):
    """The type checker is not installed, died, or did not answer in time."""
