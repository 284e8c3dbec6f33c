/* Read device arrays: the description of an array goes into an ArrayView, and its stream into LaunchStreams.
 *
 * Each reader does the same as the reader of that family in aotcuda/runtime/launch/arguments/arrays.py, or returns 0, perhaps with a
 * Python error set: the caller then declines the launch. Readers use public interfaces, and one private attribute, which
 * aotcuda/runtime/launch/arguments/foreign_names.py lists and set_cupy() receives.
 */
#include "launch.h"

enum { DEVICE_CUDA = 2, DEVICE_CUDA_MANAGED = 13, CODE_COMPLEX = 5 }; /* DLPack's */
enum { LOWEST_ADDRESS_BITS = 40 }; /* on most machines the driver allocates no lower addresses */

static PyObject *s_dtype, *s_ndim, *s_data, *s_ptr, *s_shape, *s_strides, *s_is_cuda, *s_is_conj, *s_is_contiguous, *s_storage_offset,
    *s_element_size, *s_data_ptr, *s_stride, *s_interface, *s_typestr, *s_stream, *s_mask, *s_exchange, *s_gpu_data,
    *s_device_pointer, *s_device_id;

int arrays_init(void) {
    static const struct {
        PyObject **place;
        const char *text;
    } names[] = {{&s_dtype, "dtype"}, {&s_ndim, "ndim"}, {&s_data, "data"}, {&s_ptr, "ptr"}, {&s_shape, "shape"},
                 {&s_strides, "strides"}, {&s_is_cuda, "is_cuda"}, {&s_is_conj, "is_conj"}, {&s_is_contiguous, "is_contiguous"},
                 {&s_storage_offset, "storage_offset"}, {&s_element_size, "element_size"}, {&s_data_ptr, "data_ptr"},
                 {&s_stride, "stride"}, {&s_interface, "__cuda_array_interface__"}, {&s_typestr, "typestr"},
                 {&s_stream, "stream"}, {&s_mask, "mask"}, {&s_exchange, "__dlpack_c_exchange_api__"},
                 {&s_gpu_data, "gpu_data"}, {&s_device_pointer, "device_pointer"}, {&s_device_id, "device_id"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!*names[i].place && !(*names[i].place = PyUnicode_InternFromString(names[i].text)))
            return -1;
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------- small functions */

/* Clear a Python error that the general path will raise again; return 0 for errors that must stop the program. After a
 * RecursionError the launch must not decline, because the general path would recurse again at each level. */
int clear_error(void) {
    if (!PyErr_Occurred())
        return 1;
    if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError) ||
        PyErr_ExceptionMatches(PyExc_RecursionError))
        return 0;
    PyErr_Clear();
    return 1;
}

/* The callers of these functions check for errors. */
int64_t as_number(PyObject *value) { return value ? (int64_t)PyLong_AsLongLong(value) : -1; }

uint64_t as_address(PyObject *value) { return value ? PyLong_AsUnsignedLongLong(value) : (uint64_t)-1; }

int64_t attribute_number(PyObject *object, PyObject *name) {
    PyObject *value = PyObject_GetAttr(object, name);
    int64_t number = as_number(value);
    Py_XDECREF(value);
    return number;
}

static int64_t method_number(PyObject *object, PyObject *name) {
    PyObject *value = PyObject_CallMethodObjArgs(object, name, NULL);
    int64_t number = as_number(value);
    Py_XDECREF(value);
    return number;
}

/* Return 1 if an attribute or a method's result is True, and release it. */
static int is_true(PyObject *value) {
    int result = value == Py_True;
    Py_XDECREF(value);
    return result;
}

/* Write a tuple's numbers into the same member of each dimension, beginning with `member`; 0 if there are not `count`. */
static int read_numbers(PyObject *tuple, int64_t *member, int count) {
    int fits = tuple && PyTuple_Check(tuple) && PyTuple_Size(tuple) == count;
    for (int i = 0; fits && i < count; i++) {
        member[i * PER_DIMENSION] = as_number(PyTuple_GetItem(tuple, i));
        fits = member[i * PER_DIMENSION] != -1 || !PyErr_Occurred();
    }
    return fits;
}

