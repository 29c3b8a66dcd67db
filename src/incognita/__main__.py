"""Lets `python -m incognita` do what `incognita` does."""

from incognita.cli import main

main()
