/* Launchers: a kernel with a launch configuration, and the launch itself. launch.h describes its steps. */
#include "launch.h"

PyTypeObject *launcher_type;
SHARED(int) fast_path_disabled = 0;
Driver driver;
static PyObject *s_answer, *s_general_launcher; /* the two methods in Python that launches call */
static PyObject *no_bytes;
static SHARED(PyObject *) stream_readers; /* a dict: the function that reads the handle of a stream object, by the object's type */

enum { AFTER = 1 << 16 }; /* added to the driver's code if the launch was made, and a stream does not wait for it */

enum { DEVICE_ORDINAL = 9 };      /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */
enum { LAST_DEFAULT_STREAM = 2 }; /* CU_STREAM_PER_THREAD; these handles are of the current context */
enum { ATTRIBUTE_BYTES = 72 };    /* sizeof(CUlaunchAttribute) */

/* CUlaunchConfig */
typedef struct {
    unsigned dimensions[6], shared;
    void *stream;
    const void *attributes;
    unsigned count;
} LaunchConfig;

/* Return the launcher that has the members for a launch. */
static Launcher *base_of(PyObject *object) {
    Launcher *launcher = (Launcher *)object;
    return launcher->base ? launcher->base : launcher;
}

/* ------------------------------------------------------------------------------------------------------------- the launch */

/* Reading an array may run code that launches, and so on. Each level takes some hundred bytes of the C stack for each array, which
 * Python does not count. Deeper launches take the general path, where Python limits the recursion. */
enum { MOST_DEPTH = 16 };
#ifdef Py_GIL_DISABLED
static _Thread_local int depth;
#else
static int depth; /* of all threads that are reading arguments */
#endif

/* With several GPUs: return 1 if all arrays are on the specialization's GPU. */
static int arrays_are_here(const Specialization *specialization, const ArrayView *views) {
    for (int i = 0; i < specialization->arrays_count; i++) {
        int device = views[i].device;
        if (views[i].address && ((device < 0 && driver.pointer_attribute(&device, DEVICE_ORDINAL, views[i].address)) ||
                                 device != specialization->device))
            return 0;
    }
    return 1;
}

/* With several GPUs: return 1 if the stream belongs to the current context. The driver would launch in the stream's context, and
 * the handle of a destroyed stream may be that of another GPU's stream by now. For a destroyed stream is_capturing() returns an
 * error, and stream_context() crashes. */
static int stream_is_here(void *stream, void *context) {
    void *owner;
    int status;
    return (uintptr_t)stream <= LAST_DEFAULT_STREAM || (!driver.is_capturing(stream, &status) &&
                                                        !driver.stream_context(stream, &owner) && owner == context);
}

static int is_within_limits(const unsigned *dimensions, const unsigned *limits) {
    for (int i = 0; i < LIMITS; i++)
        if (dimensions[i] > limits[i])
            return 0;
    return 1;
}

/* Compute the threads of a block and the blocks of the grid from the other dimensions, as far as 32 bits count them. */
static void complete(unsigned *d) {
    uint64_t threads = (uint64_t)d[3] * d[4], blocks = (uint64_t)d[0] * d[1];
    threads = threads > UINT32_MAX ? threads : threads * d[5];
    blocks = blocks > UINT32_MAX ? blocks : blocks * d[2];
    d[7] = threads > UINT32_MAX ? UINT32_MAX : (unsigned)threads;
    d[8] = blocks > UINT32_MAX ? UINT32_MAX : (unsigned)blocks;
}

/* Set the dimensions of a launch that covers a number of elements by blocks of `block` threads; 0 if 32 bits do not count them. */
static int cover(unsigned *d, uint64_t elements, unsigned block, unsigned shared) {
    uint64_t blocks = block ? elements / block + (elements % block != 0) : 0;
    if (!blocks || blocks > UINT32_MAX)
        return 0;
    memcpy(d, (unsigned[LIMITS]){(unsigned)blocks, 1, 1, block, 1, 1, shared}, sizeof(unsigned[LIMITS]));
    complete(d);
    return 1;
}

/* Return 1 if a candidate may be launched with a block. */
static int has_its_block(const Candidate *candidate, const unsigned *block) {
    return !candidate->block[0] || candidate->threads || memcmp(candidate->block, block, sizeof candidate->block) == 0;
}

/* Pack the parameter block of the first candidate that accepts the arguments; return its number, or a reason to decline, negative. */
static int pack(const Specialization *specialization, const Number *numbers, ArrayView *views, unsigned char *block) {
    for (int i = 0; i < specialization->arrays_count; i++)
        if (!normalize(&views[i], specialization->arrays[i].itemsize, specialization->arrays[i].address_alone))
            return -BECAUSE_VALUES;
    for (int number = 0; number < specialization->candidates_count; number++) {
        const ArgumentLayout *layout = specialization->candidates[number].layout;
        int fits = fill_block(layout, numbers, views, block), apart = fits == REFUSED ? 0 : are_apart(layout, views);
        if (apart)
            return apart < 0 ? -BECAUSE_VALUES : fits == ACCEPTED ? number : -BECAUSE_ALIGNMENT;
    }
    return -BECAUSE_VALUES;
}

