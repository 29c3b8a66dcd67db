"""Containers passed between the stages: frozen dataclasses of arrays, validated on creation."""
