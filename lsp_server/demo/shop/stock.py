"""What lies on the shelves, and what it is worth."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date


class OutOfStock(Exception):
    """Fewer pieces are on the shelf than were asked for."""


@dataclass(frozen=True, slots=True)
class Money:
    """An exact amount in one currency, counted in its smallest unit."""

    minor_units: int
    currency: str = "EUR"

    def plus(self, other: Money) -> Money:
        """The sum; both must be in one currency."""
        if other.currency != self.currency:
            raise ValueError(f"{self.currency} and {other.currency} do not add up")
        return Money(self.minor_units + other.minor_units, self.currency)

    def times(self, count: int) -> Money:
        """The amount, `count` times over."""
        return Money(self.minor_units * count, self.currency)

    def in_words(self) -> str:
        """For people: `12.50 EUR`."""
        whole, rest = divmod(self.minor_units, 100)
        return f"{whole}.{rest:02d} {self.currency}"


@dataclass(slots=True)
class Batch:
    """Pieces of one article that arrived together."""

    article: str
    pieces: int
    received_on: date
    unit_cost: Money

    def age_on(self, day: date) -> int:
        """Days on the shelf."""
        return (day - self.received_on).days


@dataclass(slots=True)
class Shelf:
    """Batches in the order in which they arrived; the oldest leave first."""

    _batches: deque[Batch] = field(default_factory=deque[Batch])

    def put_on(self, batch: Batch) -> None:
        """A delivery has come."""
        self._batches.append(batch)

    def on_hand(self, article: str) -> int:
        """Pieces of an article that are there."""
        return sum(batch.pieces for batch in self.each_batch() if batch.article == article)

    def each_batch(self) -> Iterator[Batch]:
        """The batches, oldest first."""
        yield from self._batches

    def take_off(self, article: str, pieces: int) -> None:
        """Pieces leave the shelf, those of the oldest batches first."""
        if self.on_hand(article) < pieces:
            raise OutOfStock(f"{pieces} of {article} wanted, {self.on_hand(article)} there")
        for batch in self.each_batch():
            if batch.article == article:
                taken = min(batch.pieces, pieces)
                batch.pieces -= taken
                pieces -= taken
        self._batches = deque(batch for batch in self._batches if batch.pieces)
