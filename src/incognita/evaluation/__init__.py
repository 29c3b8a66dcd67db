"""The order of work: `evaluate` and `certify`, from models, files and arrays to results."""