/* Make the launch's stream wait, launch, and make streams wait for it; return the driver's code, or a reason, negative. begin_launch() was
 * called. */
static int submit(const Launcher *self, const unsigned *d, const Specialization *specialization, const Candidate *candidate,
                  const LaunchStreams *streams, unsigned char *block) {
    const ArgumentLayout *layout = candidate->layout;
    unsigned block_x = candidate->threads ? candidate->threads : d[3], shared = candidate->threads ? candidate->shared : d[6];
    void *stream = (void *)streams->handle;
    size_t size = (size_t)layout->size;
    void *whole[] = {(void *)1, block, (void *)2, &size, NULL}; /* CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END */
    void *starts[MOST_STARTS], **parameters = NULL, **extra = whole;
    if (layout->starts_count) {
        for (int i = 0; i < layout->starts_count; i++)
            starts[i] = block + layout->starts[i];
        parameters = starts;
        extra = NULL;
    }
    LaunchConfig config;
    PyObject *attributes = candidate->attributes ? candidate->attributes : self->elements ? NULL : self->attributes;
    if (attributes)
        config = (LaunchConfig){{d[0], d[1], d[2], block_x, d[4], d[5]}, shared, stream, PyBytes_AsString(attributes),
                                (unsigned)(PyBytes_Size(attributes) / ATTRIBUTE_BYTES)};
    int code = 0, ordered = 0, waits = streams->waits;
    void *event = NULL;
    if (waits && (!may_order(streams) || !(event = take_event((Specialization *)specialization))))
        return declined(BECAUSE_CAPTURED);
    /* A full queue makes the driver wait, and it may wait for a host function that needs the GIL. */
    Py_BEGIN_ALLOW_THREADS
    for (int i = 0; i < waits && !ordered; i++)
        ordered = order(event, streams->waits_for[i].stream, (uintptr_t)stream);
    if (!ordered && !attributes)
        code = driver.launch(candidate->kernel, d[0], d[1], d[2], block_x, d[4], d[5], shared, stream, parameters, extra);
    else if (!ordered)
        code = driver.launch_with_config(&config, candidate->kernel, parameters, extra);
    for (int i = 0; i < waits && !ordered && !code; i++)
        if (streams->waits_for[i].mutual && (code = order(event, (uintptr_t)stream, streams->waits_for[i].stream)))
            code += AFTER;
    Py_END_ALLOW_THREADS
    if (event)
        give_event((Specialization *)specialization, event, !ordered && !code);
    return ordered ? declined(BECAUSE_ORDER) : code; /* the general path raises the error of the order of streams */
}

/* Launch; return the driver's code, or a reason to decline, negative, perhaps with a Python error set. */
static int launch(const Launcher *self, PyObject *const *args, Py_ssize_t count) {
    Table *table = READ(self->specializations->table);
    if (READ(fast_path_disabled) || depth >= MOST_DEPTH)
        return declined(depth >= MOST_DEPTH ? BECAUSE_DEPTH : BECAUSE_FORKED);
    const ArgumentTypes *types = table ? find_types(table, args, count) : NULL;
    if (!types)
        return declined(BECAUSE_TYPES);
    ON_STACK(ArrayView, views, types->arrays_count + 1); /* as little stack as possible, because cache misses after a driver call cost time */
    ON_STACK(Number, numbers, types->count + 1);
    LaunchStreams streams;
    begin_streams(&streams, self->is_stream_given, self->stream, READ(table->last)->device >= 0);
    depth++;
    int arrays = read_arrays(types, args, views, &streams);
    int is_read = arrays >= 0 && read_argument_numbers(types, args, numbers);
    depth--;
    if (!is_read || (!streams.is_known && !set_launch_stream(&streams, 0)))
        return declined(streams.too_many ? BECAUSE_STREAMS : arrays < 0 ? BECAUSE_ARRAY : BECAUSE_NUMBER);
    void *context = NULL;
    if (READ(table->needs_context) && driver.current_context(&context))
        return declined(BECAUSE_CONTEXT);
    Key key;
    make_key(&key, types, context, views, numbers, self->attributes, self->dimensions + 3);
    const Specialization *specialization = find_specialization(table, &key);
    if (!specialization)
        return declined(BECAUSE_KEY);
    if (!specialization->candidates_count) {
        for (int i = 0; i < arrays; i++)
            if (views[i].address & 7) /* the array may not be aligned for its elements, which is no miss */
                return declined(BECAUSE_ALIGNMENT);
        return declined(PyList_Size(specialization->live) > 0 ? BECAUSE_MISSED : BECAUSE_UNLOADED);
    }
    if (specialization->device >= 0 &&
        (!arrays_are_here(specialization, views) || !stream_is_here((void *)streams.handle, context)))
        return declined(BECAUSE_GPU);
    ON_STACK(uint64_t, room, (specialization->most_bytes + 15) / 16 * 2 + 2); /* for the block, aligned to 16 bytes */
    unsigned char *block = (unsigned char *)(((uintptr_t)room + 15) / 16 * 16);
    int number = pack(specialization, numbers, views, block);
    unsigned by_elements[LIMITS];
    const unsigned *d = self->dimensions;
    if (number < 0)
        return declined(-number);
    if (self->elements) {
        if (!cover(by_elements, self->elements, specialization->candidates[number].best, d[6]))
            return declined(BECAUSE_LIMITS);
        d = by_elements;
    }
    if (!is_within_limits(d, specialization->limits) || !has_its_block(&specialization->candidates[number], d + 3))
        return declined(BECAUSE_LIMITS);
    if (!begin_launch(specialization))
        return declined(BECAUSE_UNLOADED);
    int code = submit(self, d, specialization, &specialization->candidates[number], &streams, block);
    end_launch(specialization);
    if (!code && specialization->served)
        ADD(*specialization->served, 1);
    return code;
}

