"""The run time: load -> choose -> select -> launch, with the standard library alone; docs/design.md draws the ways.

    module              what a generated module calls: `load`, and `Module` with what it exports
    kernel              what users index and call: `kernel[grid, block](...)`; for_all: `kernel.forall(n)(...)`
    launcher            one launch, from the arguments to the driver; stream_objects: what keeps a stream besides
    launch_problems     what stands against a launch, and what is said of one that has failed
    launch_config       grid, block, stream and shared memory: as written, as allowed, as the driver takes them
    kernel_attributes   what the driver and the disassembler tell of a kernel
    device_function     exported device functions, for kernels of Numba's compilers (`aotcuda.interop`)
    loader              which images are launched now; loading, replacing and unloading them; those of a wheel
    origins             where others come from: an editable install's, or those of a tree that was never built
    loaded              the images that are launched now, with the overloads of their kernels
    loaded_library      images in the driver, and their kernels on each GPU
    driver              libcuda; driver_errors: what its errors mean
    streams             streams of every library; `AOTCUDA_SYNCHRONIZE`: launches that wait
    c_types             the little of ctypes that this takes, without the rest of it

    arguments/          what an argument means, written once; the package itself: how one is read, by its type alone
        arrays, dlpack  device arrays of every library; views: what any of them may say of itself
        scalars         which Python values count as scalars, and which parameters take them
        parameters      the kinds of parameters, and what each takes; other_parameters: those beside numbers and arrays
        overloads       which overload the arguments select, and how they lie in its parameter block
        signature       the signature that arguments ask for, which the JIT fallback compiles
        host_arrays     `AOTCUDA_HOST_ARRAYS`: copies for one launch
        mismatch        the texts of errors: why nothing fits; problems: of one parameter; names: what types are called
    fast/               the same once more, fast: python writes functions, the package itself tells the C extension what
                        it learns; cupy_layout, torch_layout: where arrays have in memory what they tell
    images/             what only some images need: choice: which one a GPU takes, and why; subset; callbacks;
                        debug_exceptions: what debug kernels raise
    jit/                fallback: what was compiled, and what could not be; compile: from the cache or the builder;
                        recipe: what to build from; sources: whether it has changed; cache_key, cache, cache_files,
                        cache_lock

An import with `load = "first-use"` reads `module` alone; everything else is imported by what first needs it.
"""
