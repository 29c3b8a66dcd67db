"""The small trained networks that ship with the package."""
