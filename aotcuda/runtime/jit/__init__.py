"""The JIT fallback: compiling on the user's machine what no wheel has; imported when it is first needed."""
