"""A scene of raystrack on the GPU, by each acceleration and query that has kernels of its own."""

from itertools import product

import numpy as np
from raystrack import Budget, Mesh, Query, Sampling, Scene, SolveOptions, Solver

vertices = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], np.float32)
faces = np.array([[0, 1, 2], [0, 2, 3]], np.int32)
options = SolveOptions(sampling=Sampling(density=16, rays_per_cell=8, seed=11))
for acceleration, bvh, sky in product(("flat", "instanced"), ("builtin", "off"), ("merged", "tregenza145")):
    upper = Mesh(vertices + np.float32([0, 0, 1]), faces[:, ::-1])
    scene = Scene.from_meshes({"lower": Mesh(vertices, faces), "upper": upper})
    with Solver(scene, device="cuda", acceleration=acceleration, bvh=bvh) as solver:
        solver.solve(Query.row("lower", sky=sky), options, Budget(rays=4096))
