"""The JIT fallback: compile on the user's machine the code that the wheel lacks; imported at the first use."""
