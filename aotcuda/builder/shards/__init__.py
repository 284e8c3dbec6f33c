"""Divide a build among machines."""
