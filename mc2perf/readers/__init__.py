"""Files to dataclasses."""
