"""A shop's stock and orders: the code that the demo works on. It is never changed there."""
