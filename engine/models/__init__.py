"""The decoder families the engine can run, from their configuration to their mathematics."""
