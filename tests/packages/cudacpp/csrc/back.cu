extern "C" __device__ float twice(float x);

extern "C" __global__ void doubled(float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] = twice(x[i]);
}
