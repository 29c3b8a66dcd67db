"""Numerics shared by several methods: statistics, distances, neighbor search."""
