"""What the arguments of a launch mean: overloads, parameter blocks, arrays, scalars."""
