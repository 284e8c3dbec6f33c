/* A stand-in for libcuda.so.1: the driver's functions that the run time calls, over the host's memory.
 *
 * Environment variables set its behaviour; they are read at each call:
 *
 *   FAKE_CUDA_DEVICES   compute capabilities of its GPUs: "9.0,7.5" (default "9.0"; empty: no GPU). The process sees the GPUs
 *                       whose numbers CUDA_VISIBLE_DEVICES lists
 *   FAKE_CUDA_VERSION   the result of cuDriverGetVersion (default 13000)
 *   FAKE_CUDA_FAIL      "function=code" or "function=code@n" (only its n-th call), separated by ";"
 *   FAKE_CUDA_SYMBOLS   the kernels of the images, separated by "," (unset: images have every name)
 *   FAKE_CUDA_KERNEL    "threads=256,shared=1024" (and constant, local, registers): results of cuKernelGetAttribute
 *   FAKE_CUDA_STORE     "name=value" separated by ",": values that a launch stores in globals of the image
 *   FAKE_CUDA_STREAMS   "119=1" separated by ",": streams and the GPU of their context (unset: the current context)
 *   FAKE_CUDA_DEAD      "77" separated by ",": handles of streams that were destroyed
 *   FAKE_CUDA_CAPTURING "77" separated by ",": streams that are being captured, in global mode
 *   FAKE_CUDA_SIZES     "8,4" separated by ",": bytes of the parameters, if launches pass a pointer for each parameter
 *   FAKE_CUDA_FAULTY    a kernel that fails: after its launch every call returns CUDA_ERROR_ILLEGAL_ADDRESS
 *   FAKE_CUDA_LOG       a file; each call that changes something appends a JSON object
 *
 * Like the driver, it loads a fatbin or a cubin, and returns CUDA_ERROR_INVALID_IMAGE for other data and
 * CUDA_ERROR_NO_BINARY_FOR_GPU for images without an entry for its GPUs. fake_reset() resets all state. fake_hold(1) holds
 * launches inside the driver until fake_hold(0), and fake_await() waits until one is there. fake_destroy() does the same as
 * cuDevicePrimaryCtxReset for the first GPU.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#ifdef _WIN32 /* Python may use another C library with a copy of the variables. " " stands for an empty one */
#include <windows.h>
static const char *variable(const char *name) {
    char value[1024];
    DWORD length = GetEnvironmentVariableA(name, value, sizeof value);
    return length && length < sizeof value ? strdup(strcmp(value, " ") ? value : "") : NULL; /* tests end soon: not freed */
}
#define getenv variable
#endif

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    CONTEXT_IS_DESTROYED = 709,
    CAPTURE_UNSUPPORTED = 900
};

#ifndef FIRST_DEVICE /* fake_libcuda_compilers.c has others */
#define FIRST_DEVICE 10
#define TAKES_POINTERS 0 /* 1: launches have a list of pointers, not one buffer */
#endif
#define MOST_DEVICES 8
#define MOST_ALLOCATIONS 4096
#define MOST_NAMES 64

typedef struct {
    uint64_t magic;
    int loaded;
} Library;

typedef struct {
    uint64_t magic;
    Library *library;
    char name[256];
    int dynamic_shared[MOST_DEVICES];
    int large_clusters;
} Kernel;

typedef struct {
    uint64_t begin, size;
    int device;
} Allocation;

static const uint64_t LIBRARY_MAGIC = 0x4c49425241525921, KERNEL_MAGIC = 0x4b45524e454c2121;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t started_by;
static int contexts[MOST_DEVICES]; /* a context is the address of its element */
static int destroyed[MOST_DEVICES]; /* contexts that were reset, until they are retained again */
static int faulted; /* a kernel has failed */
static int held, waiting; /* launches are held inside the driver; their number */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static __thread int capture_mode; /* 0: global, 2: relaxed */
static int captured_events_count;

/* Streams that wait for an event of a captured one are captured with it. */
enum { MOST_JOINED = 64 };
static uintptr_t joined[MOST_JOINED];
static int joined_count;
static __thread int *current;
static __thread int *pushed[16];
static __thread int pushed_count;
static struct {
    char name[128];
    int32_t value;
} globals[MOST_NAMES];
static Allocation allocations[MOST_ALLOCATIONS];
static int allocation_count;
static struct {
    const char *name;
    int calls;
} counters[MOST_NAMES];