/* ------------------------------------------------------------------------------------------------------------------- calls */

/* Return a new reference to the launcher in Python behind this one. */
static PyObject *general_of(Launcher *self) {
    if (self->function)
        return PyObject_CallMethodObjArgs(self->kernel, s_general_launcher, self->function, Py_None, NULL);
    self = base_of((PyObject *)self);
    PyObject *general = READ(self->general);
    if (general)
        return Py_NewRef(general);
    general = PyObject_CallMethodObjArgs(self->kernel, s_general_launcher, self->configuration, (PyObject *)self->specializations,
                                         self->is_for_all ? Py_True : NULL, NULL);
    if (!general)
        return NULL;
    PyObject *found;
    Py_BEGIN_CRITICAL_SECTION((PyObject *)self);
    found = READ(self->general); /* another thread may have made one meanwhile */
    if (!found)
        WRITE(self->general, Py_NewRef(general));
    Py_END_CRITICAL_SECTION();
    if (!found)
        return general;
    Py_DECREF(general);
    return Py_NewRef(found);
}

/* Let a launcher in Python launch, or raise the error of the driver; `code` is the result of launch(). */
static PyObject *answer(PyObject *general, int code, PyObject *args, PyObject *keywords) {
    PyObject *number = PyLong_FromLong(code > 0 ? code : code == -BECAUSE_MISSED ? -1 : 0);
    PyObject *result = number ? PyObject_CallMethodObjArgs(general, s_answer, number, args, keywords, NULL) : NULL;
    Py_XDECREF(number);
    return result;
}

/* Call an object by its vectorcall function with a tuple and a dict, or NULL, of arguments. */
PyObject *call_by_vector(PyObject *object, PyObject *args, PyObject *keywords) {
    PyObject *names = keywords ? PyDict_Keys(keywords) : NULL, *tuple = names ? PyList_AsTuple(names) : NULL, *result = NULL;
    Py_ssize_t count = PyTuple_Size(args), named = tuple ? PyTuple_Size(tuple) : 0;
    PyObject **array = PyMem_Malloc((size_t)(count + named + 1) * sizeof *array);
    if (!array) {
        PyErr_NoMemory();
    } else if (!keywords || tuple) {
        for (Py_ssize_t i = 0; i < count; i++)
            array[i] = PyTuple_GetItem(args, i);
        for (Py_ssize_t i = 0; i < named; i++) /* no other code has `keywords` */
            array[count + i] = PyDict_GetItemWithError(keywords, PyTuple_GetItem(tuple, i));
        result = ((Vectorcallable *)object)->vectorcall(object, array, (size_t)count, tuple);
    }
    PyMem_Free(array);
    Py_XDECREF(names);
    Py_XDECREF(tuple);
    return result;
}

