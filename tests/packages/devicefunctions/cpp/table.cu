// Call Python functions through function pointers, and one with a pointer to the caller's state.
#include <cstdio>

#include "devicefunctions_plain.h"

typedef float (*Operation)(float, float);
__device__ Operation operations[] = {add_f32, times_f32};

extern "C" __global__ void apply(int which, float x, float y, float *state, float *out)
{
    out[0] = operations[which](x, y);
    out[1] = scaled(out[0], state);
    split_result parts = split(out[1]);
    out[2] = (float)parts.item0;
    out[3] = parts.item1.item0;
    devicefunctions_plain_particle p = {0, 0, {1, 2, 2}, {0, 0}};
    out[4] = length(&p);
    aotcuda_complex64 z = times_c64(1, 2, 3, 4);
    out[5] = z.real;
    out[6] = z.imag;
    out[7] = total(nullptr, nullptr, 7, sizeof(float), out, 7, sizeof(float));
}

int main()
{
    float *data, host[10] = {0, 0, 0, 0, 0, 0, 0, 0, 1.25f, 0};
    for (int which = 0; which < 2; which++) {
        if (cudaMalloc(&data, sizeof host) != cudaSuccess) return 1;
        cudaMemcpy(data, host, sizeof host, cudaMemcpyHostToDevice);
        apply<<<1, 1>>>(which, 3, 4, data + 8, data);
        float out[10];
        if (cudaMemcpy(out, data, sizeof out, cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
        for (float value : out) std::printf("%g ", value);
        std::printf("\n");
    }
    return 0;
}