static void log_line(const char *format, ...) {
    const char *path = getenv("FAKE_CUDA_LOG");
    if (!path || !*path)
        return;
    char *line = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&line, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER; /* Windows does not append in one step */
    pthread_mutex_lock(&writing);
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0644);
    if (file >= 0) {
        if (write(file, line, length) != length)
            abort();
        close(file);
    }
    pthread_mutex_unlock(&writing);
    free(line);
}

/* Read the capabilities of the visible GPUs and their numbers on the machine; return how many there are. */
static int devices(int capabilities[][2], int numbers[]) {
    const char *text = getenv("FAKE_CUDA_DEVICES");
    if (!text)
        text = "9.0";
    int count = 0, major, minor, used;
    while (count < MOST_DEVICES && sscanf(text, "%d.%d%n", &major, &minor, &used) == 2) {
        numbers[count] = count;
        capabilities[count][0] = major;
        capabilities[count][1] = minor;
        count++;
        text += used;
        if (*text == ',')
            text++;
    }
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (!visible)
        return count;
    int all[MOST_DEVICES][2], index, shown = 0;
    memcpy(all, capabilities, sizeof all);
    while (shown < count && sscanf(visible, "%d%n", &index, &used) == 1 && index >= 0 && index < count) {
        numbers[shown] = index;
        memcpy(capabilities[shown++], all[index], sizeof all[index]);
        visible += used;
        if (*visible == ',')
            visible++;
    }
    return shown;
}

