"""Files and words to dataclasses, every problem with its place."""
