"""Answers to users' questions about a module or a kernel; no launch needs them."""