/* Put the arguments of a call in order, with named and omitted ones; return their number, or a reason to decline, negative. */
static Py_ssize_t arrange(Launcher *self, PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject **full) {
    Py_ssize_t total = PyTuple_Size(self->names), named = names ? PyTuple_Size(names) : 0, next = count;
    if (count > self->positional)
        return declined(BECAUSE_NAMES);
    uint64_t by_name = 0;
    for (Py_ssize_t i = 0; i < total; i++)
        full[i] = i < count ? args[i] : PyTuple_GetItem(self->defaults, i);
    for (Py_ssize_t j = 0; j < named; j++) {
        PyObject *name = PyTuple_GetItem(names, j);
        Py_ssize_t left = total - count, i = next;
        for (; left && (i == total || PyTuple_GetItem(self->names, i) != name); left--) /* most calls name them in order */
            i = i < total - 1 ? i + 1 : count;
        if (!left) /* a name that is not interned, unknown, or also given by position */
            return declined(BECAUSE_NAMES);
        full[i] = args[count + j];
        by_name |= (uint64_t)1 << i;
        next = i + 1;
    }
    for (const Derived *d = self->derived; d < self->derived + self->derived_count; d++) {
        int is_given = by_name >> d->source & 1;
        if (d->at < count || (d->way != COPIED && d->source >= count && !is_given))
            return declined(BECAUSE_NAMES);
        if (d->way == COPIED)
            full[d->at] = is_given ? full[d->source] : full[d->at];
        else
            full[d->at] = (full[d->source] == Py_None) == (d->way == IS_NONE) ? Py_True : Py_False;
    }
    for (Py_ssize_t i = count; i < total; i++)
        if (full[i] == self->names)
            return declined(BECAUSE_NAMES);
    return total;
}

/* Return a call's positional arguments as a tuple, and the named ones as a dict in `keywords`, NULL for none. On an error return
 * NULL. */
static PyObject *gather(PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject **keywords) {
    Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    PyObject *tuple = PyTuple_New(count);
    *keywords = named ? PyDict_New() : NULL;
    int made = tuple && (!named || *keywords);
    for (Py_ssize_t i = 0; made && i < count; i++)
        PyTuple_SetItem(tuple, i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; made && i < named; i++)
        made = PyDict_SetItem(*keywords, PyTuple_GetItem(names, i), args[count + i]) == 0;
    if (!made) {
        Py_CLEAR(tuple);
        Py_CLEAR(*keywords);
    }
    return tuple;
}

/* Read a grid or a block, an int or a tuple of ints; 0 if only Python reads it. */
static int read_grid(PyObject *grid, unsigned *dimensions) {
    Py_ssize_t count = PyTuple_CheckExact(grid) ? PyTuple_Size(grid) : 1;
    if (count < 1 || count > 3)
        return 0;
    for (Py_ssize_t i = 0; i < 3; i++) {
        PyObject *part = i >= count ? NULL : PyTuple_CheckExact(grid) ? PyTuple_GetItem(grid, i) : grid;
        if (part && !PyLong_CheckExact(part))
            return 0;
        int overflow = 0;
        long long extent = part ? PyLong_AsLongLongAndOverflow(part, &overflow) : 1;
        if (overflow || extent < 1 || extent > UINT32_MAX)
            return 0;
        dimensions[i] = (unsigned)extent;
    }
    return 1;
}

/* Launch with the grid that the function returns for the arguments by name. If the fast path declines, the launcher in Python
 * continues with that grid, because the function must be called once. */
static PyObject *call_with_function(Launcher *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    Launcher with_grid = *base_of((PyObject *)self); /* borrowed: the base lives as long as this launcher */
    PyObject *full[MOST_ARGUMENTS], *grid = NULL, *meta = NULL, *keywords = NULL, *tuple = NULL, *general = NULL, *result = NULL;
    Py_ssize_t total = arrange(&with_grid, args, count, names, full);
    int code = total < 0 ? (int)total : LAUNCHED;
    if (total >= 0) {
        if (!(meta = PyDict_New()))
            return NULL;
        for (Py_ssize_t i = 0; i < with_grid.positional; i++)
            if (PyDict_SetItem(meta, PyTuple_GetItem(with_grid.names, i), full[i]))
                goto end;
        if (!(grid = PyObject_CallFunctionObjArgs(self->function, meta, NULL)))
            goto end;
        int is_read = read_grid(grid, with_grid.dimensions);
        complete(with_grid.dimensions);
        code = is_read ? launch(&with_grid, full, total) : declined(BECAUSE_CONFIGURATION);
        if (code < 0 && code != -BECAUSE_MISSED && !clear_error())
            goto end;
    }
    if (code == LAUNCHED) {
        result = Py_NewRef(Py_None);
    } else if (code > 0) { /* the error shows all arguments in order */
        general = PyObject_GetItem(self->kernel, grid);
        tuple = general ? gather(full, total, NULL, &keywords) : NULL;
    } else {
        general = PyObject_CallMethodObjArgs(self->kernel, s_general_launcher, self->function, Py_None, grid, NULL);
        tuple = general ? gather(args, count, names, &keywords) : NULL;
    }
    if (tuple)
        result = answer(general, code, tuple, keywords);
end:
    Py_XDECREF(meta);
    Py_XDECREF(grid);
    Py_XDECREF(general);
    Py_XDECREF(tuple);
    Py_XDECREF(keywords);
    return result;
}

