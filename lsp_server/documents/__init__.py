"""Documents as values: immutable text with a version, and offsets into it."""
