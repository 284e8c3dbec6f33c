#include <cooperative_groups.h>

__constant__ float table[4] = {1, 2, 3, 4};
__device__ int calls;

// Each block writes its number, waits for all blocks, and reads the number of the next block.
extern "C" __global__ void synced(int *numbers, int *next) {
    numbers[blockIdx.x] = blockIdx.x;
    cooperative_groups::this_grid().sync();
    next[blockIdx.x] = numbers[(blockIdx.x + 1) % gridDim.x];
}

extern "C" __global__ void looked_up(float *out) {
    out[threadIdx.x] = table[threadIdx.x];
    atomicAdd(&calls, 1);
}

template <int N> __global__ void multiply_add(const float *x, float *out) {
    out[0] = x[0] * x[1] + x[2];
}
