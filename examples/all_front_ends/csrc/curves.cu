extern "C" __device__ float logistic(float x)
{
    return 1 / (1 + expf(-x));
}

extern "C" __global__ void squash(float *x, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] = logistic(x[i]);
}
