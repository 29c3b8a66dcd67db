"""What moves between the stages: frozen dataclasses of arrays, checked once, at the door."""
