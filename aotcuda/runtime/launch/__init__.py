"""Launch a kernel: configuration, arguments, overload, streams, the driver."""

# launcher            a kernel with its configuration; config_key: finds a cached launcher
# for_all             `kernel.forall(n)(...)`
# grid_kernel         kernels that are launched by their grid alone; grid_binding: their arguments
# general_path        one launch, from the arguments to the driver; specialize: adds it to the fast path
# launch_config       grid, block, stream and shared memory; launch_attributes: clusters, priorities, ...
# launch_problems     errors before and after a launch
# xla_call            launches inside programs that XLA compiles
# scratch_memory      memory that kernels of Triton need beside their arguments
# arguments/          reads arguments, selects overloads, packs parameter blocks
# fast/               the fast path in C; launch.h introduces it
