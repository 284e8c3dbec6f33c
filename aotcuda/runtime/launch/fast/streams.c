/* Streams: the stream of a launch, the streams of its data, and how they wait for each other. */
#include "launch.h"

/* The function for a library's current stream. A source may be replaced but is never freed, because another thread may be using it. */
typedef struct {
    PyObject *object;           /* a Python function, or the capsule that holds `function` */
    intptr_t (*function)(void); /* CuPy's function, if it has one in C */
    intptr_t (*on_gpu)(int);    /* CuPy's function for a given GPU */
    int orders_others;          /* 0: launches on other streams do not wait for the library's stream */
} StreamSource;

static SHARED(const StreamSource *) cupy_source;
static SHARED(const StreamSource *) torch_source; /* NULL: PyTorch has none */
static PyObject *s_ptr, *s_get_device;

int streams_init(void) {
    if (!s_ptr && !(s_ptr = PyUnicode_InternFromString("ptr")))
        return -1;
    return s_get_device || (s_get_device = PyUnicode_InternFromString("get_device")) ? 0 : -1;
}

/* ---------------------------------------------------------------------------------------------------- the streams of a launch */

void begin_streams(LaunchStreams *streams, int is_given, void *stream, int several_gpus) {
    streams->several_gpus = several_gpus;
    streams->handle = (uintptr_t)stream;
    streams->stream = stream ? (uintptr_t)stream : 1;
    streams->is_known = is_given;
    streams->any_stream = streams->early_count = streams->waits = streams->cupy_is_read = streams->torch_is_read = streams->too_many = 0;
    streams->last_exchange = NULL;
}

/* Add a stream that the launch waits for, unless it is the launch's own; 0 if there are too many. */
static int wait_for(LaunchStreams *streams, uintptr_t stream, int mutual) {
    if (streams->any_stream || stream == streams->stream)
        return 1;
    for (int i = 0; i < streams->waits; i++)
        if (streams->waits_for[i].stream == stream) {
            streams->waits_for[i].mutual |= mutual;
            return 1;
        }
    if (streams->waits == MOST_STREAMS) {
        streams->too_many = 1;
        return 0;
    }
    streams->waits_for[streams->waits++] = (DataStream){stream, mutual};
    return 1;
}

/* Set the launch's stream; 0 if the arrays that were read before are on too many other streams. */
int set_launch_stream(LaunchStreams *streams, uintptr_t handle) {
    streams->is_known = 1;
    streams->handle = handle;
    streams->stream = handle ? handle : 1;
    for (int i = 0; i < streams->early_count; i++)
        if (!wait_for(streams, streams->early_streams[i].stream, streams->early_streams[i].mutual))
            return 0;
    return 1;
}

/* Add a stream with data of the launch; 0 if there are too many. */
int add_data_stream(LaunchStreams *streams, uintptr_t stream, int mutual) {
    if (!stream)
        stream = 1;
    if (streams->any_stream || streams->is_known)
        return wait_for(streams, stream, mutual);
    streams->early_streams[streams->early_count++] = (DataStream){stream, mutual};
    return 1;
}

/* Add the current stream of CuPy or PyTorch, which becomes the launch's stream if that is not known yet. */
static int add_current_stream(LaunchStreams *streams, uintptr_t current, int mutual) {
    return streams->any_stream || streams->is_known ? add_data_stream(streams, current, mutual) : set_launch_stream(streams, current);
}

/* ------------------------------------------------------------------------------------------- the libraries' current streams */

int add_cupy_stream(LaunchStreams *streams) {
    const StreamSource *source = READ(cupy_source);
    if (streams->cupy_is_read || !source || (streams->is_known && !source->orders_others))
        return 1;
    streams->cupy_is_read = 1;
    if (source->function) {
        intptr_t handle = source->on_gpu && !streams->several_gpus ? source->on_gpu(0) : source->function();
        return !PyErr_Occurred() && add_current_stream(streams, (uintptr_t)handle, 1);
    }
    PyObject *stream = PyObject_CallNoArgs(source->object);
    if (!stream)
        return 0;
    int64_t handle = attribute_number(stream, s_ptr);
    Py_DECREF(stream);
    return !PyErr_Occurred() && add_current_stream(streams, (uintptr_t)handle, 1);
}

int add_torch_stream(LaunchStreams *streams, PyObject *tensor) {
    const StreamSource *source = READ(torch_source);
    if (streams->torch_is_read || !source)
        return 1;
    streams->torch_is_read = 1;
    PyObject *device = PyObject_CallMethodObjArgs(tensor, s_get_device, NULL);
    PyObject *stream = device ? PyObject_CallFunctionObjArgs(source->object, device, NULL) : NULL;
    Py_XDECREF(device);
    uint64_t handle = as_address(stream);
    Py_XDECREF(stream);
    return !PyErr_Occurred() && add_current_stream(streams, (uintptr_t)handle, 0);
}

