/* Parameter blocks: the layout of one overload's arguments, and packing arguments into a block by it.
 *
 * The layout comes from record() in aotcuda/runtime/launch/arguments/parameter_kinds.py, which also defines the arguments that each kind of
 * parameter accepts.
 */
#include "launch.h"
#include <math.h>
#include <stdlib.h>

PyTypeObject *argument_layout_type;

int is_array(const Parameter *parameter) { return parameter->kind == 'a' || parameter->kind == 'e'; }

/* Return the parameter of an argument. */
const Parameter *parameter_of(const ArgumentLayout *layout, int at) {
    const Parameter *parameter = layout->parameters;
    while (parameter->at != at)
        parameter++;
    return parameter;
}

/* Return 1 if a parameter accepts arguments that are read in this way; the type of an array is compared elsewhere. */
int takes_kind(const Parameter *parameter, int kind) {
    if (is_array(parameter) || kind < INT)
        return is_array(parameter) && kind < INT;
    if (parameter->kind == 'k' || kind == CONSTANT || kind == OBJECT)
        return parameter->kind == 'k' && kind != TRUTH && kind != INDEX;
    if (parameter->kind == 'p')
        return kind == INT;
    int is_float = parameter->format == 'f' || parameter->format == 'd';
    return parameter->kind == 'c' || kind == INT || kind == TRUTH || kind == INDEX || (kind == FLOAT && is_float);
}

/* ------------------------------------------------------------------------------------------------------ making a layout */

/* Return the index in ArrayView.numbers of a word. */
static unsigned char number_of(unsigned char word) {
    int family = word / 16;
    return (unsigned char)(family ? FIRST_DIMENSION + word % 16 * PER_DIMENSION + family - 1 : word);
}

/* Return 1 if the number at this index is a stride in elements. */
static int is_step(unsigned char number) {
    return number >= FIRST_DIMENSION && (number - FIRST_DIMENSION) % PER_DIMENSION == PER_DIMENSION - 1;
}

/* Return 1 if all words are of dimensions that an array of `ndim` has. */
static int words_fit(const char *words, Py_ssize_t count, int ndim) {
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned char word = (unsigned char)words[i];
        if (word > WORD_DATA && (word < WORD_SHAPE || word >= WORD_STEP + 16 || word % 16 >= ndim))
            return 0;
    }
    return 1;
}

/* Return the bytes that a number takes in a block. */
static int format_bytes(int format) {
    return strchr("?bB", format) ? 1 : strchr("hHe", format) ? 2 : strchr("iIf", format) ? 4 : 8;
}

/* Set the bounds of an integer's format, and return its bytes; 0 for another format. */
static int bounds_of(char format, int64_t *low, int64_t *high) {
    *low = INT64_MIN, *high = INT64_MAX;
    switch (format) {
    case '?': *low = 0, *high = 1; return 1;
    case 'b': *low = INT8_MIN, *high = INT8_MAX; return 1;
    case 'B': *low = 0, *high = UINT8_MAX; return 1;
    case 'h': *low = INT16_MIN, *high = INT16_MAX; return 2;
    case 'H': *low = 0, *high = UINT16_MAX; return 2;
    case 'i': *low = INT32_MIN, *high = INT32_MAX; return 4;
    case 'I': *low = 0, *high = UINT32_MAX; return 4;
    case 'Q': *low = 0; return 8;
    case 'q': return 8;
    }
    return 0;
}

/* Read an array's sizes; 0 if one has a wrong dimension or format, or is outside of the block. */
static int read_sizes(Parameter *parameter, const char *sizes, Py_ssize_t bytes, int size) {
    int ndim = parameter->ndim == ANY_DIMENSIONS ? 0 : parameter->ndim;
    if (bytes % SIZE_BYTES || bytes / SIZE_BYTES > MOST_SIZES || (bytes && parameter->kind != 'a'))
        return 0;
    parameter->sizes_count = (int)(bytes / SIZE_BYTES);
    for (int i = 0; i < parameter->sizes_count; i++, sizes += SIZE_BYTES) {
        Size *found = &parameter->sizes[i];
        int32_t offset;
        found->number = words_fit(sizes, 1, ndim) ? number_of((unsigned char)sizes[0]) : 0;
        found->format = sizes[1];
        memcpy(&offset, sizes + 2, sizeof offset);
        found->offset = offset;
        found->divisor = (unsigned char)sizes[6] | (unsigned char)sizes[7] << 8;
        found->bounded = (unsigned char)sizes[8];
        if (found->divisor < 1 || !found->format || !strchr("bBhHiIqQ", found->format) || !words_fit(sizes, 1, ndim) || offset < 0 ||
            offset > size - format_bytes(found->format))
            return 0;
        parameter->counts_elements |= is_step(found->number);
    }
    return 1;
}

