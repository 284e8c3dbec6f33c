// A box with periodic walls.
struct Box {
    float low, high;
};

extern "C" __device__ float wrapped(float x, float low, float high)
{
    float length = high - low;
    return x < low ? x + length : x >= high ? x - length : x;
}

// One thread for each particle; position and velocity have three columns.
extern "C" __global__ void push(float *position, const float *velocity, unsigned n, float dt, Box box)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        for (int axis = 0; axis < 3; axis++)
            position[3 * i + axis] = wrapped(position[3 * i + axis] + dt * velocity[3 * i + axis], box.low, box.high);
}

template <class T> __global__ void fill(T *x, T value, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] = value;
}