static int read_attribute_numbers(PyObject *object, PyObject *name, int64_t *member, int count) {
    PyObject *tuple = PyObject_GetAttr(object, name);
    int fits = read_numbers(tuple, member, count);
    Py_XDECREF(tuple);
    return fits;
}

/* Read the attributes `dtype` and `shape` into a view; 0 if the fast path does not support them. The address of the dtype
 * identifies the element type: the array and the specialization keep the object alive. */
static int read_dtype_and_shape(PyObject *array, ArrayView *view) {
    PyObject *dtype = PyObject_GetAttr(array, s_dtype), *shape = dtype ? PyObject_GetAttr(array, s_shape) : NULL;
    Py_ssize_t ndim = shape && PyTuple_Check(shape) ? PyTuple_Size(shape) : -1;
    int fits = ndim >= 0 && ndim <= MOST_DIMENSIONS && read_numbers(shape, &view->dimensions->extent, (int)ndim);
    view->element = (uint64_t)(uintptr_t)dtype;
    view->ndim = (int)ndim;
    view->readonly = 0;
    Py_XDECREF(dtype);
    Py_XDECREF(shape);
    return fits;
}

/* --------------------------------------------------------------------------------------------------------------------- CuPy */

/* The descriptors of CuPy's own classes from set_cupy(); NULL for an attribute that is not implemented in C. Finding the
 * descriptor takes half of the time of reading an attribute. Later patches of the class have no effect on these. */
static struct {
    PyTypeObject *array, *pointer;
    PyObject *dtype, *ndim, *contiguous, *data, *ptr;
} cupy;
static PyObject *s_contiguous;
static descrgetfunc get_described;

static PyObject *descriptor_of(PyObject *type, PyObject *name) {
    PyObject *found = PyObject_GetAttr(type, name);
    if (found && Py_TYPE(found) != &PyGetSetDescr_Type)
        Py_CLEAR(found);
    PyErr_Clear();
    return found;
}

/* Take the classes of CuPy's arrays and pointers, and the name of the private attribute for contiguity; the first call counts. */
void set_cupy_classes(PyObject *array, PyObject *pointer, PyObject *contiguous) {
    if (s_contiguous)
        return;
    s_contiguous = Py_NewRef(contiguous);
    get_described = (descrgetfunc)PyType_GetSlot(&PyGetSetDescr_Type, Py_tp_descr_get);
    if (!PyType_Check(array) || !PyType_Check(pointer))
        return;
    cupy.dtype = descriptor_of(array, s_dtype);
    cupy.ndim = descriptor_of(array, s_ndim);
    cupy.contiguous = descriptor_of(array, s_contiguous);
    cupy.data = descriptor_of(array, s_data);
    cupy.ptr = descriptor_of(pointer, s_ptr);
    cupy.pointer = (PyTypeObject *)Py_NewRef(pointer);
    cupy.array = (PyTypeObject *)Py_NewRef(array);
}

static PyObject *attribute(PyObject *object, const PyTypeObject *type, PyObject *descriptor, PyObject *name) {
    if (descriptor && Py_TYPE(object) == type)
        return get_described(descriptor, object, (PyObject *)type);
    return PyObject_GetAttr(object, name);
}

/* CuPy makes new tuples for each read of `shape` and `strides`, in 0.15 us each. A contiguous array of CuPy's own class with one
 * dimension needs neither: len() is its extent. */
