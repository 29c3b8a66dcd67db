"""Looking into a network: its linear head, its layers, hooks on their outputs."""
