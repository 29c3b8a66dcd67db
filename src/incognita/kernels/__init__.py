"""Hot loops, compiled by numba: unchecked arrays in, arrays out; every check is made before."""
