"""A scene of raystrack on the GPU, by each acceleration and query that has kernels of its own."""

from itertools import product

import numpy as np
from raystrack import Budget, Mesh, Query, Sampling, Scene, SolveOptions, Solver

vertices = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], np.float32)
faces = np.array([[0, 1, 2], [0, 2, 3]], np.int32)
options = SolveOptions(sampling=Sampling(density=16, rays_per_cell=8, seed=11))
for acceleration, sky, matrix in product(("flat", "instanced"), ("merged", "none", "tregenza"), (False, True)):
    scene = Scene.from_meshes(
        {"lower": Mesh(vertices, faces), "upper": Mesh(vertices + np.float32([0, 0, 1]), faces[:, ::-1])}
    )
    with Solver(scene, device="cuda", acceleration=acceleration) as solver:
        try:
            query = Query.matrix(sky=sky) if matrix else Query.row("lower", sky=sky)
        except (AttributeError, TypeError, ValueError) as error:
            print(error)
            continue
        solver.solve(query, options, Budget(rays=4096))
        scene.update_transform("upper", np.eye(4))
        solver.solve(query, options, Budget(rays=4096))
