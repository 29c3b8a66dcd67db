"""Lets `python -m incognita.cli` do what `incognita` does."""

from incognita.cli import main

main()
