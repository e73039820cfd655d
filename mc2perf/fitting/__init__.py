"""Parameters from measurements: robust least squares, and message-size curves with cliffs."""
