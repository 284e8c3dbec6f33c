"""Launch a kernel: configuration, arguments, overload, streams, the driver."""

# execute             a kernel with its configuration, and its launch, from the arguments to the driver
# config_key          reads streams and integers of a configuration
# for_all             `kernel.forall(n)(...)`
# grid_kernel         kernels that are launched by their grid alone; grid_binding: their arguments
# specialize          adds a launch to the fast path
# launch_config       grid, block, stream and shared memory; launch_attributes: clusters, priorities, ...
# launch_problems     errors before and after a launch
# xla_call            launches inside programs that XLA compiles
# scratch_memory      memory that kernels of Triton need beside their arguments
# arguments/          reads arguments, selects overloads, packs parameter blocks
# fast/               the fast path in C; launch.h introduces it
