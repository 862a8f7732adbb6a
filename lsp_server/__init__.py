"""Ghostwright's language server: completions that Pyright has checked."""
