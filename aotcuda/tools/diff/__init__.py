"""`aotcuda diff`: compare two states of a packaged module."""
