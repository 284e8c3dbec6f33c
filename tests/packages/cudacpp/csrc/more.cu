typedef struct CUtensorMap_st {
    alignas(64) unsigned long long opaque[16];
} CUtensorMap;

extern "C" __device__ float damped(float a, float x); // defined in raw.cu

extern "C" __global__ void transpose(const float *from, float *to, long pitch, unsigned rows)
{
    if (threadIdx.y < rows)
        to[threadIdx.x * rows + threadIdx.y] = ((const float *)((const char *)from + threadIdx.y * pitch))[threadIdx.x];
}

extern "C" __global__ void gather(float2 *points, const void *any, void *scratch, float **table)
{
    points[threadIdx.x].x = damped(1, *(const float *)any) + *table[0] + (scratch != nullptr);
}

extern "C" __global__ void tensor(int n, const __grid_constant__ CUtensorMap map, float *out)
{
    out[n] = map.opaque[0];
}

// Copy a row of 64 floats by a tensor map.
extern "C" __global__ void row(int number, const __grid_constant__ CUtensorMap map, float *out)
{
#if __CUDA_ARCH__ >= 900
    __shared__ alignas(128) float tile[64];
    __shared__ alignas(8) unsigned long long barrier;
    unsigned place = (unsigned)__cvta_generic_to_shared(tile), gate = (unsigned)__cvta_generic_to_shared(&barrier), there = 0;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(gate) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(gate) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(place), "l"(&map), "r"(0), "r"(number), "r"(gate)
                 : "memory");
    for (int i = 0; i < 1000000 && !there; i++) // with a wrong map nothing may arrive
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(there)
                     : "r"(gate)
                     : "memory");
    for (int i = 0; i < 64; i++)
        out[i] = there ? tile[i] : -1;
#endif
}
