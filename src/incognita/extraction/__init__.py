"""The one pass: the only folder that runs a model."""