/* Read the pairs of arrays that must not overlap; 0 if there are too many, or a number is not an array's. */
static int read_pairs(ArgumentLayout *layout, const unsigned char *numbers, Py_ssize_t bytes) {
    if (bytes % 2 || bytes / 2 > MOST_PAIRS)
        return 0;
    layout->pairs_count = (int)(bytes / 2);
    for (Py_ssize_t i = 0; i < bytes; i++) {
        if (numbers[i] >= layout->count || !is_array(&layout->parameters[numbers[i]]))
            return 0;
        int before = 0;
        for (int j = 0; j < numbers[i]; j++)
            before += is_array(&layout->parameters[j]);
        layout->pairs[i / 2][i % 2] = (unsigned char)before;
    }
    return 1;
}

/* Compute the members of a parameter that Python's description lacks. */
static void prepare(ArgumentLayout *layout, int at) {
    Parameter *parameter = &layout->parameters[at];
    int64_t divisor = parameter->divisor;
    parameter->at = (unsigned char)at;
    if (is_array(parameter)) {
        layout->arrays_count++;
    } else if (parameter->kind == 'k') {
        int overflow = 1;
        layout->constants_count++;
        if (parameter->value && PyLong_CheckExact(parameter->value))
            parameter->low = PyLong_AsLongLongAndOverflow(parameter->value, &overflow);
        parameter->is_int = !overflow;
    } else {
        layout->numbers_count++;
        if (parameter->kind == 'c' || divisor & (divisor - 1))
            return;
        parameter->bytes = (unsigned char)bounds_of(parameter->format, &parameter->low, &parameter->high);
        parameter->low = parameter->least > parameter->low ? parameter->least : parameter->low;
        parameter->high = parameter->most < parameter->high ? parameter->most : parameter->high;
        parameter->mask = divisor - 1;
    }
}

/* Order parameters as ArgumentLayout has them. */
static int compare_parameters(const void *one, const void *other) {
    const Parameter *a = one, *b = other;
    int groups[] = {is_array(a) ? 2 : a->kind != 'k', is_array(b) ? 2 : b->kind != 'k'};
    return groups[0] != groups[1] ? groups[0] - groups[1] : a->at - b->at;
}

/* Read Python's description of a parameter; 0 and an error if the fast path does not support it. */
static int read_parameter(Parameter *parameter, PyObject *described, int size) {
    int kind, format, layout, ndim, writable, alignment;
    const char *words, *sizes;
    Py_ssize_t words_count, sizes_bytes;
    PyObject *dtype, *value;
    long long divisor, least, most;
    if (!PyArg_ParseTuple(described, "CCiCiiiiy#Uy#LLLO;a parameter", &kind, &format, &parameter->offset, &layout, &ndim,
                          &parameter->itemsize, &alignment, &writable, &words, &words_count, &dtype, &sizes, &sizes_bytes, &divisor, &least,
                          &most, &value))
        return 0;
    int bytes = kind == 'a' ? (int)words_count * 8 : kind == 'k' ? 0 : kind == 'p' || kind == 'e' ? 8 : format_bytes(format);
    int any = kind == 'a' && ndim == ANY_DIMENSIONS && layout == 'C';
    parameter->kind = (char)kind;
    parameter->ndim = (unsigned char)ndim;
    parameter->format = (char)format;
    parameter->layout = (char)layout;
    parameter->writable = (unsigned char)writable;
    parameter->divisor = divisor;
    parameter->misaligned = alignment - 1;
    parameter->least = least;
    parameter->most = most;
    if (words_count > MOST_WORDS || ndim < 0 || (ndim > MOST_DIMENSIONS && !any) || parameter->offset < 0 ||
        parameter->offset > size - (kind == 'c' ? 2 * bytes : bytes) || (is_array(parameter) && parameter->itemsize < 1) ||
        (kind == 'a' && !words_fit(words, words_count, any ? 0 : ndim)) || (words_count && !is_array(parameter)) ||
        divisor < 1 || alignment < 1 || alignment & (alignment - 1) || !strchr("scpaek", kind) || !strchr(kind == 'c' ? "fd" : "?bBhHiIqQfd", format) ||
        !read_sizes(parameter, sizes, sizes_bytes, size)) {
        PyErr_SetString(PyExc_ValueError, "only the general path supports this parameter");
        return 0;
    }
    parameter->dtype = Py_NewRef(dtype);
    if (!is_array(parameter) && value != Py_None)
        parameter->value = Py_NewRef(value);
    parameter->words_count = (int)words_count;
    for (Py_ssize_t j = 0; j < words_count; j++) {
        parameter->words[j] = number_of((unsigned char)words[j]);
        parameter->counts_elements |= is_step(parameter->words[j]);
    }
    return 1;
}

