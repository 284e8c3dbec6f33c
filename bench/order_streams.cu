/* What the driver's calls cost that order two streams around a launch: nanoseconds over the launch alone, medians of blocks.
 *
 *     nvcc -O2 -o /tmp/order_streams bench/order_streams.cu -lcuda && /tmp/order_streams
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <cuda.h>

static void check(CUresult code, const char *call) {
    const char *name = "";
    if (code && !cuGetErrorName(code, &name))
        std::printf("%s: %s\n", call, name);
    if (code)
        std::exit(1);
}
#define CHECK(call) check(call, #call)

__global__ void axpy(float a, const float *x, const float *y, float *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 1000)
        out[i] = a * x[i] + y[i];
}

static CUfunction function;
static CUevent before, after;
static char parameters[32];
static size_t size = sizeof parameters;
static void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, parameters, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};

static void launch(CUstream stream) { CHECK(cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, stream, nullptr, extra)); }

static void order(CUevent event, CUstream first, CUstream then) {
    CHECK(cuEventRecord(event, first));
    CHECK(cuStreamWaitEvent(then, event, 0));
}

static void ask_captured(CUstream other, CUstream own) {
    CUstreamCaptureStatus status;
    CHECK(cuStreamIsCapturing(other, &status));
    CHECK(cuStreamIsCapturing(own, &status));
}

struct Way {
    const char *name;
    void (*run)(CUstream other, CUstream own);
};

static const Way ways[] = {
    {"launch", [](CUstream, CUstream own) { launch(own); }},
    {"both asked whether they are captured", [](CUstream other, CUstream own) { ask_captured(other, own), launch(own); }},
    {"record other", [](CUstream other, CUstream own) { CHECK(cuEventRecord(before, other)), launch(own); }},
    {"record other, wait", [](CUstream other, CUstream own) { order(before, other, own), launch(own); }},
    {"asked, record other, wait (PyTorch)",
     [](CUstream other, CUstream own) { ask_captured(other, own), order(before, other, own), launch(own); }},
    {"record own, other waits", [](CUstream other, CUstream own) { launch(own), order(after, own, other); }},
    {"both ways, one event",
     [](CUstream other, CUstream own) { order(before, other, own), launch(own), order(before, own, other); }},
    {"both ways, two events",
     [](CUstream other, CUstream own) { order(before, other, own), launch(own), order(after, own, other); }},
    {"asked, both ways (CuPy)",
     [](CUstream other, CUstream own) { ask_captured(other, own), order(before, other, own), launch(own), order(before, own, other); }},
    {"query other", [](CUstream other, CUstream own) { (void)cuStreamQuery(other), launch(own); }},
    {"query the last event", [](CUstream, CUstream own) { (void)cuEventQuery(after), launch(own); }},
};
enum { WAYS = sizeof ways / sizeof *ways, BATCH = 256, BLOCKS = 33, WARM = 3 };

static double now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void compare(const char *title, CUstream other, CUstream own) {
    static double over[WAYS][BLOCKS];
    for (int block = -WARM; block < BLOCKS; block++) {
        double least = 0;
        for (int way = 0; way < WAYS; way++) {
            CHECK(cuCtxSynchronize());
            double begin = now();
            for (int i = 0; i < BATCH; i++)
                ways[way].run(other, own);
            double each = (now() - begin) / BATCH;
            least = way ? least : each;
            over[way][std::max(block, 0)] = way ? each - least : each;
        }
    }
    CHECK(cuCtxSynchronize());
    std::printf("%s\n", title);
    for (int way = 0; way < WAYS; way++) {
        double *found = over[way];
        std::sort(found, found + BLOCKS);
        std::printf("  %-40s %8.0f ns   (%.0f to %.0f)\n", ways[way].name, found[BLOCKS / 2], found[BLOCKS / 4], found[3 * BLOCKS / 4]);
    }
}

int main() {
    CUstream own, other;
    CUdeviceptr memory;
    cudaFree(nullptr); /* makes the context */
    cudaGetFuncBySymbol((cudaFunction_t *)&function, (const void *)axpy);
    CHECK(cuMemAlloc(&memory, 1 << 20));
    for (int at = 8; at < 32; at += 8)
        *(CUdeviceptr *)(parameters + at) = memory;
    CHECK(cuEventCreate(&before, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&after, CU_EVENT_DISABLE_TIMING));
    CHECK(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (int round = 0; round < 2; round++) {
        compare("other: the default stream", CU_STREAM_LEGACY, own);
        compare("other: a side stream", other, own);
    }
}
