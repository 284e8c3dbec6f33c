// Keeps the elements of an array that a predicate accepts, changed by another function, in their order in each block.
// Both functions are Python: `aotcuda` compiled them into the wheel `udf`, whose header is included here. With link-time
// optimisation (-dlto) they are inlined, and the kernel is what it would be if they stood in this file.

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "udf_functions.h"

constexpr int BLOCK = 256;

__global__ void filter(const float *in, int n, float *state, float *out, int *count)
{
    __shared__ int first;
    int i = blockIdx.x * BLOCK + threadIdx.x;
    bool kept = i < n && udf_keep(in[i], state);

    // The place of each kept element among those of its block: the votes of its warp, then the sums of the warps.
    __shared__ int sums[BLOCK / 32];
    unsigned votes = __ballot_sync(0xffffffffu, kept);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int place = __popc(votes & ((1u << lane) - 1));
    if (lane == 0) sums[warp] = __popc(votes);
    __syncthreads();
    if (threadIdx.x == 0) {
        int total = 0;
        for (int w = 0; w < BLOCK / 32; w++) { int sum = sums[w]; sums[w] = total; total += sum; }
        first = atomicAdd(count, total);
    }
    __syncthreads();
    if (kept) out[first + sums[warp] + place] = udf_change(in[i]);
}

static void check(cudaError_t status)
{
    if (status != cudaSuccess) { std::fprintf(stderr, "%s\n", cudaGetErrorString(status)); std::exit(1); }
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? std::atoi(argv[1]) : 1000;
    float bounds[2] = {argc > 2 ? (float)std::atof(argv[2]) : 100.f, argc > 3 ? (float)std::atof(argv[3]) : 200.f};
    std::vector<float> host(n);
    for (int i = 0; i < n; i++) host[i] = (float)i;

    float *in, *out, *state;
    int *count, found = 0;
    check(cudaMalloc(&in, n * sizeof(float)));
    check(cudaMalloc(&out, n * sizeof(float)));
    check(cudaMalloc(&state, sizeof bounds));
    check(cudaMalloc(&count, sizeof found));
    check(cudaMemcpy(in, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    check(cudaMemcpy(state, bounds, sizeof bounds, cudaMemcpyHostToDevice));
    check(cudaMemset(count, 0, sizeof found));
    filter<<<(n + BLOCK - 1) / BLOCK, BLOCK>>>(in, n, state, out, count);
    check(cudaMemcpy(&found, count, sizeof found, cudaMemcpyDeviceToHost));
    check(cudaMemcpy(host.data(), out, found * sizeof(float), cudaMemcpyDeviceToHost));

    double sum = 0;
    for (int i = 0; i < found; i++) sum += host[i];
    std::printf("%d of %d kept, their sum is %.3f\n", found, n, sum);
    return 0;
}
