"""Split a wheel into wheels for one architecture each."""
