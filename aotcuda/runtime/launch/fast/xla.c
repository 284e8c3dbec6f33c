/* Launches inside programs that XLA compiled: a handler of XLA's FFI, which JAX registers as the target of a custom call.
 *
 * JAX knows all shapes when it traces a program. aotcuda/runtime/launch/xla_call.py then prepares a launch: it packs the parameter block without
 * the arrays' addresses, and xla_prepare() stores it under a number, which is an attribute of the custom call. The handler finds the
 * launch by the number, writes the addresses into the block, and launches on XLA's stream. It runs on XLA's threads, without the GIL.
 *
 * Prepared launches are never changed or freed, so the handler reads them without a lock. A program may come from another process, by a
 * cache or an export, where numbers have another meaning: the attribute `identity` distinguishes them.
 *
 * XLA may record a pinned launch into a graph, which then launches without the handler. An unload cannot wait for such launches, so the
 * images stay in the driver: the launch counts as in progress for ever.
 */
#include "launch.h"
#include "xla_ffi.h"
#include <stdio.h>

enum { MOST_PREPARED = 1 << 16, MESSAGE_BYTES = 512 };

/* The place in the block for the address of an argument or a result. */
typedef struct {
    int32_t offset, is_result, index, divisor;
} Hole;

/* A launch without its stream and its arrays' addresses. */
typedef struct {
    int64_t identity;
    char *where;
    void *kernel;
    unsigned dimensions[7];
    unsigned *flights; /* the second counter of the mark, for this handler alone: unloading waits for it */
    unsigned *retired; /* not 0 if the images are retired */
    int pinned, args, results, bytes, holes_count, starts_count;
    unsigned char *block;
    Hole *holes;
    int32_t *starts; /* where each parameter begins, if the driver takes them one by one */
} Prepared;

static Prepared *prepared[MOST_PREPARED];
static int prepared_count = 0;

static void *xla_fail(const XlaFrame *frame, int code, const char *message) {
    XlaErrorArgs args = {sizeof args, NULL, message, code};
    return frame->api->error_create(&args);
}

/* Answer the query for metadata when a handler is registered; 0 if the call is not that query. */
static int xla_answers_metadata(XlaFrame *frame, uint32_t traits) {
    for (XlaExtension *each = frame->extension; each; each = each->next)
        if (each->type == XLA_METADATA) {
            XlaMetadata *metadata = ((XlaMetadataExtension *)each)->metadata;
            int known = frame->api && frame->api->version.major == XLA_MAJOR && frame->api->version.minor < XLA_MINOR;
            metadata->version.major = XLA_MAJOR;
            metadata->version.minor = known ? frame->api->version.minor : XLA_MINOR;
            metadata->traits = traits;
            return 1;
        }
    return 0;
}

/* Return an attribute that is a 64-bit integer; -1 if there is none of that name. */
static int64_t xla_attribute(const XlaFrame *frame, const char *name) {
    const XlaAttributes *all = &frame->attributes;
    for (int64_t i = 0; i < all->size; i++) {
        if (all->types[i] != XLA_SCALAR || all->names[i]->length != strlen(name) ||
            memcmp(all->names[i]->text, name, strlen(name)))
            continue;
        const XlaScalar *scalar = all->values[i];
        int64_t value;
        if (scalar->dtype != XLA_S64)
            return -1;
        memcpy(&value, scalar->value, sizeof value);
        return value;
    }
    return -1;
}

/* Return the launch of a custom call; NULL if this process has not prepared it. */
static const Prepared *xla_prepared(const XlaFrame *frame) {
    int64_t number = xla_attribute(frame, "launch"), identity = xla_attribute(frame, "identity");
    int count = __atomic_load_n(&prepared_count, __ATOMIC_ACQUIRE);
    return number >= 0 && number < count && prepared[number]->identity == identity ? prepared[number] : NULL;
}

static int xla_submit(const Prepared *call, void *stream, void **parameters, void **extra) {
    const unsigned *d = call->dimensions;
    return driver.launch(call->kernel, d[0], d[1], d[2], d[3], d[4], d[5], d[6], stream, parameters, extra);
}

