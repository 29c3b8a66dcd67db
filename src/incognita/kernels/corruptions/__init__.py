"""Loops over the pixels of corrupted images."""
