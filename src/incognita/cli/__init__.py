"""The command line: one file per command; nothing heavy is imported before a command runs."""

from incognita.cli.app import main as main

__all__ = ["main"]
