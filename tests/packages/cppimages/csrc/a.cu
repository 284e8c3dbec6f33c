#define STEP 2
inline __device__ float shift(float x) { return x + STEP; }
__device__ __noinline__ __attribute__((weak)) float weak(float x) { return x * STEP; }
template <class T> __device__ __noinline__ T twice(T x) { return 2 * x + STEP; }
namespace { __device__ __noinline__ float hidden(float x) { return x - STEP; } }
namespace ns { struct Step { __device__ __noinline__ float operator()(float x) const { return x / STEP; } }; }
static __device__ const float table[2] = {10, 10 + 1};
__constant__ float x[2] = {10, 10 + 5};
__device__ float calls = 0;

extern "C" __global__ void k(float *o)
{
    o[0] = shift(1);
    o[1] = weak(1);
    o[2] = twice(1.0f);
    o[3] = hidden(1);
    o[4] = ns::Step()(6);
    o[5] = table[threadIdx.x];
    o[6] = x[threadIdx.x];
    o[7] = atomicAdd(&calls, 1);
}