int add_exchange_stream(LaunchStreams *streams, const DLPackExchange *exchange, int32_t device_type, int32_t device) {
    void *stream;
    if (streams->last_exchange == exchange)
        return 1;
    streams->last_exchange = exchange;
    return !exchange->current_stream(device_type, device, &stream) && add_current_stream(streams, (uintptr_t)stream, 0);
}

static PyObject *set_source(SHARED(const StreamSource *) *place, StreamSource source) {
    const StreamSource *now = READ(*place);
    if (source.object == Py_None) {
        WRITE(*place, NULL);
    } else if (!now || now->object != source.object || now->on_gpu != source.on_gpu || now->orders_others != source.orders_others) {
        StreamSource *made = PyMem_Malloc(sizeof(StreamSource));
        if (!made)
            return PyErr_NoMemory();
        *made = source;
        Py_INCREF(made->object);
        WRITE(*place, made);
    }
    Py_RETURN_NONE;
}

static PyObject *set_cupy(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *array, *pointer, *contiguous, *in_c, *on_gpu;
    StreamSource source = {NULL};
    if (!PyArg_ParseTuple(args, "OOO!OOOp", &array, &pointer, &PyUnicode_Type, &contiguous, &in_c, &on_gpu, &source.object,
                          &source.orders_others))
        return NULL;
    Py_BEGIN_CRITICAL_SECTION(module);
    set_cupy_classes(array, pointer, contiguous);
    Py_END_CRITICAL_SECTION();
    if (PyCapsule_IsValid(in_c, "intptr_t (void)")) { /* Cython's name for the type */
        source.object = in_c;
        source.function = (intptr_t (*)(void))PyCapsule_GetPointer(in_c, "intptr_t (void)");
    }
    if (PyCapsule_IsValid(on_gpu, "intptr_t (int)"))
        source.on_gpu = (intptr_t (*)(int))PyCapsule_GetPointer(on_gpu, "intptr_t (int)");
    return set_source(&cupy_source, source);
}

static PyObject *set_torch_stream(PyObject *module, PyObject *object) {
    (void)module;
    return set_source(&torch_source, (StreamSource){.object = object, .orders_others = 1});
}

PyMethodDef streams_functions[] = {
    {"set_cupy", set_cupy, METH_VARARGS,
     "set_cupy(array, pointer, contiguous, in_c, on_gpu, in_python, orders_others)\n\n"
     "Set the classes of CuPy's arrays and pointers (None: unknown), the attribute of CuPy's arrays that tells if they are\n"
     "C-contiguous, and the functions for CuPy's current stream: two in C, as capsules or None, of which the second takes a\n"
     "GPU's ordinal, and one in Python. If `orders_others`, launches on other streams wait for CuPy's stream."},
    {"set_torch_stream", set_torch_stream, METH_O,
     "Set PyTorch's function from a GPU's ordinal to the handle of its current stream; None for a PyTorch without one."},
    {NULL, NULL, 0, NULL},
};

/* ------------------------------------------------------------------------------------------------------- ordering of streams */

#ifdef Py_GIL_DISABLED
#define EXCHANGE_POINTER(place, value) atomic_exchange_explicit(&(place), (value), memory_order_acq_rel)
#else
#define EXCHANGE_POINTER(place, value) exchange_pointer(&(place), (value))
static void *exchange_pointer(void **place, void *value) {
    void *before = *place;
    *place = value;
    return before;
}
#endif

enum { EVENT_DISABLE_TIMING = 2 };

/* Return an event that no other launch uses; NULL if none can be made. */
void *take_event(Specialization *specialization) {
    void *event = EXCHANGE_POINTER(specialization->event, NULL);
    if (!event && driver.create_event(&event, EVENT_DISABLE_TIMING))
        return NULL;
    return event;
}

/* Store an event for the next launch, or destroy it. The driver keeps a destroyed event while a stream waits for it. */
void give_event(Specialization *specialization, void *event, int works) {
    void *other = works ? EXCHANGE_POINTER(specialization->event, event) : event;
    if (other)
        driver.destroy_event(other);
}

static int is_captured(void *stream) {
    int status = 0;
    return driver.is_capturing(stream, &status) || status;
}

/* Return 0 if a stream of the launch is captured into a graph: the general path has the rules for captures. */
int may_order(const LaunchStreams *streams) {
    for (int i = 0; i < streams->waits; i++)
        if (is_captured((void *)streams->waits_for[i].stream))
            return 0;
    return !is_captured((void *)streams->handle);
}

/* Make stream `after` wait for the work of stream `before`; return the driver's code. */
int order(void *event, uintptr_t before, uintptr_t after) {
    int code = driver.record_event(event, (void *)before);
    return code ? code : driver.wait_for_event((void *)after, event, 0);
}
