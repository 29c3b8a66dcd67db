"""Builders of near, far and farther splits."""
