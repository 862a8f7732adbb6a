"""Checking candidates with a type checker before anyone sees them."""
