"""Tests of lsp_server/verification; those that need Pyright use the real one."""
