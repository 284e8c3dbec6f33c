/* A libcuda.so.1 that hands each call on to the driver in CLOCKED_DRIVER and keeps count of the time that it takes.
 *
 * bench/in_process.py subtracts that time, so what is left is the caller's own. Loading the driver counts as its time too. Arguments are handed on as eleven words, whatever a function takes: they are all
 * integers or pointers, so those that it does not take lie where it does not look.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t Word;
typedef int (*Function)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);

static uint64_t wall, cpu, calls, launches;
static void *driver;

static uint64_t now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* CPU time since then, of the program's first thread: nobody subtracts from that what others take. */
static uint64_t cpu_since(uint64_t before)
{
    return syscall(SYS_gettid) == getpid() ? now(CLOCK_THREAD_CPUTIME_ID) - before : 0;
}

static void __attribute__((constructor)) load(void)
{
    uint64_t wall_before = now(CLOCK_MONOTONIC), cpu_before = now(CLOCK_THREAD_CPUTIME_ID);
    const char *path = getenv("CLOCKED_DRIVER");
    driver = dlopen(path ? path : "", RTLD_NOW);
    if (!path || !driver) {
        fprintf(stderr, "CLOCKED_DRIVER names no driver: %s\n", path ? dlerror() : "it is not set");
        exit(1);
    }
    wall += now(CLOCK_MONOTONIC) - wall_before;
    cpu += cpu_since(cpu_before);
}

/* Nanoseconds of wall time and the first thread's within the driver so far, calls, and launches among them. */
EXPORT void clock_read(uint64_t *out)
{
    out[0] = wall;
    out[1] = cpu;
    out[2] = calls;
    out[3] = launches;
}

#define FORWARD(name, launch) \
    EXPORT int name(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j, Word k) \
    { \
        static Function function; \
        if (!function) \
            function = (Function)dlsym(driver, #name); \
        uint64_t wall_before = now(CLOCK_MONOTONIC), cpu_before = now(CLOCK_THREAD_CPUTIME_ID); \
        int code = function ? function(a, b, c, d, e, f, g, h, i, j, k) : 500; \
        wall += now(CLOCK_MONOTONIC) - wall_before; \
        cpu += cpu_since(cpu_before); \
        calls += 1; \
        launches += launch; \
        return code; \
    }

/* @FUNCTIONS@ */
