#include <add.cuh>
#include <mul.cuh>

// The C ABI: an ordinary function that returns its result.
extern "C" __device__ float saxpy(float a, float x, float y)
{
    return plus(times(a, x), y);
}
