typedef struct CUtensorMap_st {
    alignas(64) unsigned long long opaque[16];
} CUtensorMap;

extern "C" __device__ float damped(float a, float x); // of the other file

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
