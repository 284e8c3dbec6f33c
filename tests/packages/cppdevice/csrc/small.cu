#include <cuda_bf16.h>
#include <cuda_fp8.h>

extern "C" __global__ void numbers(__nv_bfloat16 a, __nv_fp8_e4m3 b, __nv_fp8_e5m2 c, float *out)
{
    out[0] = __bfloat162float(a);
    out[1] = float(b);
    out[2] = float(c);
}

extern "C" __global__ void widened(const __nv_fp8_e4m3 *x, const __nv_bfloat16 *y, float *out)
{
    out[threadIdx.x] = float(x[threadIdx.x]) + __bfloat162float(y[threadIdx.x]);
}
