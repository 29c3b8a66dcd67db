"""Read and write the annotation formats others use; each format has one module of public names."""
