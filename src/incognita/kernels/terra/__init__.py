"""Drawing loops of the embedded world Terra."""
