"""The run time: load -> choose -> dispatch -> launch, with the standard library alone.

    module      what a generated module calls; reads the manifest when something in it is first needed
    program     the module's images, loaded into the driver
    choose      which image each GPU takes, and why
    kernel      what users index and call: `kernel[grid, block](...)`
    dispatch    which overload the arguments select, or why none does
    plan        how one overload's arguments lie in its parameter block
    parameters  the kinds of parameters: what an argument means, described once for all paths of a launch
    scalars     which Python values count as numbers, and which parameters take them
    arrays      reading device arrays of every library
    specialise  the launch's fast path in Python; accelerate: that in C
    launch      the launch itself, and the limits that a configuration must keep
    driver      libcuda through ctypes

An import with `load = "first-use"` reads `module` alone; everything else is imported by what first needs it.
"""