/* Launch with the addresses of a frame's buffers; return the driver's code, or -1 with a message. */
static int xla_launch(const Prepared *call, const XlaFrame *frame, void *stream, char *message) {
    unsigned char block[MOST_BYTES];
    void *parameters[MOST_ARGUMENTS * 4];
    size_t bytes = (size_t)call->bytes;
    memcpy(block, call->block, bytes);
    for (int i = 0; i < call->holes_count; i++) {
        const Hole *hole = &call->holes[i];
        const XlaList *list = hole->is_result ? &frame->results : &frame->args;
        const XlaBuffer *buffer = list->values[hole->index];
        if (list->types[hole->index] != XLA_BUFFER || (uintptr_t)buffer->data % (uintptr_t)hole->divisor) {
            snprintf(message, MESSAGE_BYTES, "%s: %s %d has the address %p, which its signature's divisor %d does not divide", call->where,
                     hole->is_result ? "result" : "argument", hole->index, buffer->data, hole->divisor);
            return -1;
        }
        memcpy(block + hole->offset, &buffer->data, sizeof buffer->data);
    }
    for (int i = 0; i < call->starts_count; i++)
        parameters[i] = block + call->starts[i];
    void *extra[] = {(void *)1, block, (void *)2, &bytes, NULL}; /* CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END */
    void **by_one = call->starts_count ? parameters : NULL, **whole = call->starts_count ? NULL : extra, *context;
    int code = xla_submit(call, stream, by_one, whole);
    if (code != 201 && code != 400)
        return code;
    /* No context is current on this thread, or that of another GPU: use the context of the stream. */
    if (driver.stream_context(stream, &context) || driver.push_context(context))
        return code;
    code = xla_submit(call, stream, by_one, whole);
    driver.pop_context(&context);
    return code;
}

static void *xla_run(XlaFrame *frame) {
    char message[MESSAGE_BYTES];
    if (frame->stage != XLA_EXECUTE)
        return NULL;
    const Prepared *call = xla_prepared(frame);
    if (!call)
        return xla_fail(frame, XLA_FAILED_PRECONDITION,
                        "this program launches a packaged kernel that was not prepared in this process: it was traced "
                        "elsewhere, or where there was no GPU; trace it here");
    if (frame->args.size != call->args || frame->results.size != call->results) {
        snprintf(message, sizeof message, "%s: XLA passes %d arguments and %d results, and %d and %d were traced", call->where,
                 (int)frame->args.size, (int)frame->results.size, call->args, call->results);
        return xla_fail(frame, XLA_INVALID_ARGUMENT, message);
    }
    XlaStreamArgs stream = {sizeof stream, NULL, frame->context, NULL};
    void *error = frame->api->stream_get(&stream);
    if (error)
        return error;
    int code = 0, is_retired;
    __atomic_fetch_add(call->flights, 1, __ATOMIC_SEQ_CST);
    is_retired = (!call->pinned && __atomic_load_n(call->retired, __ATOMIC_SEQ_CST)) || READ(fast_path_disabled);
    if (!is_retired)
        code = xla_launch(call, frame, stream.stream, message);
    __atomic_fetch_sub(call->flights, 1, __ATOMIC_SEQ_CST);
    if (is_retired) {
        snprintf(message, sizeof message,
                 "%s: its images were unloaded or built anew after this program was traced, or the process forked; trace it "
                 "again (jax.clear_caches())",
                 call->where);
        return xla_fail(frame, XLA_FAILED_PRECONDITION, message);
    }
    if (!code)
        return NULL;
    if (code > 0)
        snprintf(message, sizeof message, "%s could not be launched: the CUDA driver reports error %d", call->where, code);
    return xla_fail(frame, code > 0 ? XLA_INTERNAL : XLA_INVALID_ARGUMENT, message);
}

static void *xla_execute(XlaFrame *frame) { return xla_answers_metadata(frame, 0) ? NULL : xla_run(frame); }

/* For launches that are pinned. */
static void *xla_record(XlaFrame *frame) {
    return xla_answers_metadata(frame, XLA_COMMAND_BUFFER_COMPATIBLE) ? NULL : xla_run(frame);
}

/* The handler for other devices than NVIDIA GPUs. */
static void *xla_refuse(XlaFrame *frame) {
    char message[MESSAGE_BYTES];
    if (xla_answers_metadata(frame, 0))
        return NULL;
    const Prepared *call = xla_prepared(frame);
    snprintf(message, sizeof message,
             "%s runs on GPUs of NVIDIA's alone, and this program runs on the CPU: put its arrays on a GPU (jax.device_put), and "
             "install jax[cuda13] where JAX sees none",
             call ? call->where : "a packaged kernel");
    return xla_fail(frame, XLA_FAILED_PRECONDITION, message);
}

static void *copied(const void *data, Py_ssize_t bytes) {
    void *copy = PyMem_Malloc(bytes ? (size_t)bytes : 1);
    return copy ? memcpy(copy, data, (size_t)bytes) : NULL;
}

/* Free a launch that is not stored; `stored` may be NULL. */
static void free_prepared(Prepared *made, Prepared *stored) {
    PyMem_Free(made->where);
    PyMem_Free(made->block);
    PyMem_Free(made->holes);
    PyMem_Free(made->starts);
    PyMem_Free(stored);
}

