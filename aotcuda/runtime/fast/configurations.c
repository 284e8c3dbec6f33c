/* Configurations: finds the launcher of kernel[grid, block, stream, shared] among those that a kernel has.
 *
 * aotcuda/runtime/stream_objects.py does the same in Python. A configuration with a stream object is found by the stream's handle;
 * its launcher is made anew each time and keeps the object alive.
 */
#include "launch.h"

PyTypeObject *configurations_type;

typedef struct {
    PyObject_HEAD
    PyObject *launchers; /* a dict by configuration; those for given streams by (grid, block, handle, shared), too */
} Configurations;

/* ---------------------------------------------------------------------------------------------------------- stream objects */

/* How objects of a type tell their stream's handle: by an attribute, or by the method `__cuda_stream__`. Types are added by one
 * thread at a time and never removed. */
enum { MOST_STREAM_TYPES = 16 };
static struct {
    PyTypeObject *type;
    PyObject *attribute;
    int is_protocol;
} stream_types[MOST_STREAM_TYPES];
static SHARED(int) stream_types_count;

/* Return the handle of a stream object, as an int; NULL, perhaps without an error, if its type is not known. */
static PyObject *handle_of(PyObject *stream) {
    int count = READ(stream_types_count);
    for (int i = 0; i < count; i++) {
        if (stream_types[i].type != Py_TYPE(stream))
            continue;
        PyObject *value;
        if (stream_types[i].is_protocol) {
            PyObject *pair = PyObject_CallMethodObjArgs(stream, stream_types[i].attribute, NULL);
            int fits = pair && PyTuple_Check(pair) && PyTuple_Size(pair) == 2 && PyLong_Check(PyTuple_GetItem(pair, 0)) &&
                       PyObject_IsTrue(PyTuple_GetItem(pair, 0)) == 0;
            value = fits ? Py_NewRef(PyTuple_GetItem(pair, 1)) : NULL;
            Py_XDECREF(pair);
        } else {
            value = PyObject_GetAttr(stream, stream_types[i].attribute);
        }
        if (value && (!PyLong_CheckExact(value) || (stream_types[i].is_protocol && PyObject_IsTrue(value) == 0)))
            Py_CLEAR(value); /* a stream that was closed may say 0, which is not the default stream then */
        return is_forgiven() ? value : NULL;
    }
    return NULL;
}

static PyObject *know_stream_type(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *type, *attribute;
    int is_protocol, count = READ(stream_types_count);
    if (!PyArg_ParseTuple(args, "O!O!p", &PyType_Type, &type, &PyUnicode_Type, &attribute, &is_protocol))
        return NULL;
    for (int i = 0; i < count; i++)
        if (stream_types[i].type == (PyTypeObject *)type)
            Py_RETURN_NONE;
    if (count < MOST_STREAM_TYPES) {
        stream_types[count].type = (PyTypeObject *)Py_NewRef(type);
        stream_types[count].attribute = Py_NewRef(attribute);
        stream_types[count].is_protocol = is_protocol;
        WRITE(stream_types_count, count + 1);
    }
    Py_RETURN_NONE;
}

PyMethodDef configurations_functions[] = {
    {"know_stream_type", know_stream_type, METH_VARARGS,
     "know_stream_type(type, attribute, is_protocol)\n\n"
     "Read the handle of streams of this type from an attribute, or from a method of the protocol __cuda_stream__."},
    {NULL, NULL, 0, NULL},
};

/* ------------------------------------------------------------------------------------------------------------------- lookup */

/* Return 1 if a configuration is made of Python's own ints, None, tuples of them and plain objects. It is equal to no other
 * configuration then: 1.0 is equal to 1, and is no number of blocks. Tuples are in it `tuples` deep. */
static int is_exact(PyObject *written, int tuples) {
    if (!tuples || !PyTuple_CheckExact(written))
        return PyLong_CheckExact(written) || written == Py_None || Py_TYPE(written) == &PyBaseObject_Type;
    for (Py_ssize_t i = 0; i < PyTuple_Size(written); i++)
        if (!is_exact(PyTuple_GetItem(written, i), tuples - 1))
            return 0;
    return 1;
}

/* Return a configuration with Python's own ints in the place of other integers, such as NumPy's; NULL, perhaps without an error,
 * if it is for the general path. */
