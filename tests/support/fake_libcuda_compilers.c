/* The stand-in driver for launches by Numba-CUDA and Numba-CUDA-MLIR: the functions that these call and the run time does not.
 *
 * cuda.bindings finds every function by cuGetProcAddress, and cuda.core uses a device's handle as its ordinal. Kernels are
 * compiled, and not run.
 */
#define FIRST_DEVICE 0
#define TAKES_POINTERS 1
#include "fake_libcuda.c"

#include <dlfcn.h>

EXPORT int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    (void)version, (void)flags;
    static void *own;
    Dl_info info;
    if (!own && dladdr((void *)cuGetProcAddress_v2, &info))
        own = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    *function = NULL;
    for (const char **suffix = (const char *[]){"_v2", "", NULL}; *suffix && !*function; suffix++) {
        char name[128];
        snprintf(name, sizeof name, "%s%s", symbol, *suffix);
        *function = dlsym(own, name);
    }
    if (status)
        *status = !*function; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
    return *function ? SUCCESS : NOT_FOUND;
}

EXPORT int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    memset(uuid, device, 16);
    return SUCCESS;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device) { return ordinal(device) < 0 ? INVALID_DEVICE : SUCCESS; }

EXPORT int cuMemcpyHtoDAsync_v2(uint64_t address, const void *host, size_t size, void *stream) {
    (void)stream;
    return cuMemcpyHtoD_v2(address, host, size);
}

EXPORT int cuMemcpyDtoHAsync_v2(void *host, uint64_t address, size_t size, void *stream) {
    (void)stream;
    return cuMemcpyDtoH_v2(host, address, size);
}

EXPORT int cuLibraryGetModule(Library **module, Library *library) {
    *module = library;
    return SUCCESS;
}

EXPORT int cuModuleGetGlobal_v2(uint64_t *address, size_t *size, Library *module, const char *name) {
    return cuLibraryGetGlobal(address, size, module, name);
}

EXPORT int cuFuncGetAttribute(int *value, int attribute, Kernel *function) {
    if (attribute == 8) { /* dynamic shared memory */
        *value = function->dynamic_shared[0] ? function->dynamic_shared[0] : 49152;
        return SUCCESS;
    }
    return cuKernelGetAttribute(value, attribute, function, FIRST_DEVICE);
}

EXPORT int cuFuncSetAttribute(Kernel *function, int attribute, int value) {
    return cuKernelSetAttribute(attribute, value, function, FIRST_DEVICE);
}