static int read_cupy(PyObject *array, int is_subclass, ArrayView *view, LaunchStreams *streams) {
    PyObject *dtype = attribute(array, cupy.array, cupy.dtype, s_dtype);
    if (!dtype)
        return 0;
    view->element = (uint64_t)(uintptr_t)dtype;
    Py_DECREF(dtype);
    PyObject *dimensions = attribute(array, cupy.array, cupy.ndim, s_ndim);
    int64_t ndim = as_number(dimensions);
    Py_XDECREF(dimensions);
    if (ndim < 0 || ndim > MOST_DIMENSIONS)
        return 0;
    view->ndim = (int)ndim;
    view->readonly = 0;
    view->has_strides = !is_true(attribute(array, cupy.array, cupy.contiguous, s_contiguous));
    view->in_elements = 0;
    if (PyErr_Occurred())
        return 0;
    if (ndim == 1 && !is_subclass)
        view->dimensions[0].extent = PyObject_Size(array);
    else if (!read_attribute_numbers(array, s_shape, &view->dimensions->extent, view->ndim))
        return 0;
    if (view->has_strides && !read_attribute_numbers(array, s_strides, &view->dimensions->stride, view->ndim))
        return 0;
    PyObject *data = PyErr_Occurred() ? NULL : attribute(array, cupy.array, cupy.data, s_data);
    if (!data)
        return 0;
    PyObject *pointer = attribute(data, cupy.pointer, cupy.ptr, s_ptr);
    view->address = as_address(pointer);
    Py_XDECREF(pointer);
    if (streams->several_gpus && !PyErr_Occurred())
        view->device = (int)attribute_number(data, s_device_id);
    Py_DECREF(data);
    return !PyErr_Occurred() && add_cupy_stream(streams);
}

/* ------------------------------------------------------------------------------------------------------------------ PyTorch */

/* Return 0 for a lazy conjugate, whose memory has other numbers than the tensor shows. PyTorch's own DLPack export refuses lazy
 * conjugates, and exports lazy negatives as they are in memory. The fast path does the same, so it checks complex tensors alone. */
static int is_not_conjugated(PyObject *tensor) {
    PyObject *answer = PyObject_CallMethodObjArgs(tensor, s_is_conj, NULL);
    Py_XDECREF(answer);
    return answer == Py_False;
}

/* Return 1 if a tensor's storage has memory. A storage that was resized to nothing has the address 0, and a tensor with an offset
 * in that storage has a small address. normalize() refuses the address 0. */
static int has_memory(PyObject *tensor, const ArrayView *view) {
    if (!view->address || view->address >> LOWEST_ADDRESS_BITS)
        return 1;
    uint64_t offset = (uint64_t)method_number(tensor, s_storage_offset);
    return !PyErr_Occurred() && offset * (uint64_t)method_number(tensor, s_element_size) != view->address && !PyErr_Occurred();
}

/* Read a tensor by its attributes: of a subclass, or of a PyTorch without the exchange API. */
static int read_torch(PyObject *tensor, ArrayView *view, LaunchStreams *streams) {
    view->in_elements = 1;
    if (!read_dtype_and_shape(tensor, view) || !is_true(PyObject_GetAttr(tensor, s_is_cuda)) || !is_not_conjugated(tensor))
        return 0;
    int fits = 1;
    view->has_strides = !is_true(PyObject_CallMethodObjArgs(tensor, s_is_contiguous, NULL));
    if (view->has_strides && !PyErr_Occurred()) {
        PyObject *strides = PyObject_CallMethodObjArgs(tensor, s_stride, NULL);
        fits = read_numbers(strides, &view->dimensions->stride, view->ndim);
        Py_XDECREF(strides);
    }
    PyObject *pointer = fits && !PyErr_Occurred() ? PyObject_CallMethodObjArgs(tensor, s_data_ptr, NULL) : NULL;
    view->address = as_address(pointer);
    Py_XDECREF(pointer);
    return pointer && !PyErr_Occurred() && has_memory(tensor, view) && add_torch_stream(streams, tensor);
}