/* Call by the protocol of PEP 590, which needs no tuple. The stable ABI has the function from 3.12 on; types support it before. */
static PyObject *launcher_vectorcall(PyObject *object, PyObject *const *args, size_t flagged, PyObject *names) {
    Launcher *self = base_of(object);
    Py_ssize_t count = (Py_ssize_t)(flagged & ~((size_t)1 << (8 * sizeof(size_t) - 1)));
    Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    PyObject *full[MOST_ARGUMENTS];
    int code;
    if (((Launcher *)object)->function)
        return call_with_function((Launcher *)object, args, count, names);
    if (self->names) {
        Py_ssize_t total = arrange(self, args, count, names, full);
        code = total < 0 ? (int)total : launch(self, full, total);
        if (code > 0) { /* the error shows all arguments in order */
            args = full;
            count = total;
            named = 0;
        }
    } else {
        code = named ? declined(BECAUSE_NAMES) : launch(self, args, count);
    }
    if (code == LAUNCHED)
        Py_RETURN_NONE;
    if (code < 0 && code != -BECAUSE_MISSED && !clear_error())
        return NULL;
    PyObject *keywords, *tuple = gather(args, count, named ? names : NULL, &keywords);
    PyObject *general = tuple ? general_of(self) : NULL, *result = general ? answer(general, code, tuple, keywords) : NULL;
    Py_XDECREF(general);
    Py_XDECREF(tuple);
    Py_XDECREF(keywords);
    return result;
}

/* ---------------------------------------------------------------------------------------------------------- the Python object */

/* Read tuples (argument, source, way); 0 and an error if a number is no argument. */
static int read_derived(Launcher *self, PyObject *described) {
    Py_ssize_t count = PyTuple_Size(described), total = PyTuple_Size(self->names);
    self->derived = PyMem_Calloc(count ? (size_t)count : 1, sizeof(Derived));
    if (!self->derived) {
        PyErr_NoMemory();
        return 0;
    }
    for (; self->derived_count < count; self->derived_count++) {
        int at, source, way;
        if (!PyArg_ParseTuple(PyTuple_GetItem(described, self->derived_count), "iii", &at, &source, &way))
            return 0;
        if (at < 0 || at >= total || source < 0 || source >= total || way < COPIED || way > IS_NOT_NONE) {
            PyErr_SetString(PyExc_ValueError, "a computed argument refers to an unknown argument");
            return 0;
        }
        self->derived[self->derived_count] = (Derived){(unsigned char)at, (unsigned char)source, (unsigned char)way};
    }
    return 1;
}

static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    (void)keywords;
    PyObject *general, *specializations, *given, *attributes, *names = NULL, *defaults = NULL, *derived = NULL;
    int positional = 0;
    unsigned d[LIMITS];
    if (!PyArg_ParseTuple(args, "OO!(IIIIIII)OS|O!O!iO!", &general, specializations_type, &specializations, &d[0], &d[1], &d[2], &d[3],
                          &d[4], &d[5], &d[6], &given, &attributes, &PyTuple_Type, &names, &PyTuple_Type, &defaults, &positional,
                          &PyTuple_Type, &derived))
        return NULL;
    if (names && (!defaults || PyTuple_Size(names) != PyTuple_Size(defaults) || PyTuple_Size(names) > MOST_ARGUMENTS ||
                  positional < 0 || positional > PyTuple_Size(names))) {
        PyErr_SetString(PyExc_ValueError, "names and defaults differ in number, or there are too many");
        return NULL;
    }
    unsigned long long stream = given == Py_None ? 0 : PyLong_AsUnsignedLongLong(given);
    if (PyErr_Occurred())
        return NULL;
    complete(d);
    Launcher *self = (Launcher *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    self->vectorcall = launcher_vectorcall;
    WRITE(self->general, Py_NewRef(general));
    self->specializations = (Specializations *)Py_NewRef(specializations);
    self->names = Py_XNewRef(names);
    self->defaults = Py_XNewRef(defaults);
    self->positional = positional;
    if (derived && !read_derived(self, derived)) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    memcpy(self->dimensions, d, sizeof d);
    self->attributes = PyBytes_Size(attributes) ? Py_NewRef(attributes) : NULL;
    self->is_stream_given = given != Py_None;
    self->stream = (void *)(uintptr_t)stream;
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030E0000
    /* Threads then do not contend for the reference count. The launcher is part of a reference cycle, so the garbage collector
     * frees it anyway. */
    PyUnstable_Object_EnableDeferredRefcount((PyObject *)self);
#endif
    return (PyObject *)self;
}

/* Return a launcher whose base is that of another one. */
static Launcher *launcher_like(PyObject *other) {
    Launcher *made = (Launcher *)PyType_GenericAlloc(launcher_type, 0);
    if (made) {
        made->vectorcall = launcher_vectorcall;
        made->base = (Launcher *)Py_NewRef((PyObject *)base_of(other));
    }
    return made;
}

