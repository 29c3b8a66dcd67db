"""What we know: one record per number, stored and shown by everything that follows."""
