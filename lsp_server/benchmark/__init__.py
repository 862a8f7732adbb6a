"""Measuring Ghostwright beside its rivals, on one machine, in one run."""