static PyObject *launcher_with_stream(PyObject *self, PyObject *stream) {
    Launcher *made = launcher_like(self);
    if (made) {
        made->stream_object = Py_NewRef(stream);
        made->function = Py_XNewRef(((Launcher *)self)->function);
        made->kernel = Py_XNewRef(((Launcher *)self)->kernel);
    }
    return (PyObject *)made;
}

static PyObject *launcher_with_function(Launcher *self, PyObject *args) {
    PyObject *function, *kernel;
    if (!PyArg_ParseTuple(args, "OO", &function, &kernel))
        return NULL;
    if (!base_of((PyObject *)self)->names) {
        PyErr_SetString(PyExc_ValueError, "this launcher has no names of arguments");
        return NULL;
    }
    Launcher *made = launcher_like((PyObject *)self);
    if (made) {
        made->function = Py_NewRef(function);
        made->kernel = Py_NewRef(kernel);
    }
    return (PyObject *)made;
}

/* Read the stream of a configuration; 0 if only Python reads it. A stream object stays alive as long as its launcher. */
static int read_stream(Launcher *made, PyObject *stream) {
    PyObject *handle = NULL;
    made->is_stream_given = stream != Py_None;
    if (!made->is_stream_given)
        return 1;
    if (PyLong_CheckExact(stream)) {
        handle = Py_NewRef(stream);
    } else if (!PyUnicode_Check(stream)) {
        PyObject *readers = READ(stream_readers), *reader = readers ? PyDict_GetItemWithError(readers, (PyObject *)Py_TYPE(stream)) : NULL;
        Py_XINCREF(reader);
        handle = reader ? PyObject_CallFunctionObjArgs(reader, stream, NULL) : NULL;
        Py_XDECREF(reader);
        made->stream_object = Py_NewRef(stream);
    }
    unsigned long long number = handle && PyLong_CheckExact(handle) ? PyLong_AsUnsignedLongLong(handle) : 0;
    int is_read = handle && PyLong_CheckExact(handle) && !PyErr_Occurred();
    Py_XDECREF(handle);
    made->stream = (void *)(uintptr_t)number;
    return is_read;
}

/* Make a launcher of the same kernel; NULL if only Python reads the stream, or on an error. */
static Launcher *make_launcher(Launcher *self, PyObject *configuration, PyObject *stream, const unsigned *dimensions) {
    Launcher *made = (Launcher *)PyType_GenericAlloc(launcher_type, 0);
    if (!made)
        return NULL;
    made->vectorcall = launcher_vectorcall;
    made->kernel = Py_NewRef(self->kernel);
    made->configuration = Py_NewRef(configuration);
    made->specializations = (Specializations *)Py_NewRef((PyObject *)self->specializations);
    made->names = Py_XNewRef(self->names);
    made->defaults = Py_XNewRef(self->defaults);
    made->positional = self->positional;
    made->owner = Py_NewRef((PyObject *)self);
    made->derived = self->derived;
    made->derived_count = self->derived_count;
    memcpy(made->dimensions, dimensions, sizeof made->dimensions);
    if (read_stream(made, stream))
        return made;
    Py_DECREF((PyObject *)made);
    PyErr_Clear(); /* Python raises the error */
    return NULL;
}

/* Return None from configured() or for_all(): only Python reads the configuration. */
static PyObject *leave_to_python(void) {
    declined(BECAUSE_CONFIGURATION);
    Py_RETURN_NONE;
}

/* Return a launcher of the same kernel, where a launch needs no launcher in Python; None if only Python reads the configuration. */
static PyObject *launcher_configured(Launcher *self, PyObject *configuration) {
    PyObject *grid = configuration, *block = NULL, *stream = Py_None, *shared = NULL;
    unsigned d[LIMITS] = {1, 1, 1, 1, 1, 1};
    if (!self->names) {
        Py_ssize_t count = PyTuple_CheckExact(configuration) ? PyTuple_Size(configuration) : 0;
        if (count < 2 || count > 4)
            return leave_to_python();
        grid = PyTuple_GetItem(configuration, 0);
        block = PyTuple_GetItem(configuration, 1);
        stream = count > 2 ? PyTuple_GetItem(configuration, 2) : stream;
        shared = count > 3 ? PyTuple_GetItem(configuration, 3) : shared;
    }
    int is_read = read_grid(grid, d) && (!block || read_grid(block, d + 3)), overflow = 0;
    if (is_read && shared) {
        long long number = PyLong_CheckExact(shared) ? PyLong_AsLongLongAndOverflow(shared, &overflow) : -1;
        is_read = !overflow && number >= 0 && number <= UINT32_MAX;
        d[6] = (unsigned)number;
    }
    complete(d);
    if (!is_read || d[7] > LARGEST_BLOCK)
        return leave_to_python();
    Launcher *made = make_launcher(self, configuration, stream, d);
    return made || PyErr_Occurred() ? (PyObject *)made : leave_to_python();
}