static PyObject *layout_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    (void)keywords;
    int size;
    PyObject *parameters;
    const char *starts = "", *apart = "";
    Py_ssize_t starts_bytes = 0, apart_bytes = 0;
    if (!PyArg_ParseTuple(args, "iO!|y#y#", &size, &PyTuple_Type, &parameters, &starts, &starts_bytes, &apart, &apart_bytes))
        return NULL;
    Py_ssize_t count = PyTuple_Size(parameters), starts_count = starts_bytes / (Py_ssize_t)sizeof(int32_t);
    if (size > MOST_BYTES || count > MOST_ARGUMENTS || starts_count > MOST_STARTS) {
        PyErr_SetString(PyExc_ValueError, "too many parameters");
        declined(BECAUSE_LAYOUT);
        return NULL;
    }
    ArgumentLayout *self = (ArgumentLayout *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    self->size = size;
    self->parameters = PyMem_Calloc(count ? (size_t)count : 1, sizeof(Parameter));
    self->starts = PyMem_Calloc(starts_count ? (size_t)starts_count : 1, sizeof(int));
    if (!self->parameters || !self->starts) {
        PyErr_NoMemory();
        goto failed;
    }
    self->count = (int)count;
    self->starts_count = (int)starts_count;
    for (Py_ssize_t i = 0; i < starts_count; i++) {
        int32_t start;
        memcpy(&start, starts + i * (Py_ssize_t)sizeof start, sizeof start);
        if (start < 0 || start >= size) {
            PyErr_SetString(PyExc_ValueError, "a parameter is outside of the block");
            goto failed;
        }
        self->starts[i] = start;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!read_parameter(&self->parameters[i], PyTuple_GetItem(parameters, i), size))
            goto failed;
        prepare(self, (int)i);
    }
    if (!read_pairs(self, (const unsigned char *)apart, apart_bytes)) {
        PyErr_SetString(PyExc_ValueError, "only the general path supports these pairs of arrays");
        goto failed;
    }
    qsort(self->parameters, (size_t)count, sizeof(Parameter), compare_parameters);
    return (PyObject *)self;
failed:
    if (PyErr_ExceptionMatches(PyExc_ValueError))
        declined(BECAUSE_LAYOUT);
    Py_DECREF(self);
    return NULL;
}