/* Return the code of FAKE_CUDA_FAIL for this call of a function, or SUCCESS. */
static int failure(const char *function) {
    pthread_mutex_lock(&lock);
    int calls = 0;
    for (int i = 0; i < MOST_NAMES; i++) {
        if (!counters[i].name)
            counters[i].name = function;
        if (strcmp(counters[i].name, function) == 0) {
            calls = ++counters[i].calls;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    const char *text = getenv("FAKE_CUDA_FAIL");
    while (text && *text) {
        char name[64];
        int code, nth = 0, used = 0;
        if (sscanf(text, "%63[^=]=%d%n", name, &code, &used) != 2)
            break;
        text += used;
        if (*text == '@') {
            sscanf(text, "@%d%n", &nth, &used);
            text += used;
        }
        if (*text == ';')
            text++;
        if (strcmp(name, function) == 0 && (nth == 0 || nth == calls))
            return code;
    }
    return SUCCESS;
}

#define ENTER() ENTER_AS(__func__)
#define ENTER_AS(name)                                                                                                 \
    do {                                                                                                               \
        int code_ = failure(name);                                                                                     \
        if (code_)                                                                                                     \
            return code_;                                                                                              \
        if (started_by != getpid())                                                                                    \
            return NOT_INITIALIZED;                                                                                    \
    } while (0)

/* Conditions of the driver's functions. */
#define NEEDS(condition, code)                                                                                         \
    if (!(condition))                                                                                                  \
    return code
#define NEEDS_CONTEXT() NEEDS(current, INVALID_CONTEXT)
#define NEEDS_DEVICE(device) NEEDS(ordinal(device) >= 0, INVALID_DEVICE)
#define NEEDS_LIBRARY(library) NEEDS(library && library->magic == LIBRARY_MAGIC && library->loaded, INVALID_HANDLE)
#define NEEDS_KERNEL(kernel) NEEDS(kernel && kernel->magic == KERNEL_MAGIC && kernel->library->loaded, INVALID_HANDLE)

EXPORT void fake_reset(void) {
    started_by = 0;
    current = NULL;
    memset(contexts, 0, sizeof contexts);
    memset(destroyed, 0, sizeof destroyed);
    faulted = held = waiting = capture_mode = joined_count = captured_events_count = 0;
    memset(counters, 0, sizeof counters);
    memset(globals, 0, sizeof globals);
    pushed_count = 0;
    for (int i = 0; i < allocation_count; i++)
        free((void *)(uintptr_t)allocations[i].begin);
    allocation_count = 0;
}

EXPORT void fake_hold(int hold) {
    pthread_mutex_lock(&lock);
    held = hold;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

EXPORT void fake_await(void) {
    pthread_mutex_lock(&lock);
    while (!waiting)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void wait_while_held(void) {
    pthread_mutex_lock(&lock);
    waiting++;
    pthread_cond_broadcast(&changed);
    while (held)
        pthread_cond_wait(&changed, &lock);
    waiting--;
    pthread_mutex_unlock(&lock);
}

EXPORT void fake_destroy(void) { destroyed[0] = 1; }

/* Return the number of a handle in a list such as "77=1,78=0", 1 in a list such as "77,78", and -1 if it is not listed. */
static int listed(const char *text, void *handle) {
    unsigned long long number;
    int value, used;
    while (text && sscanf(text, "%llu%n", &number, &used) == 1) {
        text += used;
        value = 1;
        if (sscanf(text, "=%d%n", &value, &used) == 1)
            text += used;
        if (number == (uintptr_t)handle)
            return value;
        text += *text == ',';
    }
    return -1;
}

/* Return the context of a stream: its own, or the current one. */
static int *context_of(void *stream) {
    int device = listed(getenv("FAKE_CUDA_STREAMS"), stream);
    return device < 0 ? current : &contexts[device];
}

static int is_captured(void *stream) {
    const char *captured = getenv("FAKE_CUDA_CAPTURING");
    if (!captured || !*captured) /* the capture has ended */
        joined_count = captured_events_count = 0;
    for (int i = 0; i < joined_count; i++)
        if (joined[i] == (uintptr_t)stream)
            return 1;
    return listed(captured, stream) >= 0;
}

static int is_dead(void *stream) { return listed(getenv("FAKE_CUDA_DEAD"), stream) >= 0; }

EXPORT int cuInit(unsigned flags) {
    (void)flags;
    log_line("{\"call\": \"cuInit\"}\n");
    int code = failure(__func__);
    if (code)
        return code;
    int capabilities[MOST_DEVICES][2], numbers[MOST_DEVICES];
    if (!devices(capabilities, numbers))
        return NO_DEVICE;
    if (started_by && started_by != getpid())
        return NOT_INITIALIZED;
    started_by = getpid();
    return SUCCESS;
}

EXPORT int cuDriverGetVersion(int *version) {
    int code = failure(__func__);
    const char *text = getenv("FAKE_CUDA_VERSION");
    *version = text ? atoi(text) : 13000;
    return code;
}

EXPORT int cuDeviceGetCount(int *count) {
    ENTER();
    int capabilities[MOST_DEVICES][2], numbers[MOST_DEVICES];
    *count = devices(capabilities, numbers);
    return SUCCESS;
}

/* Handles are ordinals plus FIRST_DEVICE, so that tests notice a confusion of the two. */
static int ordinal(int device) {
    int capabilities[MOST_DEVICES][2], numbers[MOST_DEVICES];
    int index = device - FIRST_DEVICE;
    return index >= 0 && index < devices(capabilities, numbers) ? index : -1;
}

EXPORT int cuDeviceGet(int *device, int index) {
    ENTER();
    *device = index + FIRST_DEVICE;
    return ordinal(*device) < 0 ? INVALID_DEVICE : SUCCESS;
}

EXPORT int cuDeviceGetName(char *name, int length, int device) {
    ENTER();
    int capabilities[MOST_DEVICES][2], numbers[MOST_DEVICES];
    devices(capabilities, numbers);
    NEEDS_DEVICE(device);
    snprintf(name, length, "Stand-in %c", 'A' + numbers[ordinal(device)]);
    return SUCCESS;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    ENTER();
    int capabilities[MOST_DEVICES][2], numbers[MOST_DEVICES];
    devices(capabilities, numbers);
    NEEDS_DEVICE(device);
    /* threads of a block, block x, y, z, grid x, y, z, shared memory, multiprocessors, cooperative launches, memory pools, the
     * most shared memory */
    static const int fixed[][2] = {{1, 1024},  {2, 1024},   {3, 1024}, {4, 64},  {5, 2147483647}, {6, 65535},
                                   {7, 65535}, {8, 49152}, {16, 132}, {95, 1}, {115, 0},        {97, 232448}};
    const int *capability = capabilities[ordinal(device)];
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (fixed[i][0] == attribute) {
            *value = fixed[i][1];
            return SUCCESS;
        }
    if (attribute == 18) { /* integrated: Tegra, and GB10 */
        static const int integrated[][2] = {{5, 3}, {6, 2}, {7, 2}, {8, 7}, {8, 8}, {10, 1}, {11, 0}, {12, 1}};
        *value = 0;
        for (size_t i = 0; i < sizeof integrated / sizeof *integrated; i++)
            *value |= capability[0] == integrated[i][0] && capability[1] == integrated[i][1];
        return SUCCESS;
    }
    if (attribute != 75 && attribute != 76 && attribute != 120)
        return INVALID_VALUE;
    *value = attribute == 75 ? capability[0] : attribute == 76 ? capability[1] : capability[0] >= 9; /* 120: clusters */
    return SUCCESS;
}

EXPORT int cuDevicePrimaryCtxRetain(int **context, int device) {
    log_line("{\"call\": \"cuDevicePrimaryCtxRetain\", \"device\": %d}\n", device - FIRST_DEVICE);
    ENTER();
    NEEDS_DEVICE(device);
    *context = &contexts[ordinal(device)];
    destroyed[ordinal(device)] = 0;
    return SUCCESS;
}

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    ENTER();
    NEEDS_DEVICE(device);
    *flags = 0;
    *active = !destroyed[ordinal(device)];
    return SUCCESS;
}

EXPORT int cuCtxSetCurrent(int *context) {
    ENTER();
    current = context;
    return SUCCESS;
}

EXPORT int cuCtxGetCurrent(int **context) {
    ENTER();
    *context = current;
    return SUCCESS;
}

EXPORT int cuCtxPushCurrent_v2(int *context) {
    log_line("{\"call\": \"cuCtxPushCurrent\", \"device\": %d}\n", (int)(context - contexts));
    ENTER();
    pushed[pushed_count++] = current;
    current = context;
    return SUCCESS;
}

EXPORT int cuCtxPopCurrent_v2(int **context) {
    ENTER();
    *context = current;
    current = pushed[--pushed_count];
    return SUCCESS;
}

EXPORT int cuCtxGetDevice(int *device) {
    ENTER();
    NEEDS_CONTEXT();
    *device = (int)(current - contexts) + FIRST_DEVICE;
    return SUCCESS;
}

/* Return 1 if an entry of a fatbin runs on a GPU of this capability. */
static int entry_fits(int kind, unsigned arch, const int capability[2]) {
    int major = arch / 10, minor = arch % 10;
    if (kind == 2)
        return major == capability[0] && minor <= capability[1];
    return kind == 1 && (major < capability[0] || (major == capability[0] && minor <= capability[1]));
}

EXPORT int cuLibraryLoadData(Library **library, const uint8_t *code, void *a, void *b, unsigned c, void *d, void *e,
                             unsigned f) {
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
    log_line("{\"call\": \"cuLibraryLoadData\", \"bytes\": %u}\n", code[0] == 0x50 ? *(const uint32_t *)(code + 8) + 16 : 0);
    ENTER();
    uint32_t magic, header_size, arch;
    uint16_t version, size16, kind;
    uint64_t total, payload;
    memcpy(&magic, code, 4);
    memcpy(&version, code + 4, 2);
    memcpy(&size16, code + 6, 2);
    memcpy(&total, code + 8, 8);
    int capabilities[MOST_DEVICES][2], numbers[MOST_DEVICES];
    int count = devices(capabilities, numbers), fits = 0;
    uint16_t machine;
    memcpy(&machine, code + 18, 2);
    if (magic == 0x464C457Fu && machine == 190) { /* a cubin: an ELF file of machine EM_CUDA, with its arch in e_flags */
        for (int i = 0; i < count; i++)
            fits |= entry_fits(2, code[8] < 8 ? code[48] : code[49], capabilities[i]); /* moved with ELF ABI 8 */
        total = 0;
    } else if (magic != 0xBA55ED50u || version != 1 || size16 != 16)
        return INVALID_IMAGE;
    for (uint64_t at = 16; at < 16 + total;) {
        memcpy(&kind, code + at, 2);
        memcpy(&header_size, code + at + 4, 4);
        memcpy(&payload, code + at + 8, 8);
        memcpy(&arch, code + at + 28, 4);
        if (header_size < 48 || (kind != 1 && kind != 2 && kind != 8))
            return INVALID_IMAGE;
        for (int i = 0; i < count; i++)
            fits |= entry_fits(kind, arch, capabilities[i]);
        at += header_size + payload;
    }
    if (!fits)
        return NO_BINARY_FOR_GPU;
    *library = calloc(1, sizeof **library);
    (*library)->magic = LIBRARY_MAGIC;
    (*library)->loaded = 1;
    return SUCCESS;
}

EXPORT int cuLibraryUnload(Library *library) {
    log_line("{\"call\": \"cuLibraryUnload\"}\n");
    ENTER();
    NEEDS_LIBRARY(library);
    library->loaded = 0;
    return SUCCESS;
}

EXPORT int cuLibraryGetKernel(Kernel **kernel, Library *library, const char *name) {
    log_line("{\"call\": \"cuLibraryGetKernel\", \"name\": \"%s\"}\n", name);
    ENTER();
    NEEDS_LIBRARY(library);
    const char *symbols = getenv("FAKE_CUDA_SYMBOLS");
    if (symbols) {
        size_t length = strlen(name);
        const char *at = symbols;
        while ((at = strstr(at, name)) && !((at == symbols || at[-1] == ',') && (!at[length] || at[length] == ',')))
            at++;
        if (!at)
            return NOT_FOUND;
    }
    *kernel = calloc(1, sizeof **kernel);
    (*kernel)->magic = KERNEL_MAGIC;
    (*kernel)->library = library;
    snprintf((*kernel)->name, sizeof (*kernel)->name, "%s", name);
    return SUCCESS;
}

/* Return the global of a name; make it at the first call. */
static int32_t *global_named(const char *name) {
    for (int i = 0; i < MOST_NAMES; i++) {
        if (!globals[i].name[0])
            snprintf(globals[i].name, sizeof globals[i].name, "%s", name);
        if (strcmp(globals[i].name, name) == 0)
            return &globals[i].value;
    }
    return NULL;
}

EXPORT int cuLibraryGetGlobal(uint64_t *address, size_t *size, Library *library, const char *name) {
    ENTER();
    NEEDS_LIBRARY(library);
    *address = (uint64_t)(uintptr_t)global_named(name);
    *size = sizeof(int32_t);
    return *address ? SUCCESS : NOT_FOUND;
}

EXPORT int cuMemsetD32Async(uint64_t address, unsigned value, size_t count, void *stream) {
    (void)stream;
    ENTER();
    for (size_t i = 0; i < count; i++)
        ((uint32_t *)(uintptr_t)address)[i] = value;
    return SUCCESS;
}

uint64_t fake_allocate(uint64_t size, int device);

EXPORT int cuMemAlloc_v2(uint64_t *address, size_t size) {
    log_line("{\"call\": \"cuMemAlloc\", \"bytes\": %zu}\n", size);
    ENTER();
    NEEDS_CONTEXT();
    *address = fake_allocate(size, (int)(current - contexts));
    return SUCCESS;
}

EXPORT int cuMemFree_v2(uint64_t address) {
    (void)address;
    log_line("{\"call\": \"cuMemFree\"}\n");
    ENTER();
    return SUCCESS;
}

EXPORT int cuMemcpyHtoD_v2(uint64_t address, const void *host, size_t size) {
    ENTER();
    memcpy((void *)(uintptr_t)address, host, size);
    return SUCCESS;
}

EXPORT int cuMemcpyDtoH_v2(void *host, uint64_t address, size_t size) {
    ENTER();
    memcpy(host, (void *)(uintptr_t)address, size);
    return SUCCESS;
}

EXPORT int cuCtxSynchronize(void) {
    log_line("{\"call\": \"cuCtxSynchronize\", \"device\": %d}\n", current ? (int)(current - contexts) : -1);
    ENTER();
    NEEDS_CONTEXT();
    return faulted ? ILLEGAL_ADDRESS : SUCCESS;
}

EXPORT int cuMemGetInfo_v2(size_t *free, size_t *total) {
    ENTER();
    *free = (size_t)3 << 30;
    *total = (size_t)(current ? 4 + (current - contexts) : 4) << 30;
    return current ? SUCCESS : INVALID_CONTEXT;
}

EXPORT int cuStreamSynchronize(void *stream) {
    log_line("{\"call\": \"cuStreamSynchronize\", \"stream\": %llu}\n", (unsigned long long)(uintptr_t)stream);
    ENTER();
    if (faulted)
        return ILLEGAL_ADDRESS;
    const char *captured = getenv("FAKE_CUDA_CAPTURING");
    if (is_captured(stream) || (captured && *captured && capture_mode != 2)) /* ends the capture */
        return CAPTURE_UNSUPPORTED;
    return current && destroyed[current - contexts] ? CONTEXT_IS_DESTROYED : SUCCESS;
}

EXPORT int cuStreamIsCapturing(void *stream, int *status) {
    ENTER();
    if (is_dead(stream))
        return INVALID_CONTEXT;
    *status = is_captured(stream);
    return faulted ? ILLEGAL_ADDRESS : SUCCESS;
}

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) {
    ENTER();
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return SUCCESS;
}

static void store_globals(void) {
    const char *text = getenv("FAKE_CUDA_STORE");
    char name[128];
    int value, used;
    while (text && sscanf(text, "%127[^=]=%d%n", name, &value, &used) == 2) {
        *global_named(name) = value;
        text += used;
        if (*text == ',')
            text++;
    }
}

EXPORT int cuFuncGetModule(Library **module, Kernel *function) {
    *module = function->library;
    return SUCCESS;
}

EXPORT int cuKernelGetFunction(Kernel **function, Kernel *kernel) {
    log_line("{\"call\": \"cuKernelGetFunction\", \"name\": \"%s\"}\n", kernel->name);
    ENTER();
    NEEDS_CONTEXT();
    *function = kernel;
    NEEDS_KERNEL(kernel);
    return SUCCESS;
}

EXPORT int cuKernelGetAttribute(int *value, int attribute, Kernel *kernel, int device) {
    ENTER();
    NEEDS_KERNEL(kernel);
    NEEDS_DEVICE(device);
    static const char *const names[] = {"threads=", "shared=", "constant=", "local=", "registers="};
    static const int usual[] = {1024, 0, 388, 0, 16};
    if (attribute < 0 || attribute > 4)
        return INVALID_VALUE;
    const char *text = getenv("FAKE_CUDA_KERNEL"), *at = text ? strstr(text, names[attribute]) : NULL;
    *value = at ? atoi(at + strlen(names[attribute])) : usual[attribute];
    return SUCCESS;
}

EXPORT int cuKernelSetAttribute(int attribute, int value, Kernel *kernel, int device) {
    log_line("{\"call\": \"cuKernelSetAttribute\", \"attribute\": %d, \"value\": %d, \"device\": %d}\n", attribute, value,
             device - FIRST_DEVICE);
    ENTER();
    NEEDS_KERNEL(kernel);
    NEEDS_DEVICE(device);
    if (attribute == 14)
        kernel->large_clusters = value;
    if (attribute == 8)
        kernel->dynamic_shared[ordinal(device)] = value;
    return SUCCESS;
}

/* The last launch, for tests with too many launches for a log. */
static struct {
    char name[256];
    uint64_t stream, size;
    int32_t launches, extended, waits; /* extended: through cuLaunchKernelEx; waits: of streams for others */
    uint32_t dims[7];                  /* grid, block, dynamic shared memory */
    uint8_t parameters[4096];
} last;

EXPORT const void *fake_last(void) { return &last; }

static int launch(const char *call, Kernel *kernel, const unsigned dims[6], unsigned shared, void *stream,
                  void **parameters, void **extra, int cooperative, const char *attributes) {
    if (!current || is_dead(stream))
        return INVALID_CONTEXT;
    if (faulted)
        return ILLEGAL_ADDRESS;
    NEEDS_KERNEL(kernel);
    wait_while_held();
    if (!kernel->library->loaded) { /* unloaded during a launch, with undefined results */
        log_line("{\"call\": \"crash\", \"kernel\": \"%s\"}\n", kernel->name);
        return INVALID_HANDLE;
    }
    int device = (int)(context_of(stream) - contexts);
    if (destroyed[device])
        return CONTEXT_IS_DESTROYED;
    for (int i = 0; i < 6; i++)
        if (!dims[i])
            return INVALID_VALUE;
    unsigned allowed = kernel->dynamic_shared[device] ? kernel->dynamic_shared[device] : 49152;
    const char *sizes = getenv("FAKE_CUDA_SIZES"); /* of parameters, if a launch has a pointer for each */
    if (shared > allowed || (TAKES_POINTERS || sizes ? !parameters == !extra : parameters || !extra))
        return INVALID_VALUE;
    const uint8_t *buffer = NULL;
    size_t size = 0;
    uint8_t gathered[4096];
    for (int i = 0; parameters && sizes && *sizes; i++) {
        char *end;
        size_t one = strtoul(sizes, &end, 10);
        if (one > sizeof gathered - size)
            return INVALID_VALUE;
        memcpy(gathered + size, parameters[i], one);
        size += one;
        sizes = *end ? end + 1 : end;
        buffer = gathered;
    }
    for (int i = 0; extra && extra[i]; i += 2) {
        if (extra[i] == (void *)1)
            buffer = extra[i + 1];
        else if (extra[i] == (void *)2)
            size = *(size_t *)extra[i + 1];
        else
            return INVALID_VALUE;
    }
    pthread_mutex_lock(&lock);
    last.launches++;
    last.stream = (uintptr_t)stream;
    memcpy(last.dims, dims, 6 * sizeof *dims);
    last.dims[6] = shared;
    last.size = size < sizeof last.parameters ? size : sizeof last.parameters;
    if (last.size)
        memcpy(last.parameters, buffer, last.size);
    strcpy(last.name, kernel->name);
    pthread_mutex_unlock(&lock);
    if (getenv("FAKE_CUDA_LOG")) {
        char *hex = calloc(1, 2 * size + 1);
        for (size_t i = 0; i < size; i++)
            sprintf(hex + 2 * i, "%02x", buffer[i]);
        log_line("{\"call\": \"%s\", \"kernel\": \"%s\", \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"shared\": %u, "
                 "\"stream\": %llu, \"device\": %d, \"cooperative\": %s, \"attributes\": {%s}, \"parameters\": \"%s\"}\n",
                 call, kernel->name, dims[0], dims[1], dims[2], dims[3], dims[4], dims[5], shared,
                 (unsigned long long)(uintptr_t)stream, device, cooperative ? "true" : "false", attributes, hex);
        free(hex);
    }
    store_globals();
    const char *faulty = getenv("FAKE_CUDA_FAULTY");
    faulted |= faulty && strcmp(faulty, kernel->name) == 0;
    return SUCCESS;
}

EXPORT int cuLaunchKernel(Kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **parameters, void **extra) {
    ENTER();
    const unsigned dims[6] = {gx, gy, gz, bx, by, bz};
    return launch(__func__, kernel, dims, shared, stream, parameters, extra, 0, "");
}

typedef struct {
    int id;
    char pad[4];
    union {
        char bytes[64];
        int cooperative;
        int numbers[3];
    } value;
} Attribute;

typedef struct {
    unsigned dims[6], shared;
    void *stream;
    Attribute *attributes;
    unsigned count;
} Config;

/* Log and fail as cuLaunchKernel does, because tests need not know which of the two the run time calls. */
EXPORT int cuLaunchKernelEx(const Config *config, Kernel *kernel, void **parameters, void **extra) {
    ENTER_AS("cuLaunchKernel");
    last.extended++;
    int cooperative = 0;
    char text[256] = "";
    for (unsigned i = 0; i < config->count; i++) {
        const Attribute *attribute = &config->attributes[i];
        if (attribute->id == 2)
            cooperative = attribute->value.cooperative;
        sprintf(text + strlen(text), "%s\"%d\": [%d, %d, %d]", i ? ", " : "", attribute->id, attribute->value.numbers[0],
                attribute->value.numbers[1], attribute->value.numbers[2]);
    }
    return launch("cuLaunchKernel", kernel, config->dims, config->shared, config->stream, parameters, extra, cooperative, text);
}

/* Clusters of up to 16 blocks if the kernel's attribute allows them, else 8; half as many with large blocks. */
EXPORT int cuOccupancyMaxPotentialClusterSize(int *size, Kernel *kernel, const Config *config) {
    ENTER();
    NEEDS_CONTEXT();
    NEEDS_KERNEL(kernel);
    *size = (kernel->large_clusters ? 16 : 8) / (config->dims[3] > 512 ? 2 : 1);
    return SUCCESS;
}

EXPORT int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER();
    *least = 0;
    *greatest = -5;
    return current ? SUCCESS : INVALID_CONTEXT;
}

EXPORT int cuOccupancyMaxPotentialBlockSize(int *grid, int *block, Kernel *kernel, void *callback, size_t shared,
                                            int most) {
    log_line("{\"call\": \"cuOccupancyMaxPotentialBlockSize\", \"shared\": %zu, \"most\": %d}\n", shared, most);
    ENTER();
    NEEDS_CONTEXT();
    NEEDS_KERNEL(kernel);
    NEEDS(!callback, INVALID_VALUE);
    *grid = 264;
    *block = most && most < 768 ? most : 768;
    return SUCCESS;
}

EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Kernel *kernel, int block, size_t shared) {
    log_line("{\"call\": \"cuOccupancyMaxActiveBlocksPerMultiprocessor\", \"block\": %d, \"shared\": %zu}\n", block, shared);
    ENTER();
    NEEDS_CONTEXT();
    NEEDS_KERNEL(kernel);
    *blocks = 2048 / block;
    return SUCCESS;
}