/* Return a launcher that covers a number of elements; None if only Python reads the arguments: (elements, block, stream, shared). */
static PyObject *launcher_for_all(Launcher *self, PyObject *args) {
    PyObject *n, *block, *stream, *shared;
    unsigned d[LIMITS] = {1, 1, 1};
    int more = 0, over = 0;
    if (!PyArg_ParseTuple(args, "OOOO", &n, &block, &stream, &shared))
        return NULL;
    long long elements = PyLong_CheckExact(n) ? PyLong_AsLongLongAndOverflow(n, &more) : -1;
    long long bytes = PyLong_CheckExact(shared) ? PyLong_AsLongLongAndOverflow(shared, &over) : -1;
    if (self->names || more || over || elements < 1 || bytes < 0 || bytes > UINT32_MAX)
        return leave_to_python();
    d[6] = (unsigned)bytes;
    if (block != Py_None) {
        long threads = PyLong_CheckExact(block) ? PyLong_AsLongAndOverflow(block, &over) : -1;
        if (over || threads < 1 || threads > LARGEST_BLOCK || !cover(d, (uint64_t)elements, (unsigned)threads, d[6]))
            return leave_to_python();
    }
    Launcher *made = make_launcher(self, args, stream, d);
    if (!made)
        return PyErr_Occurred() ? NULL : leave_to_python();
    made->is_for_all = 1;
    if (block == Py_None) {
        made->elements = (uint64_t)elements;
        made->attributes = Py_NewRef(no_bytes);
    }
    return (PyObject *)made;
}

static int launcher_traverse(Launcher *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->base);
    Py_VISIT(self->stream_object);
    Py_VISIT(self->function);
    Py_VISIT(self->kernel);
    Py_VISIT(self->configuration);
    Py_VISIT(self->owner);
    Py_VISIT(READ(self->general));
    return 0; /* the other members refer to nothing that can refer back */
}

/* `base` stays: it clears its own references, and calls of this launcher use it. */
static int launcher_clear(Launcher *self) {
    PyObject *general = READ(self->general);
    WRITE(self->general, Py_NewRef(Py_None));
    Py_XDECREF(general);
    Py_CLEAR(self->stream_object);
    return 0; /* calls use the function and the kernel, so they are not cleared either */
}

