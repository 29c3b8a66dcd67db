"""The embedded world: scenes rendered from a seed, with the truth of every object."""