EXPORT int cuEventCreate(void **event, unsigned flags) {
    ENTER();
    NEEDS_CONTEXT();
    static uintptr_t next = 0xE000;
    *event = (void *)++next;
    log_line("{\"call\": \"cuEventCreate\", \"flags\": %u}\n", flags);
    return SUCCESS;
}

EXPORT int cuStreamGetCtx(void *stream, int **context) {
    ENTER();
    if (is_dead(stream)) /* the driver crashes */
        abort();
    *context = context_of(stream);
    return *context ? SUCCESS : INVALID_CONTEXT;
}

static uintptr_t captured_events[MOST_JOINED];

EXPORT int cuEventRecord(void *event, void *stream) {
    log_line("{\"call\": \"cuEventRecord\", \"event\": %llu, \"stream\": %llu}\n", (unsigned long long)(uintptr_t)event,
             (unsigned long long)(uintptr_t)stream);
    ENTER();
    if (is_captured(stream) && captured_events_count < MOST_JOINED)
        captured_events[captured_events_count++] = (uintptr_t)event;
    return is_dead(stream) ? INVALID_CONTEXT : SUCCESS;
}

EXPORT int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    (void)flags;
    log_line("{\"call\": \"cuStreamWaitEvent\", \"event\": %llu, \"stream\": %llu}\n",
             (unsigned long long)(uintptr_t)event, (unsigned long long)(uintptr_t)stream);
    ENTER();
    last.waits++;
    for (int i = 0; i < captured_events_count; i++)
        if (captured_events[i] == (uintptr_t)event && !is_captured(stream) && joined_count < MOST_JOINED)
            joined[joined_count++] = (uintptr_t)stream;
    return SUCCESS;
}

