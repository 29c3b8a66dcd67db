"""How fast incognita is, side by side with its peers: `python -m bench [group ...]`."""
