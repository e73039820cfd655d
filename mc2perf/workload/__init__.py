"""Model and layout to segments: FLOPs, bytes, collectives."""