EXPORT int cuEventDestroy_v2(void *event) {
    log_line("{\"call\": \"cuEventDestroy\", \"event\": %llu}\n", (unsigned long long)(uintptr_t)event);
    ENTER();
    return SUCCESS;
}

/* Write the arguments of a tensor map into its bytes, which tests compare. */
EXPORT int cuTensorMapEncodeTiled(uint8_t *map, int type, unsigned rank, uint64_t address, const uint64_t *extents,
                                  const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleave, int swizzle,
                                  int promotion, int fill) {
    if ((uintptr_t)map % 64 || !rank || rank > 5 || address % 16)
        return INVALID_VALUE;
    memset(map, 0, 128);
    uint8_t head[] = {type, rank, interleave, swizzle, promotion, fill};
    memcpy(map, head, sizeof head);
    memset(map + 8, 0xff, 8);
    memcpy(map + 16, &address, 8);
    for (unsigned i = 0; i < rank; i++) {
        if (!extents[i] || !box[i] || box[i] > 256 || (i + 1 < rank && strides[i] % 16))
            return INVALID_VALUE;
        memcpy(map + 24 + 8 * i, extents + i, 8);
        memcpy(map + 64 + 8 * i, strides + i, i + 1 < rank ? 8 : 0);
        memcpy(map + 96 + 4 * i, box + i, 4);
        map[116 + i] = (uint8_t)steps[i];
    }
    return SUCCESS;
}