static PyObject *xla_prepare(PyObject *module, PyObject *args) {
    (void)module;
    Prepared made = {0};
    unsigned *d = made.dimensions;
    const char *where, *block, *holes, *starts;
    Py_ssize_t block_bytes, holes_bytes, starts_bytes;
    unsigned long long kernel, flights, retired;
    long long identity;
    if (!PyArg_ParseTuple(args, "sLK(IIIIIII)KKpiiy#y#y#", &where, &identity, &kernel, d,
                          d + 1, d + 2, d + 3, d + 4, d + 5, d + 6, &flights, &retired, &made.pinned, &made.args, &made.results, &block,
                          &block_bytes, &holes, &holes_bytes, &starts, &starts_bytes))
        return NULL;
    made.identity = identity;
    made.kernel = (void *)(uintptr_t)kernel;
    made.flights = (unsigned *)(uintptr_t)flights + 1;
    made.retired = (unsigned *)(uintptr_t)retired;
    made.bytes = (int)block_bytes;
    made.holes_count = (int)(holes_bytes / (Py_ssize_t)sizeof(Hole));
    made.starts_count = (int)(starts_bytes / (Py_ssize_t)sizeof(int32_t));
    if (block_bytes > MOST_BYTES || made.starts_count > MOST_ARGUMENTS * 4 || holes_bytes % (Py_ssize_t)sizeof(Hole)) {
        PyErr_SetString(PyExc_ValueError, "the parameter block is too large for a launch by XLA");
        return NULL;
    }
    for (int i = 0; i < made.holes_count; i++) {
        Hole hole;
        memcpy(&hole, holes + i * sizeof hole, sizeof hole);
        if (hole.offset < 0 || hole.offset > block_bytes - 8 || hole.index < 0 || hole.divisor < 1 ||
            hole.index >= (hole.is_result ? made.results : made.args)) {
            PyErr_SetString(PyExc_ValueError, "an address has no argument or result, or no place in the block");
            return NULL;
        }
    }
    for (int i = 0; i < made.starts_count; i++) {
        int32_t start;
        memcpy(&start, starts + i * sizeof start, sizeof start);
        if (start < 0 || start >= block_bytes) {
            PyErr_SetString(PyExc_ValueError, "a parameter is outside of the block");
            return NULL;
        }
    }
    made.where = copied(where, (Py_ssize_t)strlen(where) + 1);
    made.block = copied(block, block_bytes);
    made.holes = copied(holes, holes_bytes);
    made.starts = copied(starts, starts_bytes);
    Prepared *stored = copied(&made, sizeof made);
    int number = __atomic_load_n(&prepared_count, __ATOMIC_ACQUIRE); /* the caller holds a lock */
    PyObject *result = PyLong_FromLong(number);
    if (!made.where || !made.block || !made.holes || !made.starts || !stored || !result || number >= MOST_PREPARED) {
        free_prepared(&made, stored);
        Py_XDECREF(result);
        if (number >= MOST_PREPARED)
            PyErr_SetString(PyExc_OverflowError, "this process has traced too many different launches");
        else
            PyErr_NoMemory();
        return NULL;
    }
    if (stored->pinned)
        __atomic_fetch_add(stored->flights, 1, __ATOMIC_SEQ_CST);
    prepared[number] = stored;
    __atomic_store_n(&prepared_count, number + 1, __ATOMIC_RELEASE);
    return result;
}

static PyObject *xla_handlers(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    PyObject *executes = PyCapsule_New((void *)(uintptr_t)xla_execute, NULL, NULL);
    PyObject *records = PyCapsule_New((void *)(uintptr_t)xla_record, NULL, NULL);
    PyObject *refuses = PyCapsule_New((void *)(uintptr_t)xla_refuse, NULL, NULL);
    PyObject *all = executes && records && refuses ? PyTuple_Pack(3, executes, records, refuses) : NULL;
    Py_XDECREF(executes);
    Py_XDECREF(records);
    Py_XDECREF(refuses);
    return all;
}

PyMethodDef xla_functions[] = {
    {"xla_prepare", xla_prepare, METH_VARARGS,
     "xla_prepare(where, identity, kernel, (grid x, y, z, block x, y, z, shared),\n"
     "flights, retired, pinned, args, results, block, holes, starts) -> int\n\n"
     "Store a launch for XLA's programs under the returned number. A hole is four 32-bit integers: the offset of an address, 1 for\n"
     "a result, its index, and the divisor of the address. Nothing is freed: call once for each launch."},
    {"xla_handlers", xla_handlers, METH_NOARGS,
     "xla_handlers() -> (capsule, capsule, capsule)\n\nReturn the handlers of XLA's FFI that launch, that launch pinned launches, and\n"
     "that refuse to launch on other devices."},
    {NULL, NULL, 0, NULL},
};
