"""Orders: what a customer wants, what it costs, and what is left to send."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from enum import Enum

from .stock import Batch, Money, OutOfStock, Shelf


class State(Enum):
    """How far an order has come."""

    OPEN = "open"
    PACKED = "packed"
    SENT = "sent"
    CALLED_OFF = "called off"


@dataclass(frozen=True, slots=True)
class Line:
    """One article of an order."""

    article: str
    pieces: int
    unit_price: Money

    def price(self) -> Money:
        """What this line costs."""
        return self.unit_price.times(self.pieces)


@dataclass(slots=True)
class Order:
    """What one customer wants."""

    number: int
    customer: str
    ordered_on: date
    lines: list[Line] = field(default_factory=list[Line])
    state: State = State.OPEN

    def total(self) -> Money:
        """What the whole order costs."""
        amount = Money(0)
        for line in self.lines:
            amount = amount.plus(line.price())
        return amount

    def summary(self) -> str:
        """One line for the customer."""
        cost = self.total().in_words()
        return f"Order {self.number} for {self.customer}: {len(self.lines)} lines, {cost}"

    def missing_from(self, shelf: Shelf) -> dict[str, int]:
        """The articles of which the shelf has too few, and how many pieces are missing."""
        missing: dict[str, int] = {}
        for line in self.lines:
            there = shelf.on_hand(line.article)
            if there < line.pieces:
                missing[line.article] = line.pieces - there
        return missing

    def pack(self, shelf: Shelf) -> None:
        """Take everything off the shelf, or nothing at all."""
        missing = self.missing_from(shelf)
        if missing:
            raise OutOfStock(f"order {self.number} lacks {missing}")
        for line in self.lines:
            shelf.take_off(line.article, line.pieces)
        self.state = State.PACKED

    def call_off(self) -> bool:
        """The customer has changed their mind; False when it is too late."""
        if self.state is State.SENT:
            return False
        self.state = State.CALLED_OFF
        return True


def oldest_batch(shelf: Shelf, article: str) -> Batch | None:
    """The batch of an article that has to leave first."""
    batches = [batch for batch in shelf.each_batch() if batch.article == article]
    return min(batches, key=lambda batch: batch.received_on, default=None)


def worth_of(shelf: Shelf) -> Money:
    """What everything on the shelf has cost."""
    worth = Money(0)
    for batch in shelf.each_batch():
        worth = worth.plus(batch.unit_cost.times(batch.pieces))
    return worth


def turnover(orders: Iterable[Order], first: date, last: date) -> Money:
    """What the orders of a period come to, those called off left out."""
    amount = Money(0)
    for order in orders:
        if first <= order.ordered_on <= last and order.state is not State.CALLED_OFF:
            amount = amount.plus(order.total())
    return amount


def receipt(order: Order) -> str:
    """The order as a text with one row per line."""
    rows = [f"Order {order.number} of {order.ordered_on.isoformat()}"]
    for line in order.lines:
        rows.append(f"{line.pieces:>4} x {line.article:<24} {line.price().in_words()}")
    rows.append(f"{'Total':<31} {order.total().in_words()}")
    return "\n".join(rows)


def ready_to_pack(orders: Iterable[Order], shelf: Shelf) -> list[Order]:
    """The open orders that the shelf can serve by itself, the oldest first."""
    open_orders = [order for order in orders if order.state is State.OPEN]
    open_orders.sort(key=lambda order: (order.ordered_on, order.number))
    return [order for order in open_orders if not order.missing_from(shelf)]