static void launcher_dealloc(Launcher *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    Py_CLEAR(self->base);
    Py_CLEAR(self->stream_object);
    Py_CLEAR(self->function);
    Py_CLEAR(self->kernel);
    Py_CLEAR(self->configuration);
    Py_XDECREF(READ(self->general));
    Py_XDECREF(self->attributes);
    Py_XDECREF(self->names);
    Py_XDECREF(self->defaults);
    if (self->owner)
        Py_DECREF(self->owner);
    else
        PyMem_Free(self->derived);
    Py_XDECREF((PyObject *)self->specializations);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *launcher_getattro(PyObject *self, PyObject *name) {
    PyObject *value = PyObject_GenericGetAttr(self, name);
    if (value || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return value;
    PyErr_Clear();
    PyObject *general = general_of((Launcher *)self);
    value = general ? PyObject_GetAttr(general, name) : NULL;
    Py_XDECREF(general);
    return value;
}

static PyObject *launcher_repr(PyObject *self) {
    PyObject *general = general_of((Launcher *)self), *text = general ? PyObject_Repr(general) : NULL;
    Py_XDECREF(general);
    return text;
}

static PyObject *launcher_reduce(PyObject *self, PyObject *none) {
    (void)none;
    PyObject *general = general_of((Launcher *)self);
    PyObject *result = general ? PyObject_CallMethod(general, "__reduce__", NULL) : NULL;
    Py_XDECREF(general);
    return result;
}

/* A copy of a launcher is the launcher itself, so objects with a launcher can be copied. */
static PyObject *launcher_copy(PyObject *self, PyObject *memo) {
    (void)memo;
    return Py_NewRef(self);
}

/* Take the kernel for configured(), before other threads see the launcher. */
static PyObject *launcher_serve(Launcher *self, PyObject *kernel) {
    if (!self->kernel)
        self->kernel = Py_NewRef(kernel);
    Py_RETURN_NONE;
}

static PyMethodDef launcher_methods[] = {
    {"__copy__", (PyCFunction)launcher_copy, METH_NOARGS, "Return the launcher itself."},
    {"__deepcopy__", (PyCFunction)launcher_copy, METH_O, "Return the launcher itself."},
    {"with_stream", (PyCFunction)launcher_with_stream, METH_O,
     "with_stream(stream) -> Launcher\n\nReturn a launcher like this one, which keeps the stream object alive."},
    {"with_function", (PyCFunction)launcher_with_function, METH_VARARGS,
     "with_function(function, kernel) -> Launcher\n\nReturn a launcher like this one whose grid a function of the arguments returns."},
    {"serve", (PyCFunction)launcher_serve, METH_O,
     "serve(kernel)\n\nLet configured() make launchers of a kernel, whose general_launcher() returns the launcher in Python."},
    {"configured", (PyCFunction)launcher_configured, METH_O,
     "configured(configuration) -> Launcher | None\n\nReturn a launcher of the same kernel with what users wrote in the brackets;\n"
     "None if only Python reads it."},
    {"for_all", (PyCFunction)launcher_for_all, METH_VARARGS,
     "for_all(n, block, stream, shared) -> Launcher | None\n\nReturn a launcher of the same kernel that covers n elements; None if only\n"
     "Python reads the arguments."},
    {"__reduce__", (PyCFunction)launcher_reduce, METH_NOARGS, "Refuse, as the general launcher does."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef launcher_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Launcher, vectorcall), READONLY, NULL},
    {"specializations", T_OBJECT, offsetof(Launcher, specializations), READONLY, "The specializations that it searches."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot launcher_slots[] = {
    /* Users see this text. Python makes one of (general, specializations, (grid x, y, z, block x, y, z, shared), stream, attributes[,
     * names, defaults, positional, derived]). */
    {Py_tp_doc, "A kernel with a launch configuration; call it with the kernel's arguments."},
    {Py_tp_new, launcher_new},
    {Py_tp_call, call_by_vector},
    {Py_tp_getattro, launcher_getattro},
    {Py_tp_methods, launcher_methods},
    {Py_tp_members, launcher_members},
    {Py_tp_repr, launcher_repr},
    {Py_tp_traverse, launcher_traverse},
    {Py_tp_clear, launcher_clear},
    {Py_tp_dealloc, launcher_dealloc},
    {0, NULL},
};

static PyType_Spec launcher_spec = {"aotcuda.runtime.launch.fast._launch.Launcher", sizeof(Launcher), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, launcher_slots};

static PyObject *disable(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    WRITE(fast_path_disabled, 1);
    Py_RETURN_NONE;
}

static PyObject *use_driver(PyObject *module, PyObject *args) {
    (void)module;
    unsigned long long f[12];
    if (!PyArg_ParseTuple(args, "(KKKKKKKKKKKK)", &f[0], &f[1], &f[2], &f[3], &f[4], &f[5], &f[6], &f[7], &f[8], &f[9], &f[10], &f[11]))
        return NULL;
    void *functions[12];
    _Static_assert(sizeof functions == sizeof driver, "use_driver() takes each function of Driver");
    for (int i = 0; i < 12; i++)
        functions[i] = (void *)(uintptr_t)f[i];
    Py_BEGIN_CRITICAL_SECTION(module);
    if (memcmp(functions, &driver, sizeof driver)) /* no write if equal, because other threads may be launching */
        memcpy(&driver, functions, sizeof driver);
    Py_END_CRITICAL_SECTION();
    Py_RETURN_NONE;
}

static PyObject *set_stream_readers(PyObject *module, PyObject *readers) {
    (void)module;
    Py_BEGIN_CRITICAL_SECTION(module);
    if (!READ(stream_readers))
        WRITE(stream_readers, Py_NewRef(readers));
    Py_END_CRITICAL_SECTION();
    Py_RETURN_NONE;
}

PyMethodDef launcher_functions[] = {
    {"set_stream_readers", set_stream_readers, METH_O, "set_stream_readers(readers)\n\nTake the dict of functions that read the handles of stream objects, by type; the first call counts."},
    {"use_driver", use_driver, METH_VARARGS, "use_driver(functions)\n\nTake the addresses of the driver's functions, in the order of Driver in launch.h."},
    {"disable", disable, METH_NOARGS, "Let every launch take the general path from now on: the process has forked."},
    {NULL, NULL, 0, NULL},
};

int launcher_init(PyObject *module) {
    if ((!s_answer && !(s_answer = PyUnicode_InternFromString("answer"))) ||
        (!s_general_launcher && !(s_general_launcher = PyUnicode_InternFromString("general_launcher"))))
        return -1;
    if (!no_bytes && !(no_bytes = PyBytes_FromStringAndSize(NULL, 0)))
        return -1;
    if (!launcher_type && !(launcher_type = (PyTypeObject *)PyType_FromSpec(&launcher_spec)))
        return -1;
    return PyModule_AddObjectRef(module, "Launcher", (PyObject *)launcher_type) ||
                   PyModule_AddIntConstant(module, "MOST_ARGUMENTS", MOST_ARGUMENTS)
               ? -1
               : 0;
}
