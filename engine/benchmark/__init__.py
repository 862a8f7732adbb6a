"""Measuring the engine: `python -m engine.benchmark` is a process that measures on request.

It is a process of its own so that its caller can hold it still while a rival is measured, and
so that nobody's other work shares its threads. Nothing is imported here.
"""