static PyObject *made_exact(PyObject *written, int tuples) {
    if (!tuples || !PyTuple_CheckExact(written)) {
        if (is_exact(written, 0))
            return Py_NewRef(written);
        int is_integer = PyIndex_Check(written) && !PyLong_Check(written); /* a subclass of int may compare as it likes */
        PyObject *number = is_integer ? PyNumber_Index(written) : NULL;
        return is_forgiven() ? number : NULL;
    }
    PyObject *made = PyTuple_New(PyTuple_Size(written));
    for (Py_ssize_t i = 0; made && i < PyTuple_Size(written); i++) {
        PyObject *part = made_exact(PyTuple_GetItem(written, i), tuples - 1);
        if (!part || PyTuple_SetItem(made, i, part) < 0)
            Py_CLEAR(made);
    }
    return made;
}

/* Return the launcher of a configuration, a reference of the caller's own; NULL and an error if there is none. */
static PyObject *find(PyObject *launchers, PyObject *written) {
    PyObject *value = NULL, *key = is_exact(written, 2) ? Py_NewRef(written) : made_exact(written, 2);
    if (!key) {
        if (!PyErr_Occurred())
            PyErr_SetObject(PyExc_KeyError, written);
        return NULL;
    }
#ifdef Py_GIL_DISABLED
    PyDict_GetItemRef(launchers, key, &value);
#else
    value = Py_XNewRef(PyDict_GetItemWithError(launchers, key));
#endif
    if (!value && !PyErr_Occurred())
        PyErr_SetObject(PyExc_KeyError, key);
    Py_DECREF(key);
    return value;
}

/* Return a launcher that is like the one for the stream object's handle, and keeps the object alive. */
static PyObject *find_for_stream(Configurations *self, PyObject *key) {
    PyObject *stream = PyTuple_GetItem(key, 2), *handle = handle_of(stream), *found = NULL, *made = NULL;
    PyObject *shared = PyTuple_Size(key) == 4 ? Py_NewRef(PyTuple_GetItem(key, 3)) : PyLong_FromLong(0);
    PyObject *plain = handle && shared ? PyTuple_Pack(4, PyTuple_GetItem(key, 0), PyTuple_GetItem(key, 1), handle, shared) : NULL;
    if (plain)
        found = find(self->launchers, plain);
    if (found && Py_TYPE(found) == launcher_type)
        made = launcher_for_stream(base_of(found), stream);
    else if (!PyErr_Occurred())
        PyErr_SetObject(PyExc_KeyError, key);
    Py_XDECREF(found);
    Py_XDECREF(plain);
    Py_XDECREF(shared);
    Py_XDECREF(handle);
    return made;
}

static PyObject *configurations_subscript(Configurations *self, PyObject *key) {
    Py_ssize_t count = PyTuple_CheckExact(key) ? PyTuple_Size(key) : 0;
    if (count == 3 || count == 4) {
        PyObject *stream = PyTuple_GetItem(key, 2);
        if (stream != Py_None && !PyLong_Check(stream))
            return find_for_stream(self, key);
    }
    return find(self->launchers, key);
}

/* ---------------------------------------------------------------------------------------------------------- the Python object */

static PyObject *configurations_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    (void)keywords;
    PyObject *launchers;
    if (!PyArg_ParseTuple(args, "O!", &PyDict_Type, &launchers))
        return NULL;
    Configurations *self = (Configurations *)PyType_GenericAlloc(type, 0);
    if (self)
        self->launchers = Py_NewRef(launchers);
    return (PyObject *)self;
}

static PyObject *configurations_empty(Configurations *self, PyObject *unused) {
    (void)unused;
    PyDict_Clear(self->launchers);
    Py_RETURN_NONE;
}

static int configurations_traverse(Configurations *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->launchers);
    return 0;
}

static int configurations_clear(Configurations *self) {
    PyObject *launchers = self->launchers;
    self->launchers = PyDict_New();
    Py_XDECREF(launchers);
    return 0;
}

static void configurations_dealloc(Configurations *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->launchers);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef configurations_methods[] = {
    {"clear", (PyCFunction)configurations_empty, METH_NOARGS, "Drop all launchers."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot configurations_slots[] = {
    {Py_tp_doc, "Configurations(launchers): finds launchers in a dict, and those for stream objects by the streams' handles."},
    {Py_tp_new, configurations_new},
    {Py_mp_subscript, configurations_subscript},
    {Py_tp_methods, configurations_methods},
    {Py_tp_traverse, configurations_traverse},
    {Py_tp_clear, configurations_clear},
    {Py_tp_dealloc, configurations_dealloc},
    {0, NULL},
};

static PyType_Spec configurations_spec = {"aotcuda.runtime.fast._launch.Configurations", sizeof(Configurations), 0,
                                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, configurations_slots};

int configurations_init(PyObject *module) {
    if (!configurations_type && !(configurations_type = (PyTypeObject *)PyType_FromSpec(&configurations_spec)))
        return -1;
    return PyModule_AddObjectRef(module, "Configurations", (PyObject *)configurations_type);
}
