"""Pure NumPy functions of numbers: no objects, no files, SI units throughout."""
