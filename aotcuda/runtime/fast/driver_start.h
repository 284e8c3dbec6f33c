/* The driver's start in a thread of its own, which runs nothing of Python's: cuInit takes a tenth of a second, in which Python
 * imports what loading and launching take. aotcuda/runtime/driver.py does the same by ctypes where there is no extension;
 * to import that, and ctypes, is a quarter of what comes before a program's first launch, and is done meanwhile too.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

/* Of a newer glibc other versions would be taken, and the wheel would need one as new as the machine it was made on. */
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver dlclose, dlclose@GLIBC_2.2.5");
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.17");
__asm__(".symver dlsym, dlsym@GLIBC_2.17");
__asm__(".symver dlclose, dlclose@GLIBC_2.17");
__asm__(".symver pthread_create, pthread_create@GLIBC_2.17");
#endif

enum { NO_DRIVER = -1 };

static struct {
    char library[32];
    PyThread_type_lock over; /* held until the thread is done */
    pid_t process;           /* the one that began it; in a child of that there is no thread */
    int code;                /* what cuInit gave, or NO_DRIVER, until somebody was told */
} driver_start;

static void *call_init(void *unused) {
    void *library = dlopen(driver_start.library, RTLD_NOW);
    int (*init)(unsigned) = NULL;
    if (library)
        *(void **)&init = dlsym(library, "cuInit");
    driver_start.code = init ? init(0) : NO_DRIVER;
    PyThread_release_lock(driver_start.over);
    return unused;
}

/* Not by Python's own function for it, whose threads have as small a stack as a program has asked for. */
static int begin_thread(void) {
    pthread_attr_t detached;
    pthread_t thread;
    if (pthread_attr_init(&detached))
        return 0;
    int began = !pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED) &&
                !pthread_create(&thread, &detached, call_init, NULL);
    pthread_attr_destroy(&detached);
    return began;
}

/* A process must not end in the midst of it. */
static void await_init(void) {
    if (driver_start.over && driver_start.process == getpid()) {
        PyThread_acquire_lock(driver_start.over, WAIT_LOCK);
        PyThread_release_lock(driver_start.over);
    }
}

/* Once for a process, and not where somebody has loaded the driver already: then there may be nothing to wait for. Threads
 * call it one after the other. */
static PyObject *begin_start(PyObject *module, PyObject *name) {
    (void)module;
    const char *library = PyBytes_AsString(name);
    if (!library)
        return NULL;
    if (driver_start.over)
        return PyBool_FromLong(driver_start.process == getpid());
    void *there = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    if (there)
        dlclose(there);
    if (there || strlen(library) >= sizeof driver_start.library || Py_AtExit(await_init) < 0)
        Py_RETURN_FALSE;
    PyThread_type_lock over = PyThread_allocate_lock();
    if (!over)
        return PyErr_NoMemory();
    strcpy(driver_start.library, library);
    driver_start.process = getpid();
    PyThread_acquire_lock(over, WAIT_LOCK);
    driver_start.over = over;
    sigset_t all, before; /* signals are the program's own threads' */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    int began = begin_thread();
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (!began) { /* as if there were no driver: who waits for it calls it himself */
        driver_start.code = NO_DRIVER;
        PyThread_release_lock(over);
    }
    return PyBool_FromLong(began);
}

static PyObject *await_start(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    if (!driver_start.over || driver_start.process != getpid())
        Py_RETURN_NONE;
    Py_BEGIN_ALLOW_THREADS
    await_init();
    Py_END_ALLOW_THREADS
    int code = driver_start.code;
    driver_start.code = NO_DRIVER; /* whoever tries once more calls it anew */
    if (code == NO_DRIVER)
        Py_RETURN_NONE;
    return PyLong_FromLong(code);
}
