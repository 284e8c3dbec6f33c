"""A user's two functions for the C++ program in cpp/."""
