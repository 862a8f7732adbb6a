"""Keys and values of what was read and written so far."""
