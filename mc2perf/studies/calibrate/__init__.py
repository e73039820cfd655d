"""A better profile from measurements: what can be fitted, what cannot, what is impossible."""
