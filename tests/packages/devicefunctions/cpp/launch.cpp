// Launch a packaged kernel from C++, without a CUDA compiler and Python; the argument is the path of kernels.fatbin.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>

#include "devicefunctions_launched.h"

static void check(CUresult status)
{
    const char *name = "";
    if (status == CUDA_SUCCESS) return;
    cuGetErrorName(status, &name);
    std::fprintf(stderr, "%s\n", name);
    std::exit(1);
}

int main(int, char **argv)
{
    CUdevice device;
    CUcontext context;
    CUlibrary library;
    CUkernel kernel;
    check(cuInit(0));
    check(cuDeviceGet(&device, 0));
    check(cuDevicePrimaryCtxRetain(&context, device));
    check(cuCtxSetCurrent(context));
    check(cuLibraryLoadFromFile(&library, argv[1], nullptr, nullptr, 0, nullptr, nullptr, 0));
    check(cuLibraryGetKernel(&kernel, library, "axpy"));

    const long long n = 1000, size = sizeof(float);
    float host[n];
    CUdeviceptr data[3];
    for (CUdeviceptr &array : data) {
        for (long long i = 0; i < n; i++) host[i] = (float)i;
        check(cuMemAlloc(&array, sizeof host));
        check(cuMemcpyHtoD(array, host, sizeof host));
    }

    devicefunctions_launched_axpy_parameters parameters = {};
    parameters.a = 2.0f;
    parameters.x = {0, 0, n, size, (float *)data[0], n, size};
    parameters.y = {0, 0, n, size, (float *)data[1], n, size};
    parameters.out = {0, 0, n, size, (float *)data[2], n, size};
    size_t bytes = devicefunctions_launched_axpy_parameter_bytes;
    void *options[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &parameters, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                       CU_LAUNCH_PARAM_END};
    check(cuLaunchKernel((CUfunction)kernel, (n + 255) / 256, 1, 1, 256, 1, 1, 0, nullptr, nullptr, options));
    check(cuMemcpyDtoH(host, data[2], sizeof host));
    for (long long i = 0; i < n; i++)
        if (host[i] != 3.0f * (float)i) return 2;
    std::printf("%g\n", host[n - 1]);
    return 0;
}