/* Allocate memory of a GPU, which tests read and write; works before cuInit. */
EXPORT uint64_t fake_allocate(uint64_t size, int device) {
    if (allocation_count == MOST_ALLOCATIONS)
        abort();
    uint64_t begin = (uint64_t)(uintptr_t)calloc(1, size ? size : 1);
    pthread_mutex_lock(&lock);
    allocations[allocation_count++] = (Allocation){begin, size ? size : 1, device};
    pthread_mutex_unlock(&lock);
    return begin;
}

EXPORT int cuPointerGetAttribute(uint64_t *result, int attribute, uint64_t address) {
    ENTER();
    for (int i = 0; i < allocation_count; i++) {
        const Allocation *found = &allocations[i];
        if (address < found->begin || address >= found->begin + found->size)
            continue;
        if (attribute == 9) {
            *(int *)result = found->device;
            return SUCCESS;
        }
        if (attribute == 3 && current && current - contexts == found->device) {
            *result = address;
            return SUCCESS;
        }
        return INVALID_VALUE;
    }
    return INVALID_VALUE;
}

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int describe(int code, const char **result, int text) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) {
            *result = text ? errors[i].text : errors[i].name;
            return SUCCESS;
        }
    *result = NULL;
    return INVALID_VALUE;
}

EXPORT int cuGetErrorName(int code, const char **name) { return describe(code, name, 0); }

EXPORT int cuGetErrorString(int code, const char **text) { return describe(code, text, 1); }
