"""The fast paths of a launch, in Python and in C."""