/* Read a tensor of PyTorch's own class by DLPack's exchange API. */
static int read_exchange(PyObject *tensor, const DLPackExchange *exchange, ArrayView *view, LaunchStreams *streams) {
    DLPackTensor source;
    if (exchange->read(tensor, &source))
        return 0;
    if ((source.device.type != DEVICE_CUDA && source.device.type != DEVICE_CUDA_MANAGED) || source.ndim < 0 ||
        source.ndim > MOST_DIMENSIONS || (source.ndim && !source.shape) || source.dtype.lanes != 1 || source.dtype.bits % 8)
        return 0;
    view->element = 1 | (uint64_t)source.dtype.code << 8 | (uint64_t)source.dtype.bits << 16;
    view->address = source.data ? (uint64_t)(uintptr_t)source.data + source.byte_offset : 0;
    view->device = source.device.type == DEVICE_CUDA ? source.device.id : -1;
    view->ndim = source.ndim;
    view->readonly = 0;
    view->has_strides = source.strides != NULL;
    view->in_elements = 1;
    for (int i = 0; i < source.ndim; i++) {
        view->dimensions[i].extent = source.shape[i];
        view->dimensions[i].stride = source.strides ? source.strides[i] : 0;
    }
    return (source.dtype.code != CODE_COMPLEX || is_not_conjugated(tensor)) && has_memory(tensor, view) &&
           add_exchange_stream(streams, exchange, source.device.type, source.device.id);
}

/* Return the exchange API of a class; NULL if it has none, or an unknown version. */
const DLPackExchange *exchange_of(PyTypeObject *type) {
    PyObject *capsule = PyObject_GetAttr((PyObject *)type, s_exchange);
    const DLPackExchange *exchange = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    Py_XDECREF(capsule); /* the type has a reference */
    PyErr_Clear();
    return exchange && exchange->version.major == 1 && exchange->read && exchange->current_stream ? exchange : NULL;
}

/* ------------------------------------------------------------------------------------------------- __cuda_array_interface__ */

/* Return a new reference to a value of an interface's dictionary; NULL if there is none or it is None. Some arrays return the same
 * dictionary each time, and another thread may be changing it. */
static PyObject *item(PyObject *dictionary, PyObject *key) {
    PyObject *value;
#ifdef Py_GIL_DISABLED
    if (PyDict_GetItemRef(dictionary, key, &value) < 0)
        return NULL;
#else
    value = Py_XNewRef(PyDict_GetItemWithError(dictionary, key));
#endif
    if (value != Py_None)
        return value;
    Py_DECREF(value);
    return NULL;
}

static int add_named_stream(LaunchStreams *streams, uint64_t handle) {
    return !PyErr_Occurred() && add_data_stream(streams, (uintptr_t)handle, 1);
}

enum { TYPESTR, DATA, SHAPE, STRIDES, STREAM, MASK, ITEMS };

static int read_interface_items(PyObject *const items[ITEMS], ArrayView *view, LaunchStreams *streams) {
    PyObject *typestr = items[TYPESTR], *data = items[DATA], *shape = items[SHAPE], *strides = items[STRIDES];
    Py_ssize_t length;
    if (!typestr || !data || !shape || !PyUnicode_CheckExact(typestr) || !PyTuple_CheckExact(data) ||
        PyTuple_Size(data) != 2 || !PyTuple_CheckExact(shape) || PyTuple_Size(shape) > MOST_DIMENSIONS || items[MASK])
        return 0;
    const char *text = PyUnicode_AsUTF8AndSize(typestr, &length);
    if (!text || length < 1 || length > 8 || memchr(text, 'V', length) || memchr(text, 0, length))
        return 0; /* the type string does not have the fields of a structured type; `element` has the text of other types */
    view->element = 0;
    memcpy(&view->element, text, length);
    view->ndim = (int)PyTuple_Size(shape);
    view->address = as_address(PyTuple_GetItem(data, 0));
    view->readonly = PyErr_Occurred() ? -1 : PyObject_IsTrue(PyTuple_GetItem(data, 1));
    if (view->readonly < 0)
        return 0;
    view->has_strides = strides != NULL;
    view->in_elements = 0;
    if (!read_numbers(shape, &view->dimensions->extent, view->ndim) || (strides && !read_numbers(strides, &view->dimensions->stride, view->ndim)))
        return 0;
    if (items[STREAM] && (!PyLong_CheckExact(items[STREAM]) || !add_named_stream(streams, as_address(items[STREAM]))))
        return 0;
    return !PyErr_Occurred();
}