static void layout_dealloc(ArgumentLayout *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    for (int i = 0; i < self->count; i++) {
        Py_XDECREF(self->parameters[i].dtype);
        Py_XDECREF(self->parameters[i].value);
    }
    PyMem_Free(self->parameters);
    PyMem_Free(self->starts);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot layout_slots[] = {
    {Py_tp_doc, "ArgumentLayout(size, parameters, starts, apart): where the arguments of one overload go in its parameter block.\n\n"
                "A parameter is a tuple (kind, format, offset, layout, ndim, itemsize, alignment, writable, words, dtype, sizes, divisor, least,\n"
                "most, value). `starts` has 32-bit offsets, `apart` the numbers of arrays in pairs."},
    {Py_tp_new, layout_new},
    {Py_tp_dealloc, layout_dealloc},
    {0, NULL},
};

static PyType_Spec layout_spec = {"aotcuda.runtime.launch.fast._launch.ArgumentLayout", sizeof(ArgumentLayout), 0, Py_TPFLAGS_DEFAULT,
                                  layout_slots};

int block_init(PyObject *module) {
    if (!argument_layout_type && !(argument_layout_type = (PyTypeObject *)PyType_FromSpec(&layout_spec)))
        return -1;
    return PyModule_AddObjectRef(module, "ArgumentLayout", (PyObject *)argument_layout_type);
}

/* -------------------------------------------------------------------------------------------------------- normalizing views */

/* Multiply; 0 if the product does not fit. */
static int multiply(int64_t left, int64_t right, int64_t *result) {
#ifdef _WIN32
    long long high;
    *result = _mul128(left, right, &high);
    return high == *result >> 63;
#else
    return !__builtin_mul_overflow(left, right, result);
#endif
}

/* Do the same as array_view.view() in Python; 0 for an impossible array. Afterwards a view has strides only if it is not
 * C-contiguous; the strides of a contiguous one follow from its shape. With `address_alone` a kernel uses the address alone. */
int normalize(ArrayView *view, int itemsize, int address_alone) {
    int64_t bytes = itemsize, items = 1;
    int is_contiguous = 1;
    view->zero = 0;
    view->itemsize = itemsize;
    for (int i = view->ndim - 1; i >= 0; i--) {
        Dimension *d = &view->dimensions[i];
        if (d->extent < 0 || !multiply(bytes, d->extent ? d->extent : 1, &bytes))
            return 0;
        if (view->has_strides && view->in_elements && !multiply(d->stride, itemsize, &d->stride))
            return 0;
        d->step = items;
        /* The stride of a dimension of one element does not matter. */
        is_contiguous &= !view->has_strides || d->extent == 1 || d->stride == items * itemsize;
        items *= d->extent; /* no overflow, because the bytes did not overflow */
    }
    view->items = items;
    view->in_elements = 0;
    view->has_strides &= items && !is_contiguous;
    for (int i = 0; !view->has_strides && !address_alone && i < view->ndim; i++)
        view->dimensions[i].stride = view->dimensions[i].step * itemsize;
    return view->address || !items;
}

/* --------------------------------------------------------------------------------------------------------- packing arrays */

/* Return 1 if a number is a multiple of a divisor. For a power of two the sign does not matter. */
int is_multiple(int64_t value, int64_t divisor, int is_unsigned) {
    if ((divisor & (divisor - 1)) == 0)
        return (value & (divisor - 1)) == 0;
    return is_unsigned ? (uint64_t)value % (uint64_t)divisor == 0 : value % divisor == 0;
}

/* Write an integer; 0 if it is out of range. The caller has checked the range of format Q. */
static int pack_whole(char format, int64_t value, unsigned char *place) {
    int64_t low, high;
    int size = bounds_of(format, &low, &high);
    if (format != 'Q' && (value < low || value > high))
        return 0;
    memcpy(place, &value, size); /* little-endian, as every host that CUDA runs on */
    return 1;
}

/* Copy a view with the strides of an F-contiguous array, also for dimensions of one element or none; 0 if the array is not one. */
static int copy_in_columns(const ArrayView *view, ArrayView *copy) {
    int64_t step = 1;
    *copy = *view;
    for (int i = 0; i < view->ndim; i++) {
        copy->dimensions[i].step = step;
        copy->dimensions[i].stride = step * view->itemsize;
        if (view->items && view->dimensions[i].extent != 1 && view->dimensions[i].stride != copy->dimensions[i].stride)
            return 0;
        step *= view->dimensions[i].extent;
    }
    return 1;
}

/* Write an array's numbers; 0 if the parameter does not accept the array. */
static int pack_array(const Parameter *parameter, ArrayView *view, unsigned char *block) {
    ArrayView in_columns;
    const int64_t *numbers = view->numbers;
    if (view->readonly && parameter->writable)
        return 0;
    if (!is_multiple((int64_t)view->address, parameter->divisor, 1))
        return 0;
    if (parameter->kind == 'e') {
        memcpy(block + parameter->offset, &view->address, 8);
        return 1;
    }
    if (view->ndim != parameter->ndim && parameter->ndim != ANY_DIMENSIONS)
        return 0;
    if (parameter->layout == 'F' && view->ndim > 1) {
        if (!copy_in_columns(view, &in_columns))
            return 0;
        numbers = in_columns.numbers;
    } else if (view->has_strides) {
        if (parameter->layout != 'A')
            return 0; /* the view of a contiguous array has no strides */
        for (int i = 0; parameter->counts_elements && i < view->ndim; i++) {
            if (view->dimensions[i].stride % view->itemsize)
                return 0;
            view->dimensions[i].step = view->dimensions[i].stride / view->itemsize;
        }
    }
    unsigned char *place = block + parameter->offset;
    for (int i = 0; i < parameter->words_count; i++)
        memcpy(place + 8 * i, &numbers[parameter->words[i]], 8);
    for (int i = 0; i < parameter->sizes_count; i++) {
        const Size *size = &parameter->sizes[i];
        int64_t value = numbers[size->number];
        if (((size->format == 'Q' || size->bounded) && value < 0) || !is_multiple(value, size->divisor, 0) ||
            !pack_whole(size->format, value, block + size->offset))
            return 0;
    }
    return 1;
}

/* Set the lowest address of an array that has elements, and the first address after it; 0 if they overflow. */
static int extent_of(const ArrayView *view, uint64_t *low, uint64_t *high) {
    int64_t below = 0, above = 0, span, itemsize = view->itemsize;
    if (!view->has_strides && !multiply(view->items, itemsize, &above))
        return 0;
    for (int i = 0; view->has_strides && i < view->ndim; i++) {
        if (!multiply(view->dimensions[i].extent - 1, view->dimensions[i].stride, &span))
            return 0;
        if (span < 0 ? below < INT64_MIN - span : above > INT64_MAX - span - itemsize)
            return 0;
        *(span < 0 ? &below : &above) += span;
    }
    above += view->has_strides ? itemsize : 0;
    *low = view->address + (uint64_t)below;
    *high = view->address + (uint64_t)above;
    return *low <= view->address && *high >= view->address;
}

/* Return 1 if no pair of arrays overlaps, 0 if one does, and -1 if only the general path can compare them. */
int are_apart(const ArgumentLayout *layout, const ArrayView *views) {
    for (int i = 0; i < layout->pairs_count; i++) {
        const ArrayView *one = &views[layout->pairs[i][0]], *other = &views[layout->pairs[i][1]];
        uint64_t low, high, other_low, other_high;
        if (!one->items || !other->items)
            continue;
        if (!extent_of(one, &low, &high) || !extent_of(other, &other_low, &other_high))
            return -1;
        if (low < other_high && other_low < high)
            return 0;
    }
    return 1;
}

/* -------------------------------------------------------------------------------------------------- reading and packing numbers */

/* Read an int; 0 if it has more than 64 bits. */
static int read_int(PyObject *value, Number *number) {
    int overflow;
    long long small = PyLong_AsLongLongAndOverflow(value, &overflow);
    number->kind = INT;
    number->is_unsigned = 0;
    number->bits = (uint64_t)small;
    if (small != -1)
        return 1;
    if (overflow > 0) {
        number->is_unsigned = 1;
        number->bits = PyLong_AsUnsignedLongLong(value);
    }
    return overflow >= 0 && !PyErr_Occurred();
}

/* Read an argument that is not an array; 0 if only the general path reads it. */
int read_number(int kind, PyObject *value, Number *number) {
    number->object = value;
    number->kind = kind;
    switch (kind) {
    case INT:
        return read_int(value, number);
    case FLOAT:
        number->real = PyFloat_AsDouble(value);
        number->imag = 0;
        return !(number->real == -1 && PyErr_Occurred());
    case COMPLEX:
        if (!PyComplex_Check(value))
            return 0;
        number->real = PyComplex_RealAsDouble(value);
        number->imag = PyComplex_ImagAsDouble(value);
        return !PyErr_Occurred();
    case TRUTH: {
        int truth = PyObject_IsTrue(value);
        *number = (Number){.kind = INT, .object = value, .bits = truth > 0};
        return truth >= 0;
    }
    case INDEX: {
        PyObject *index = PyNumber_Index(value);
        int fits = index && read_int(index, number);
        Py_XDECREF(index);
        return fits;
    }
    }
    return kind == CONSTANT || kind == OBJECT;
}

/* Write a float; 0 if it is finite and would become infinite, as in the struct module. */
static int pack_float(char format, double value, unsigned char *place) {
    if (format == 'd') {
        memcpy(place, &value, 8);
        return 1;
    }
    float narrow = (float)value;
    if (isinf(narrow) && !isinf(value))
        return 0;
    memcpy(place, &narrow, 4);
    return 1;
}

/* Return 1 if an argument equals the constant of the variant. A specialization has no candidates with constants of another type than
 * its arguments. Both are None or of built-in types, so the comparison runs no other code. */
static int is_constant(const Parameter *parameter, const Number *number) {
    PyObject *object = number->object;
    if (object == parameter->value || number->kind == OBJECT) /* the key has the object's address */
        return 1;
    if (object == Py_None)
        return parameter->writable || !parameter->value; /* `writable`: the constant may be omitted */
    if (parameter->value && PyFloat_Check(parameter->value) && number->kind == FLOAT) { /* NaN equals NaN; the zeros differ */
        double value = PyFloat_AsDouble(parameter->value);
        return isnan(value) ? isnan(number->real) : value == number->real && !signbit(value) == !signbit(number->real);
    }
    if (parameter->is_int && number->kind == INT && !PyBool_Check(object))
        return !number->is_unsigned && (int64_t)number->bits == parameter->low;
    return parameter->value && PyObject_RichCompareBool(object, parameter->value, Py_EQ) == 1;
}

/* Return 1 if an integer has the divisor and the bounds that the signature promises. */
static int keeps_promises(const Parameter *parameter, const Number *number) {
    int64_t value = (int64_t)number->bits;
    if (!is_multiple(value, parameter->divisor, number->is_unsigned))
        return 0;
    return number->is_unsigned ? parameter->least == INT64_MIN && parameter->most == INT64_MAX : value >= parameter->least && value <= parameter->most;
}

/* Write a number; 0 if it is out of the parameter's range. */
static int pack_number(const Parameter *parameter, const Number *number, unsigned char *block) {
    unsigned char *place = block + parameter->offset;
    char format = parameter->format;
    if (parameter->bytes && number->kind == INT && !number->is_unsigned) {
        int64_t value = (int64_t)number->bits;
        if (value < parameter->low || value > parameter->high || value & parameter->mask)
            return 0;
        memcpy(place, &value, parameter->bytes);
        return 1;
    }
    if (number->kind == INT && !keeps_promises(parameter, number))
        return 0;
    if (parameter->kind != 'c' && format != 'f' && format != 'd') {
        int wrong_sign = format == 'Q' ? !number->is_unsigned && (int64_t)number->bits < 0 : number->is_unsigned;
        return !wrong_sign && pack_whole(format, (int64_t)number->bits, place);
    }
    double real = number->kind != INT ? number->real : number->is_unsigned ? (double)number->bits : (double)(int64_t)number->bits;
    if (parameter->kind != 'c')
        return pack_float(format, real, place);
    double imaginary = number->kind == COMPLEX ? number->imag : 0;
    return pack_float(format, real, place) && pack_float(format, imaginary, place + (format == 'f' ? 4 : 8));
}

/* ------------------------------------------------------------------------------------------------------------- the whole block */

/* Return 1 if an element of an array is not at a multiple of the parameter's alignment. */
static int is_misaligned(const Parameter *parameter, const ArrayView *view) {
    int64_t bits = (int64_t)view->address;
    for (int i = 0; view->has_strides && parameter->kind == 'a' && i < view->ndim; i++)
        bits |= view->dimensions[i].extent > 1 ? view->dimensions[i].stride : 0;
    return view->items && bits & parameter->misaligned;
}

/* Pack the block by a layout; REFUSED if the overload does not accept the arguments. Constants come first, because they differ between most
 * overloads. */
int fill_block(const ArgumentLayout *layout, const Number *numbers, ArrayView *views, unsigned char *block) {
    const Parameter *parameter = layout->parameters, *end = parameter + layout->constants_count;
    for (; parameter < end; parameter++)
        if (!is_constant(parameter, &numbers[parameter->at]))
            return REFUSED;
    memset(block, 0, layout->size);
    for (end += layout->numbers_count; parameter < end; parameter++)
        if (!pack_number(parameter, &numbers[parameter->at], block))
            return REFUSED;
    int result = ACCEPTED;
    for (end += layout->arrays_count; parameter < end; parameter++, views++) {
        if (!pack_array(parameter, views, block))
            return REFUSED;
        if (is_misaligned(parameter, views))
            result = MISALIGNED;
    }
    return result;
}
