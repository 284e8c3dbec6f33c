// c.cu and d.cu form one image, because c.cu calls a function of d.cu and reads its variable.
extern __device__ float lift(float x);
extern __constant__ float factor;

extern "C" __global__ void c(float *o)
{
    o[0] = lift(2);
    o[1] = factor;
}