static int read_interface(PyObject *array, ArrayView *view, LaunchStreams *streams) {
    PyObject *const keys[ITEMS] = {s_typestr, s_data, s_shape, s_strides, s_stream, s_mask};
    PyObject *items[ITEMS] = {NULL}, *dictionary = PyObject_GetAttr(array, s_interface);
    int fits = dictionary && PyDict_CheckExact(dictionary);
    for (int i = 0; fits && i < ITEMS; i++)
        items[i] = item(dictionary, keys[i]);
    fits = fits && read_interface_items(items, view, streams);
    for (int i = 0; i < ITEMS; i++)
        Py_XDECREF(items[i]);
    Py_XDECREF(dictionary);
    return fits;
}

/* -------------------------------------------------------------------------------------------------------------------- Numba */

/* Return the value of int(): Numba's handles and addresses are objects. The caller checks for errors. */
static uint64_t as_int(PyObject *value) {
    PyObject *number = value && !PyLong_Check(value) ? PyNumber_Long(value) : Py_XNewRef(value);
    uint64_t result = as_address(number);
    Py_XDECREF(number);
    return result;
}

/* Read Numba's own arrays by their attributes: Python code makes their interface in 1 us, and it has no strides for some arrays with
 * broadcast dimensions. The attribute `stream` is 0 for no stream. */
static int read_numba(PyObject *array, ArrayView *view, LaunchStreams *streams) {
    view->has_strides = 1;
    view->in_elements = 0;
    if (!read_dtype_and_shape(array, view) || !read_attribute_numbers(array, s_strides, &view->dimensions->stride, view->ndim))
        return 0;
    PyObject *data = PyObject_GetAttr(array, s_gpu_data), *pointer = data ? PyObject_GetAttr(data, s_device_pointer) : NULL;
    view->address = as_int(pointer);
    Py_XDECREF(pointer);
    Py_XDECREF(data);
    PyObject *stream = PyErr_Occurred() ? NULL : PyObject_GetAttr(array, s_stream);
    uint64_t handle = stream ? as_int(stream) : 0;
    /* An object that int() converts to 0 may be equal to 0 or not: the general path decides. */
    int fits = stream && !PyErr_Occurred() && (!handle ? PyLong_Check(stream) : add_named_stream(streams, handle));
    Py_XDECREF(stream);
    return fits && !PyErr_Occurred();
}

/* --------------------------------------------------------------------------------------------------------------- all readers */

/* Read the arrays among the arguments, in order; return their number, or -1 if the fast path does not support one. */
int read_arrays(const ArgumentTypes *types, PyObject *const *args, ArrayView *views, LaunchStreams *streams) {
    int count = types->arrays_count;
    const Reader *reader = types->readers;
    for (ArrayView *view = views; view < views + count; view++, reader++) {
        PyObject *array = args[reader->at];
        int kind = reader->kind;
        view->device = -1;
        int fits = kind == EXCHANGE    ? read_exchange(array, reader->exchange, view, streams)
                   : kind == INTERFACE ? read_interface(array, view, streams)
                   : kind == NUMBA     ? read_numba(array, view, streams)
                   : kind == TORCH     ? read_torch(array, view, streams)
                                       : read_cupy(array, kind == CUPY_SUBCLASS, view, streams);
        if (!fits)
            return -1;
    }
    return count;
}

/* Return the argument of arrays.element() in Python for an array that was read; NULL if its dtype has changed. */
PyObject *element_of(int kind, PyObject *array, const ArrayView *view) {
    char text[sizeof view->element + 1] = {0};
    if (kind == EXCHANGE)
        return Py_BuildValue("(ii)", (int)(view->element >> 8 & 0xFF), (int)(view->element >> 16 & 0xFF));
    if (kind == INTERFACE) {
        memcpy(text, &view->element, sizeof view->element);
        return PyUnicode_FromString(text);
    }
    PyObject *dtype = PyObject_GetAttr(array, s_dtype);
    if (dtype && (uint64_t)(uintptr_t)dtype != view->element)
        Py_CLEAR(dtype);
    return dtype;
}
