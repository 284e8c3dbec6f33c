"""The front end for cuTile: `@ct.kernel` functions of cuda-tile, compiled by its own compiler down to machine code."""
