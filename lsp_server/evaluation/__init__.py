"""How good completions are: benchmark tasks, run in a sandbox, with honest intervals."""
