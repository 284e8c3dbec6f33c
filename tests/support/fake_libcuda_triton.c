/* The stand-in driver for launches by Triton: the functions that Triton's driver calls and the run time does not. Triton uses
 * a device's handle as its ordinal, and passes a pointer for each parameter; FAKE_CUDA_SIZES has the parameters' sizes. */
#define FIRST_DEVICE 0
#define TAKES_POINTERS 0
#define cuDeviceGetAttribute known_attribute
#include "fake_libcuda.c"
#undef cuDeviceGetAttribute

/* Triton reads clocks and other attributes, and uses few of them. */
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    int code = known_attribute(value, attribute, device);
    if (code == INVALID_VALUE)
        *value = attribute == 10 ? 32 : 65536; /* threads of a warp; registers of a block */
    return code == INVALID_VALUE ? SUCCESS : code;
}

EXPORT int cuModuleLoadData(Library **module, const uint8_t *code) {
    return cuLibraryLoadData(module, code, NULL, NULL, 0, NULL, NULL, 0);
}

EXPORT int cuModuleGetFunction(Kernel **function, Library *module, const char *name) {
    return cuLibraryGetKernel(function, module, name);
}

EXPORT int cuModuleUnload(Library *module) { return cuLibraryUnload(module); }

EXPORT int cuFuncGetAttribute(int *value, int attribute, Kernel *function) {
    return cuKernelGetAttribute(value, attribute, function, FIRST_DEVICE);
}

EXPORT int cuFuncSetAttribute(Kernel *function, int attribute, int value) {
    return attribute == 8 ? cuKernelSetAttribute(attribute, value, function, FIRST_DEVICE) : INVALID_VALUE;
}

EXPORT int cuFuncSetCacheConfig(Kernel *function, int config) {
    (void)function, (void)config;
    return SUCCESS;
}

EXPORT int cuCtxGetLimit(size_t *value, int limit) {
    (void)limit;
    *value = 0;
    return SUCCESS;
}

EXPORT int cuCtxSetLimit(int limit, size_t value) {
    (void)limit, (void)value;
    return SUCCESS;
}

EXPORT int cuPointerGetAttributes(unsigned count, int *attributes, void **data, uint64_t address) {
    (void)count, (void)attributes, (void)data, (void)address;
    return INVALID_VALUE;
}
