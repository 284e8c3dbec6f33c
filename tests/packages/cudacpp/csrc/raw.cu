#include "factor.h"

extern "C" __global__ void scale(float a, float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] *= factor(a);
}

extern "C" __global__ void copy(const double *from, double *to, long long n)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n)
        to[i] = from[i];
}
