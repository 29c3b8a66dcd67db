"""Who does what when: from files and arrays to results."""
