/* The fast path of a launch, compiled: what aotcuda/runtime/fast/python.py does in Python.
 *
 * What arguments mean is described in aotcuda/runtime/arguments/parameters.py and, for arrays, at the top of arrays.py: this file
 * does the same for what it reads, and declines a launch as a whole where it cannot. It never goes on to the next overload
 * but where the description does.
 *
 * A Launcher stands in front of a launcher of aotcuda.runtime.launcher. All launchers of a kernel share its Records: for
 * arguments of some types, with arrays of some dtypes and dimensions, which overloads to try, in which order, their
 * kernels, and the largest grid and block that they may have. A call reads its arguments once, looks the record up by
 * what it read, checks layout, range and limits, packs the parameter block on the stack, and calls cuLaunchKernel.
 * Whatever is not as a record has it goes to the launcher behind, which decides, raises, and may teach another record.
 * Nothing is imported or allocated here, but for the ints and tuples that attributes give.
 *
 * Records are immutable and tables of them are replaced, never changed, so that threads of a Python without the GIL read
 * them with no lock. What was replaced stays until its Records go, since a thread may be in the midst of reading it; with
 * the GIL too, because reading an argument can run Python code, and so other threads.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(Py_LIMITED_API) && !defined(PyArg_ParseTuple) /* headers of 3.13 have no other name for it: before, it takes no # */
PyAPI_FUNC(int) _PyArg_ParseTuple_SizeT(PyObject *, const char *, ...);
#define PyArg_ParseTuple _PyArg_ParseTuple_SizeT
#endif
#ifdef Py_LIMITED_API /* to headers of 3.12 these are immortal, and counted by nobody; before they are freed then */
#undef Py_RETURN_NONE
#undef Py_RETURN_FALSE
#define Py_RETURN_NONE return Py_NewRef(Py_None)
#define Py_RETURN_FALSE return Py_NewRef(Py_False)
#endif

#ifdef Py_GIL_DISABLED
#include <stdatomic.h>
#define ADD(place, number) (atomic_fetch_add_explicit(&(place), number, memory_order_relaxed), \
                            atomic_thread_fence(memory_order_seq_cst))
#define SHARED(type) _Atomic(type)
#define READ(place) atomic_load_explicit(&(place), memory_order_acquire)
#define WRITE(place, value) atomic_store_explicit(&(place), (value), memory_order_release)
#else
#define SHARED(type) type
#define ADD(place, number) ((place) += (number))
#define READ(place) (place)
#define WRITE(place, value) ((place) = (value))
#endif
#ifndef Py_BEGIN_CRITICAL_SECTION /* older than 3.13, or the stable ABI: there is a GIL */
#define Py_BEGIN_CRITICAL_SECTION(object) {
#define Py_END_CRITICAL_SECTION() }
#endif

enum { MOST_ARGUMENTS = 64, MOST_ARRAYS = 32, MOST_DIMENSIONS = 8, MOST_BYTES = 4096, MOST_RECORDS = 256, MOST_SHAPES = 32 };

/* How an argument is read: arrays, and from INT on numbers. INT: the value that an int holds. FLOAT: that of a float, or
 * what __float__ gives. COMPLEX: what a complex holds. TRUTH: what bool() says. INDEX: what __index__ gives. PLAIN: None or
 * a string, which only constants are. */
enum { CUPY = 1, TORCH = 2, INTERFACE = 3, EXCHANGE = 4, NUMBA = 5, CUPY_SUBCLASS = 6, INT = 16, FLOAT, COMPLEX, TRUTH, INDEX, PLAIN };

typedef int (*LaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                            void **);
typedef int (*GetCurrent)(void **);
typedef int (*PointerAttribute)(void *, int, uint64_t);
typedef int (*StreamContext)(void *, void **);
typedef int (*EventCreate)(void **, unsigned);
typedef int (*EventRecord)(void *, void *);
typedef int (*EventDestroy)(void *);
typedef int (*StreamWaitEvent)(void *, void *, unsigned);
typedef int (*StreamIsCapturing)(void *, int *);
typedef int (*LaunchKernelEx)(const void *, void *, void **, void **);

enum { DEVICE_ORDINAL = 9 }; /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */

/* From dlpack.h, versions 1.2 and 1.3. */
typedef struct {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Tensor;

typedef struct {
    struct {
        uint32_t major, minor;
    } version;
    void *previous;
    void *allocate, *export, *import;
    int (*read)(void *object, Tensor *result);
    int (*current_stream)(int32_t device_type, int32_t device_id, void **result);
} Exchange;

enum { DEVICE_CUDA = 2, DEVICE_CUDA_MANAGED = 13, CODE_COMPLEX = 5 };

static PyObject *s_dtype, *s_ndim, *s_c_contiguous, *s_data, *s_ptr, *s_shape, *s_strides, *s_is_cuda, *s_is_conj, *s_is_contiguous, *s_storage_offset, *s_element_size,
    *s_data_ptr, *s_stride, *s_get_device, *s_interface, *s_typestr, *s_stream, *s_mask,
    *s_fail, *s_exchange, *s_gpu_data, *s_device_pointer, *s_device_id;
static PyTypeObject *plan_type, *records_type, *launcher_type;

/* Where a library tells its current stream. Sources are replaced and never freed: another thread may be asking one. A
 * process has one of CuPy's and one of PyTorch's. */
typedef struct {
    PyObject *object;           /* a Python function, or a capsule that holds the following */
    intptr_t (*function)(void); /* CuPy's, where it has one in C */
    intptr_t (*on_gpu)(int);    /* likewise, which need not ask which GPU is current */
    int tells_others;           /* 0: who launches elsewhere need not wait for that stream */
} Source;

static SHARED(const Source *) cupy_source;
static SHARED(const Source *) torch_source; /* NULL: PyTorch has none */

/* CUDA cannot be used in a process that forked after it was started. */
static SHARED(int) disabled = 0;

/* ---------------------------------------------------------------------------------------------------------------- plans */

enum { WORD_ZERO = 0, WORD_ITEMS = 1, WORD_ITEMSIZE = 2, WORD_DATA = 3, WORD_SHAPE = 16, WORD_STRIDE = 32, WORD_STEP = 48 };
enum { MOST_WORDS = 40, MOST_SIZES = 10, SIZE_BYTES = 9, MOST_STARTS = 128, MOST_PAIRS = 64, ANY_DIMENSIONS = 255 };

/* What there is of an array for kernels to take, by its place in View.numbers. */
enum { FIRST_DIMENSION = 4, OF_DIMENSION = 3, NUMBERS = FIRST_DIMENSION + MOST_DIMENSIONS * OF_DIMENSION };

/* The place of what a word means; the word is of a dimension that there is. */
static unsigned char number_of(unsigned char word) {
    int family = word / 16;
    return (unsigned char)(family ? FIRST_DIMENSION + word % 16 * OF_DIMENSION + family - 1 : word);
}

/* Whether the number in this place is a stride in elements. */
static int is_step(unsigned char number) {
    return number >= FIRST_DIMENSION && (number - FIRST_DIMENSION) % OF_DIMENSION == OF_DIMENSION - 1;
}

/* A number that a kernel takes from an array, as a parameter of its own. */
typedef struct {
    unsigned char number; /* its place in View.numbers */
    char format; /* of an integer, as struct has it */
    unsigned char bounded; /* it must not be negative */
    int divisor;           /* 1: it may be any */
    int offset;
} Size;

enum { LINE = 64 }; /* bytes of a line of the cache */

/* The members that launches read of most parameters come first: they are one line of the cache, which the driver has
 * emptied since the last launch. */
typedef struct {
    _Alignas(LINE) char kind; /* s: scalar, c: complex, p: pointer, a: array, e: address of an array, k: constant */
    char format; /* of a scalar or a complex number's parts, as struct has it */
    char layout; /* of an array: C, F, A */
    unsigned char ndim, writable, count, sizes_count;
    unsigned char bytes; /* of a number that `low`, `high` and `mask` say all of; else 0 */
    int offset;
    unsigned char counts_elements; /* of an array: words have strides in elements */
    unsigned char is_int;          /* of a constant: it is an int, `low` */
    unsigned char at;              /* its place among the parameters, and so the argument's */
    int64_t divisor;               /* of a number, the first of an array's address too; 1 for none */
    union {
        struct {
            int64_t low, high, mask; /* what an int is held to: bounds, and bits that must not be set */
            PyObject *value;         /* of a constant; NULL for None */
        };
        unsigned char numbers[MOST_WORDS]; /* of an array: places in View.numbers, in the order of the block */
    };
    int64_t least, most; /* the bounds of int64 for none */
    int itemsize;
    PyObject *dtype; /* of an array, as arrays.element() names it */
    Size sizes[MOST_SIZES];
} Parameter;

typedef struct {
    PyObject_HEAD
    /* In `memory`, from where a line of the cache begins: constants, which are looked at first, the other numbers, and
     * arrays, each by their places. */
    Parameter *parameters;
    int size;
    unsigned char count, constants_count, numbers_count, arrays_count;
    unsigned char pairs_count; /* of arrays that must not overlap, by their number among the arrays */
    unsigned char starts_count; /* 0: the driver is handed the block; else a pointer to each of these places in it */
    int *starts;
    void *memory;
    unsigned char pairs[MOST_PAIRS][2];
} Plan;

/* Whether all words are of dimensions that there are. */
static int words_fit(const char *words, Py_ssize_t count, int ndim) {
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned char word = (unsigned char)words[i];
        if (word > WORD_DATA && (word < WORD_SHAPE || word >= WORD_STEP + 16 || word % 16 >= ndim))
            return 0;
    }
    return 1;
}

/* How many bytes a number takes in a block. */
static int format_bytes(int format) {
    return strchr("?bB", format) ? 1 : strchr("hHe", format) ? 2 : strchr("iIf", format) ? 4 : 8;
}

/* 0 if one of an array's sizes is of no dimension that there is, no integer, or outside of the block. */
static int read_sizes(Parameter *parameter, const char *sizes, Py_ssize_t bytes, int size) {
    int ndim = parameter->ndim == ANY_DIMENSIONS ? 0 : parameter->ndim;
    if (bytes % SIZE_BYTES || bytes / SIZE_BYTES > MOST_SIZES || (bytes && parameter->kind != 'a'))
        return 0;
    parameter->sizes_count = (unsigned char)(bytes / SIZE_BYTES);
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

static int is_array(const Parameter *parameter) { return parameter->kind == 'a' || parameter->kind == 'e'; }

/* 0 if there are too many pairs, or one names what is no array. */
static int read_pairs(Plan *plan, const unsigned char *numbers, Py_ssize_t bytes) {
    if (bytes % 2 || bytes / 2 > MOST_PAIRS)
        return 0;
    plan->pairs_count = (unsigned char)(bytes / 2);
    for (Py_ssize_t i = 0; i < bytes; i++) {
        if (numbers[i] >= plan->count || !is_array(&plan->parameters[numbers[i]]))
            return 0;
        int before = 0;
        for (int j = 0; j < numbers[i]; j++)
            before += is_array(&plan->parameters[j]);
        plan->pairs[i / 2][i % 2] = (unsigned char)before;
    }
    return 1;
}

/* The bounds of an integer's format, and its bytes; 0 for another one. */
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

/* What launches find at hand of a parameter. */
static void prepare(Plan *plan, int at) {
    Parameter *parameter = &plan->parameters[at];
    int64_t divisor = parameter->divisor;
    parameter->at = (unsigned char)at;
    if (is_array(parameter)) {
        plan->arrays_count++;
    } else if (parameter->kind == 'k') {
        int overflow = 1;
        plan->constants_count++;
        if (parameter->value && PyLong_CheckExact(parameter->value))
            parameter->low = PyLong_AsLongLongAndOverflow(parameter->value, &overflow);
        parameter->is_int = !overflow;
    } else {
        plan->numbers_count++;
        if (parameter->kind == 'c' || divisor & (divisor - 1))
            return;
        parameter->bytes = (unsigned char)bounds_of(parameter->format, &parameter->low, &parameter->high);
        parameter->low = parameter->least > parameter->low ? parameter->least : parameter->low;
        parameter->high = parameter->most < parameter->high ? parameter->most : parameter->high;
        parameter->mask = divisor - 1;
    }
}

/* The order of a plan's parameters. */
static int compare_parameters(const void *one, const void *other) {
    const Parameter *a = one, *b = other;
    int groups[] = {is_array(a) ? 2 : a->kind != 'k', is_array(b) ? 2 : b->kind != 'k'};
    return groups[0] != groups[1] ? groups[0] - groups[1] : a->at - b->at;
}

/* The parameter of an argument. */
static const Parameter *parameter_of(const Plan *plan, int at) {
    const Parameter *parameter = plan->parameters;
    while (parameter->at != at)
        parameter++;
    return parameter;
}

/* Memory for what launches read, empty, from where a line of the cache begins; NULL, and an error, if there is none. */
static void *in_lines(size_t bytes, void **memory) {
    *memory = PyMem_Calloc(1, bytes + LINE);
    return *memory ? (void *)(((uintptr_t)*memory + LINE - 1) / LINE * LINE) : PyErr_NoMemory();
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
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
        return NULL;
    }
    Plan *self = (Plan *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    self->size = size;
    self->count = (unsigned char)count;
    self->parameters = in_lines((size_t)count * sizeof(Parameter), &self->memory);
    self->starts = PyMem_Calloc(starts_count ? starts_count : 1, sizeof(int));
    if (!self->parameters || !self->starts) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    self->starts_count = (unsigned char)starts_count;
    for (Py_ssize_t i = 0; i < starts_count; i++) {
        int32_t start;
        memcpy(&start, starts + i * (Py_ssize_t)sizeof start, sizeof start);
        if (start < 0 || start >= size) {
            Py_DECREF(self);
            PyErr_SetString(PyExc_ValueError, "a parameter outside of the block");
            return NULL;
        }
        self->starts[i] = start;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Parameter *parameter = &self->parameters[i];
        int kind, format, layout, ndim, writable, end;
        const char *words, *sizes = "";
        Py_ssize_t words_count, sizes_bytes = 0;
        PyObject *dtype, *value = Py_None;
        long long divisor = 1, least = INT64_MIN, most = INT64_MAX;
        if (!PyArg_ParseTuple(PyTuple_GetItem(parameters, i), "CCiCiiiy#U|y#LLLO;a parameter", &kind, &format,
                              &parameter->offset, &layout, &ndim, &parameter->itemsize, &writable, &words, &words_count,
                              &dtype, &sizes, &sizes_bytes, &divisor, &least, &most, &value)) {
            Py_DECREF(self);
            return NULL;
        }
        end = kind == 'a' ? (int)words_count * 8 : kind == 'k' ? 0 : kind == 'p' || kind == 'e' ? 8 : format_bytes(format);
        if (kind == 'c')
            end *= 2;
        int any = kind == 'a' && ndim == ANY_DIMENSIONS && layout == 'C';
        parameter->kind = (char)kind;
        parameter->ndim = (unsigned char)ndim;
        if (words_count > MOST_WORDS || ndim < 0 || (ndim > MOST_DIMENSIONS && !any) || parameter->offset < 0 ||
            parameter->offset > size - end || ((kind == 'a' || kind == 'e') && parameter->itemsize < 1) ||
            (kind == 'a' && !words_fit(words, words_count, any ? 0 : ndim)) || (words_count && !is_array(parameter)) ||
            divisor < 1 || !strchr("scpaek", kind) ||
            !strchr(kind == 'c' ? "fd" : "?bBhHiIqQfd", format) || !read_sizes(parameter, sizes, sizes_bytes, size)) {
            Py_DECREF(self);
            PyErr_SetString(PyExc_ValueError, "a parameter that only the general path takes");
            return NULL;
        }
        parameter->format = (char)format;
        parameter->layout = (char)layout;
        parameter->writable = (unsigned char)writable;
        parameter->dtype = Py_NewRef(dtype);
        if (!is_array(parameter))
            parameter->value = value == Py_None ? NULL : Py_NewRef(value);
        parameter->divisor = divisor;
        parameter->least = least;
        parameter->most = most;
        for (; words_count && *words == WORD_ZERO; words++, words_count--)
            parameter->offset += 8; /* the block is empty before */
        parameter->count = (unsigned char)words_count;
        for (Py_ssize_t j = 0; j < words_count; j++) {
            parameter->numbers[j] = number_of((unsigned char)words[j]);
            parameter->counts_elements |= is_step(parameter->numbers[j]);
        }
        prepare(self, (int)i);
    }
    if (!read_pairs(self, (const unsigned char *)apart, apart_bytes)) {
        Py_DECREF(self);
        PyErr_SetString(PyExc_ValueError, "pairs of arrays that only the general path takes");
        return NULL;
    }
    qsort(self->parameters, (size_t)count, sizeof(Parameter), compare_parameters);
    return (PyObject *)self;
}

static void plan_dealloc(Plan *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    for (int i = 0; self->parameters && i < self->count; i++) {
        Py_XDECREF(self->parameters[i].dtype);
        if (!is_array(&self->parameters[i]))
            Py_XDECREF(self->parameters[i].value);
    }
    PyMem_Free(self->memory);
    PyMem_Free(self->starts);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* --------------------------------------------------------------------------------------------------------------- arrays */

/* What there is of one dimension, in the order of the words, and of the places in View.numbers. */
typedef struct {
    int64_t extent, stride, step; /* strides in bytes, and in elements */
} Dimension;

typedef struct {
    uint64_t id; /* of the element type, as the array's library has it; 0 for none */
    int device;  /* the ordinal of the GPU that its library says it is on; -1: the driver has to be asked */
    int ndim, readonly, has_strides; /* without strides: C-contiguous */
    int in_elements;                 /* strides count elements, not bytes, until `settle` */
    union {
        int64_t numbers[NUMBERS];
        struct { /* in the order of the words */
            int64_t zero, items, itemsize; /* these, and of dimensions what is not told, from `settle` on */
            uint64_t address;
            Dimension dimensions[MOST_DIMENSIONS];
        };
    };
} View;

/* Products that may not fit. */
static int multiply(int64_t left, int64_t right, int64_t *result) {
#ifdef __GNUC__
    return !__builtin_mul_overflow(left, right, result);
#else
    if (left > 0 ? right > INT64_MAX / left || right < INT64_MIN / left
        : left < -1 ? right > INT64_MIN / left || right < INT64_MAX / left
                    : left == -1 && right == INT64_MIN)
        return 0;
    *result = left * right;
    return 1;
#endif
}

/* The strides of an array that has some, in bytes; 0 if they do not fit. Tells whether they are those of its shape, by
 * which `step` was made; those of dimensions of one element do not matter. */
static int settle_strides(View *view, int *is_contiguous) {
    *is_contiguous = 1;
    for (int i = 0; i < view->ndim; i++) {
        Dimension *d = &view->dimensions[i];
        if (view->in_elements && !multiply(d->stride, view->itemsize, &d->stride))
            return 0;
        *is_contiguous &= d->extent == 1 || d->stride == d->step * view->itemsize;
    }
    return 1;
}

/* What arrays.view() does: 0 if no array can be so. Afterwards there are strides of its own only where it is not
 * C-contiguous; where it is, they are those of its shape, but for an array whose `address` is all that is taken. */
static int settle(View *view, int itemsize, int address) {
    int64_t bytes = itemsize, items = 1, unit = view->in_elements ? 1 : itemsize;
    int is_contiguous = 1;
    view->zero = 0;
    view->itemsize = itemsize;
    if (view->ndim == 1 && (!view->has_strides || view->dimensions->stride == unit)) { /* most are such */
        Dimension *d = view->dimensions;
        view->in_elements = view->has_strides = 0;
        view->items = d->extent;
        d->step = 1;
        d->stride = address ? d->stride : itemsize;
        return d->extent >= 0 && multiply(itemsize, d->extent, &bytes) && (view->address || !d->extent);
    }
    for (int i = view->ndim - 1; i >= 0; i--) {
        Dimension *d = &view->dimensions[i];
        if (d->extent < 0 || !multiply(bytes, d->extent ? d->extent : 1, &bytes))
            return 0;
        is_contiguous &= !view->has_strides || d->stride == items * unit;
        d->step = items;
        items *= d->extent; /* smaller than what fitted */
    }
    view->items = items;
    if (items && !view->address)
        return 0;
    if (!is_contiguous && !settle_strides(view, &is_contiguous))
        return 0;
    view->in_elements = 0;
    view->has_strides &= items && !is_contiguous;
    for (int i = 0; !view->has_strides && !address && i < view->ndim; i++)
        view->dimensions[i].stride = view->dimensions[i].step * itemsize;
    return 1;
}

/* A stream that data is on, which the launch has to wait for; it has to wait for the launch, too, if that is mutual. */
typedef struct {
    uintptr_t stream;
    int mutual;
} Ready;

enum { MOST_READY = 4 };

/* What of the launch the readers need. */
typedef struct {
    uintptr_t stream; /* the launch's, once it is known; 1 for the legacy default stream */
    uintptr_t handle; /* the same as it was told */
    int any_stream;   /* data may be on any stream: nothing is launched */
    int several;      /* there are several GPUs */
    int known;        /* 0: it is the current stream of the library of the first array of PyTorch's or CuPy's */
    int early;        /* arrays that were read before that */
    int others;       /* streams to be waited for */
    int cupy_checked;
    int torch_checked;
    const Exchange *checked;
    Ready ready[MOST_READY];
    Ready early_streams[MOST_ARRAYS];
} Reading;

static void begin_reading(Reading *reading, int is_given, void *stream, int several) {
    reading->several = several;
    reading->handle = (uintptr_t)stream;
    reading->stream = stream ? (uintptr_t)stream : 1;
    reading->known = is_given;
    reading->any_stream = reading->early = reading->others = reading->cupy_checked = reading->torch_checked = 0;
    reading->checked = NULL;
}

/* Notes that data is on a stream, once it is known which one the launch is on; 0 if there are too many others. */
static int note(Reading *reading, uintptr_t stream, int mutual) {
    if (reading->any_stream || stream == reading->stream)
        return 1;
    for (int i = 0; i < reading->others; i++)
        if (reading->ready[i].stream == stream) {
            reading->ready[i].mutual |= mutual;
            return 1;
        }
    if (reading->others == MOST_READY)
        return 0;
    reading->ready[reading->others++] = (Ready){stream, mutual};
    return 1;
}

/* The launch's stream is known from now on. */
static int know(Reading *reading, uintptr_t handle) {
    reading->known = 1;
    reading->handle = handle;
    reading->stream = handle ? handle : 1;
    for (int i = 0; i < reading->early; i++)
        if (!note(reading, reading->early_streams[i].stream, reading->early_streams[i].mutual))
            return 0;
    return 1;
}

/* Data is on this stream; 0 if that is not for this path. */
static int is_on(Reading *reading, uintptr_t stream, int mutual) {
    if (!stream)
        stream = 1;
    if (reading->any_stream || reading->known)
        return note(reading, stream, mutual);
    reading->early_streams[reading->early++] = (Ready){stream, mutual};
    return 1;
}

/* The same for the current stream of CuPy or PyTorch, which becomes the launch's where that is not known yet. */
static int is_on_current(Reading *reading, uintptr_t current, int mutual) {
    return reading->any_stream || reading->known ? is_on(reading, current, mutual) : know(reading, current);
}

/* Whether an error is for the other path to say, and cleared here; what stops a program is not. Of an argument that launches
 * without end, the other path would ask again at each level. */
static int forgiven(void) {
    if (!PyErr_Occurred())
        return 1;
    if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError) ||
        PyErr_ExceptionMatches(PyExc_RecursionError))
        return 0;
    PyErr_Clear();
    return 1;
}

static int64_t as_number(PyObject *value) { return value ? (int64_t)PyLong_AsLongLong(value) : -1; }

/* The number that an attribute holds; errors are for the caller to look for. */
static int64_t attribute_number(PyObject *object, PyObject *name) {
    PyObject *value = PyObject_GetAttr(object, name);
    int64_t number = as_number(value);
    Py_XDECREF(value);
    return number;
}

/* Whether an attribute, or a method's result, is True; only bools are expected. */
static int is_true(PyObject *value) {
    int result = value == Py_True;
    Py_XDECREF(value);
    return result;
}

/* Writes a tuple's numbers, one for each dimension, into the same member of each, beginning with this one. */
static int read_numbers(PyObject *tuple, int64_t *member, int count) {
    int fits = tuple && PyTuple_Check(tuple) && PyTuple_Size(tuple) == count;
    for (int i = 0; fits && i < count; i++) {
        member[i * OF_DIMENSION] = as_number(PyTuple_GetItem(tuple, i));
        fits = member[i * OF_DIMENSION] != -1 || !PyErr_Occurred();
    }
    return fits;
}

static int read_attribute_numbers(PyObject *object, PyObject *name, int64_t *member, int count) {
    PyObject *tuple = PyObject_GetAttr(object, name);
    int fits = read_numbers(tuple, member, count);
    Py_XDECREF(tuple);
    return fits;
}

/* An address is unsigned: shape and strides are not. */
static uint64_t as_address(PyObject *value) { return value ? PyLong_AsUnsignedLongLong(value) : (uint64_t)-1; }

static int cupy_stream_fits(Reading *reading) {
    const Source *source = READ(cupy_source);
    if (reading->cupy_checked || !source || (reading->known && !source->tells_others))
        return 1;
    reading->cupy_checked = 1;
    if (source->function) {
        intptr_t handle = source->on_gpu && !reading->several ? source->on_gpu(0) : source->function();
        return !PyErr_Occurred() && is_on_current(reading, (uintptr_t)handle, 1);
    }
    PyObject *stream = PyObject_CallNoArgs(source->object);
    if (!stream)
        return 0;
    int64_t handle = attribute_number(stream, s_ptr);
    Py_DECREF(stream);
    return !PyErr_Occurred() && is_on_current(reading, (uintptr_t)handle, 1);
}

/* CuPy makes the tuples of a shape and of strides anew for each question, at 0.15 us each: of an array of one dimension that is
 * contiguous neither is asked for, where it is of CuPy's own class. */
static int read_cupy(PyObject *array, int is_subclass, View *view, Reading *reading) {
    PyObject *dtype = PyObject_GetAttr(array, s_dtype);
    if (!dtype)
        return 0;
    view->id = (uint64_t)(uintptr_t)dtype;
    Py_DECREF(dtype); /* the array has it, and the record that it may match too */
    int64_t ndim = attribute_number(array, s_ndim);
    if (ndim < 0 || ndim > MOST_DIMENSIONS)
        return 0;
    view->ndim = (int)ndim;
    view->readonly = 0;
    view->has_strides = !is_true(PyObject_GetAttr(array, s_c_contiguous));
    view->in_elements = 0;
    if (PyErr_Occurred())
        return 0;
    if (ndim == 1 && !is_subclass)
        view->dimensions[0].extent = PyObject_Size(array);
    else if (!read_attribute_numbers(array, s_shape, &view->dimensions->extent, view->ndim))
        return 0;
    if (view->has_strides && !read_attribute_numbers(array, s_strides, &view->dimensions->stride, view->ndim))
        return 0;
    PyObject *data = PyErr_Occurred() ? NULL : PyObject_GetAttr(array, s_data);
    if (!data)
        return 0;
    PyObject *pointer = PyObject_GetAttr(data, s_ptr);
    view->address = as_address(pointer);
    Py_XDECREF(pointer);
    if (reading->several && !PyErr_Occurred())
        view->device = (int)attribute_number(data, s_device_id);
    Py_DECREF(data);
    return !PyErr_Occurred() && cupy_stream_fits(reading);
}

static int torch_stream_fits(PyObject *tensor, Reading *reading) {
    const Source *source = READ(torch_source);
    if (reading->torch_checked || !source)
        return 1;
    reading->torch_checked = 1;
    PyObject *device = PyObject_CallMethodObjArgs(tensor, s_get_device, NULL);
    PyObject *stream = device ? PyObject_CallFunctionObjArgs(source->object, device, NULL) : NULL;
    Py_XDECREF(device);
    uint64_t handle = as_address(stream);
    Py_XDECREF(stream);
    return !PyErr_Occurred() && is_on_current(reading, (uintptr_t)handle, 0);
}

/* Return 1 if the memory of a tensor of complex numbers holds the numbers that it shows: PyTorch conjugates lazily, and refuses
 * to export such tensors. It exports those that it has negated lazily as they lie in memory, and so they are launched. */
static int is_not_conjugated(PyObject *tensor) {
    PyObject *view = PyObject_CallMethodObjArgs(tensor, s_is_conj, NULL);
    int plain = view == Py_False; /* and so there is no error */
    Py_XDECREF(view);
    return plain;
}

enum { LOWEST_ADDRESS_BITS = 40 }; /* the driver gives no lower addresses on most machines */

/* The number that a method gives that takes no argument; errors are for the caller to look for. */
static int64_t method_number(PyObject *object, PyObject *name) {
    PyObject *value = PyObject_CallMethodObjArgs(object, name, NULL);
    int64_t number = as_number(value);
    Py_XDECREF(value);
    return number;
}

/* Return 1 if a tensor's storage has memory. A storage that was resized to nothing has the address 0, and a tensor that begins
 * further on in it has a small one. */
static int has_memory(PyObject *tensor, const View *view) {
    if (!view->address || view->address >> LOWEST_ADDRESS_BITS)
        return 1; /* settle() looks at the former */
    uint64_t offset = (uint64_t)method_number(tensor, s_storage_offset);
    return !PyErr_Occurred() && offset * (uint64_t)method_number(tensor, s_element_size) != view->address && !PyErr_Occurred();
}

static int read_torch(PyObject *tensor, View *view, Reading *reading) {
    PyObject *dtype = PyObject_GetAttr(tensor, s_dtype), *shape = dtype ? PyObject_GetAttr(tensor, s_shape) : NULL;
    Py_ssize_t ndim = shape && PyTuple_Check(shape) ? PyTuple_Size(shape) : -1;
    int fits = ndim >= 0 && ndim <= MOST_DIMENSIONS && read_numbers(shape, &view->dimensions->extent, (int)ndim);
    view->id = (uint64_t)(uintptr_t)dtype;
    view->ndim = (int)ndim;
    view->readonly = 0;
    view->in_elements = 1;
    Py_XDECREF(dtype);
    Py_XDECREF(shape);
    if (!fits || !is_true(PyObject_GetAttr(tensor, s_is_cuda)) || !is_not_conjugated(tensor))
        return 0;
    view->has_strides = !is_true(PyObject_CallMethodObjArgs(tensor, s_is_contiguous, NULL));
    if (view->has_strides && !PyErr_Occurred()) {
        PyObject *strides = PyObject_CallMethodObjArgs(tensor, s_stride, NULL);
        fits = read_numbers(strides, &view->dimensions->stride, view->ndim);
        Py_XDECREF(strides);
    }
    PyObject *pointer = fits && !PyErr_Occurred() ? PyObject_CallMethodObjArgs(tensor, s_data_ptr, NULL) : NULL;
    view->address = as_address(pointer);
    Py_XDECREF(pointer);
    return pointer && !PyErr_Occurred() && has_memory(tensor, view) && torch_stream_fits(tensor, reading);
}

static int exchange_stream_fits(const Exchange *exchange, int32_t device_type, int32_t device, Reading *reading) {
    void *stream;
    if (reading->checked == exchange)
        return 1;
    reading->checked = exchange;
    return !exchange->current_stream(device_type, device, &stream) && is_on_current(reading, (uintptr_t)stream, 0);
}

/* What DLPack's exchange says of a tensor. */
static int read_exchange(PyObject *object, const Exchange *exchange, View *view, Reading *reading) {
    Tensor tensor;
    if (exchange->read(object, &tensor))
        return 0;
    if ((tensor.device.type != DEVICE_CUDA && tensor.device.type != DEVICE_CUDA_MANAGED) || tensor.ndim < 0 ||
        tensor.ndim > MOST_DIMENSIONS || (tensor.ndim && !tensor.shape) || tensor.dtype.lanes != 1 || tensor.dtype.bits % 8)
        return 0;
    view->id = 1 | (uint64_t)tensor.dtype.code << 8 | (uint64_t)tensor.dtype.bits << 16;
    view->address = tensor.data ? (uint64_t)(uintptr_t)tensor.data + tensor.byte_offset : 0;
    view->device = tensor.device.type == DEVICE_CUDA ? tensor.device.id : -1;
    view->ndim = tensor.ndim;
    view->readonly = 0;
    view->has_strides = tensor.strides != NULL;
    view->in_elements = 1;
    for (int i = 0; i < tensor.ndim; i++) {
        view->dimensions[i].extent = tensor.shape[i];
        view->dimensions[i].stride = tensor.strides ? tensor.strides[i] : 0;
    }
    return (tensor.dtype.code != CODE_COMPLEX || is_not_conjugated(object)) && has_memory(object, view) &&
           exchange_stream_fits(exchange, tensor.device.type, tensor.device.id, reading);
}

/* The same for a stream that an array names; 0, and an error, if its handle could not be read. */
static int is_on_named(Reading *reading, uint64_t handle) {
    return !PyErr_Occurred() && is_on(reading, (uintptr_t)handle, 1);
}

/* A value of an interface's dictionary, NULL if there is none or it is None. The reference is the caller's own: some
 * arrays give the same dictionary each time, and another thread may be putting other values into it. */
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

enum { TYPESTR, DATA, SHAPE, STRIDES, STREAM, MASK, ITEMS };

static int read_interface_items(PyObject *const items[ITEMS], View *view, Reading *reading) {
    PyObject *typestr = items[TYPESTR], *data = items[DATA], *shape = items[SHAPE], *strides = items[STRIDES];
    Py_ssize_t length;
    if (!typestr || !data || !shape || !PyUnicode_CheckExact(typestr) || !PyTuple_CheckExact(data) ||
        PyTuple_Size(data) != 2 || !PyTuple_CheckExact(shape) || PyTuple_Size(shape) > MOST_DIMENSIONS || items[MASK])
        return 0;
    const char *text = PyUnicode_AsUTF8AndSize(typestr, &length);
    if (!text || length < 1 || length > 8 || memchr(text, 'V', length) || memchr(text, 0, length))
        return 0; /* a record's fields are told elsewhere; an id ends where the text does */
    view->id = 0;
    memcpy(&view->id, text, length);
    view->ndim = (int)PyTuple_Size(shape);
    view->address = as_address(PyTuple_GetItem(data, 0));
    view->readonly = PyErr_Occurred() ? -1 : PyObject_IsTrue(PyTuple_GetItem(data, 1));
    if (view->readonly < 0)
        return 0;
    view->has_strides = strides != NULL;
    view->in_elements = 0;
    if (!read_numbers(shape, &view->dimensions->extent, view->ndim) || (strides && !read_numbers(strides, &view->dimensions->stride, view->ndim)))
        return 0;
    if (items[STREAM] && (!PyLong_CheckExact(items[STREAM]) || !is_on_named(reading, as_address(items[STREAM]))))
        return 0;
    return !PyErr_Occurred();
}

static int read_interface(PyObject *array, View *view, Reading *reading) {
    PyObject *const keys[ITEMS] = {s_typestr, s_data, s_shape, s_strides, s_stream, s_mask};
    PyObject *items[ITEMS] = {NULL}, *dictionary = PyObject_GetAttr(array, s_interface);
    int fits = dictionary && PyDict_CheckExact(dictionary);
    for (int i = 0; fits && i < ITEMS; i++)
        items[i] = item(dictionary, keys[i]);
    fits = fits && read_interface_items(items, view, reading);
    for (int i = 0; i < ITEMS; i++)
        Py_XDECREF(items[i]);
    Py_XDECREF(dictionary);
    return fits;
}

/* An int, or what int() makes one of: the handles and addresses of Numba's are objects. */
static uint64_t as_int(PyObject *value) {
    PyObject *number = value && !PyLong_Check(value) ? PyNumber_Long(value) : Py_XNewRef(value);
    uint64_t result = as_address(number);
    Py_XDECREF(number);
    return result;
}

/* Numba's own arrays: their interface is a dictionary that Python code makes, at 1 us, and gives no strides where broadcast
 * dimensions stand beside contiguous ones. What it would say of the stream is said by the attribute: 0 is none. */
static int read_numba(PyObject *array, View *view, Reading *reading) {
    PyObject *dtype = PyObject_GetAttr(array, s_dtype), *shape = dtype ? PyObject_GetAttr(array, s_shape) : NULL;
    Py_ssize_t ndim = shape && PyTuple_Check(shape) ? PyTuple_Size(shape) : -1;
    int fits = dtype && ndim >= 0 && ndim <= MOST_DIMENSIONS && read_numbers(shape, &view->dimensions->extent, (int)ndim);
    view->id = (uint64_t)(uintptr_t)dtype;
    view->ndim = (int)ndim;
    view->readonly = 0;
    view->has_strides = 1;
    view->in_elements = 0;
    Py_XDECREF(dtype); /* the array has it, and the record that it may match too */
    Py_XDECREF(shape);
    if (!fits || !read_attribute_numbers(array, s_strides, &view->dimensions->stride, view->ndim))
        return 0;
    PyObject *data = PyObject_GetAttr(array, s_gpu_data), *pointer = data ? PyObject_GetAttr(data, s_device_pointer) : NULL;
    view->address = as_int(pointer);
    Py_XDECREF(pointer);
    Py_XDECREF(data);
    PyObject *stream = PyErr_Occurred() ? NULL : PyObject_GetAttr(array, s_stream);
    uint64_t handle = stream ? as_int(stream) : 0;
    /* What is no int and becomes 0 may be equal to 0 or not: that is told by the general path. */
    fits = stream && !PyErr_Occurred() && (!handle ? PyLong_Check(stream) : is_on_named(reading, handle));
    Py_XDECREF(stream);
    return fits && !PyErr_Occurred();
}

/* ------------------------------------------------------------------------------------------------------------- packing */

/* 0 if an integer is out of range; of format Q, who calls has seen to it. */
static int pack_whole(char format, int64_t value, unsigned char *place) {
    int64_t low, high;
    int size = bounds_of(format, &low, &high);
    if (format != 'Q' && (value < low || value > high))
        return 0;
    memcpy(place, &value, size); /* little-endian, as every host that CUDA runs on */
    return 1;
}

/* Whether a number is a multiple of a divisor. Most are powers of two, for which it does not matter if it has a sign. */
static int is_multiple(int64_t value, int64_t divisor, int is_unsigned) {
    if ((divisor & (divisor - 1)) == 0)
        return (value & (divisor - 1)) == 0;
    return is_unsigned ? (uint64_t)value % (uint64_t)divisor == 0 : value % divisor == 0;
}

/* Makes of an array that is F-contiguous what says so, also for dimensions of one element or none; 0 if it is not. */
static int settle_in_columns(const View *view, View *made) {
    int64_t step = 1;
    *made = *view;
    for (int i = 0; i < view->ndim; i++) {
        made->dimensions[i].step = step;
        made->dimensions[i].stride = step * view->itemsize;
        if (view->items && view->dimensions[i].extent != 1 && view->dimensions[i].stride != made->dimensions[i].stride)
            return 0;
        step *= view->dimensions[i].extent;
    }
    return 1;
}

/* 0 if the parameter does not take the array. */
static int pack_array(const Parameter *parameter, View *view, unsigned char *block) {
    View in_columns;
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
        if (!settle_in_columns(view, &in_columns))
            return 0;
        numbers = in_columns.numbers;
    } else if (view->has_strides) {
        if (parameter->layout != 'A')
            return 0; /* it would have none */
        for (int i = 0; parameter->counts_elements && i < view->ndim; i++) {
            if (view->dimensions[i].stride % view->itemsize)
                return 0;
            view->dimensions[i].step = view->dimensions[i].stride / view->itemsize;
        }
    }
    unsigned char *place = block + parameter->offset;
    for (int i = 0, count = parameter->count; i < count; i++)
        memcpy(place + 8 * i, &numbers[parameter->numbers[i]], 8);
    for (int i = 0; i < parameter->sizes_count; i++) {
        const Size *size = &parameter->sizes[i];
        int64_t value = numbers[size->number];
        if (((size->format == 'Q' || size->bounded) && value < 0) || !is_multiple(value, size->divisor, 0) ||
            !pack_whole(size->format, value, block + size->offset))
            return 0;
    }
    return 1;
}

/* A number, read once for a launch, whatever its overloads. */
typedef struct {
    int kind;          /* INT, FLOAT or COMPLEX */
    int is_unsigned;   /* an INT beyond int64 */
    PyObject *object;  /* what it was read from */
    union {
        uint64_t bits; /* of an INT */
        struct {
            double real, imag; /* of the others */
        };
    };
} Number;

/* 0 for what only the other path reads: ints beyond 64 bits, and whatever raises. */
static inline int read_int(PyObject *value, Number *number) {
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

/* Whatever is not read as INT. */
static int read_number(int kind, PyObject *value, Number *number) {
    if (kind == FLOAT) {
        number->kind = FLOAT;
        number->real = PyFloat_AsDouble(value);
        number->imag = 0;
        return !(number->real == -1 && PyErr_Occurred());
    }
    if (kind == COMPLEX) {
        if (!PyComplex_Check(value))
            return 0;
        double real = PyComplex_RealAsDouble(value), imag = PyComplex_ImagAsDouble(value);
        *number = (Number){.kind = COMPLEX, .object = value, .real = real, .imag = imag};
        return !PyErr_Occurred();
    }
    if (kind == PLAIN) {
        number->kind = PLAIN;
        return 1;
    }
    if (kind == TRUTH) {
        int truth = PyObject_IsTrue(value);
        *number = (Number){.kind = INT, .object = value, .bits = truth > 0};
        return truth >= 0;
    }
    PyObject *index = PyNumber_Index(value);
    int fits = index && read_int(index, number);
    Py_XDECREF(index);
    return fits;
}

/* 0 if the value is out of range: struct packs floats likewise, and refuses finite ones that would become infinite. */
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

static int pack_int(char format, const Number *number, unsigned char *place) {
    if (format == 'Q' ? !number->is_unsigned && (int64_t)number->bits < 0 : number->is_unsigned)
        return 0;
    return pack_whole(format, (int64_t)number->bits, place);
}

/* Whether an argument is the value that was compiled in. Both are None or of one of Python's own types, whose comparison
 * runs no other code; a record has no plans with values of another type than its arguments'. */
static int is_constant(const Parameter *parameter, const Number *number) {
    PyObject *object = number->object;
    if (object == parameter->value)
        return 1;
    if (object == Py_None)
        return parameter->writable || !parameter->value; /* the former: it may be left out */
    if (parameter->is_int && number->kind == INT && PyLong_CheckExact(object))
        return !number->is_unsigned && (int64_t)number->bits == parameter->low;
    return parameter->value && PyObject_RichCompareBool(object, parameter->value, Py_EQ) == 1;
}

/* Whether an int is divisible as it has to be, and within the parameter's own bounds. */
static int is_within(const Parameter *parameter, const Number *number) {
    int64_t value = (int64_t)number->bits;
    if (!is_multiple(value, parameter->divisor, number->is_unsigned))
        return 0;
    return number->is_unsigned ? parameter->least == INT64_MIN && parameter->most == INT64_MAX : value >= parameter->least && value <= parameter->most;
}

/* 0 if the number is out of the parameter's range. */
static int pack_number(const Parameter *parameter, const Number *number, unsigned char *block) {
    unsigned char *place = block + parameter->offset;
    char format = parameter->format;
    if (parameter->bytes && number->kind == INT && !number->is_unsigned) {
        int64_t value = (int64_t)number->bits;
        if (value < parameter->low || value > parameter->high || value & parameter->mask)
            return 0;
        if (parameter->bytes == 4)
            memcpy(place, &value, 4);
        else
            memcpy(place, &value, parameter->bytes);
        return 1;
    }
    if (number->kind == INT && !is_within(parameter, number))
        return 0;
    if (parameter->kind != 'c' && format != 'f' && format != 'd')
        return pack_int(format, number, place);
    double real = number->kind != INT ? number->real : number->is_unsigned ? (double)number->bits : (double)(int64_t)number->bits;
    if (parameter->kind != 'c')
        return pack_float(format, real, place);
    double imaginary = number->kind == COMPLEX ? number->imag : 0;
    return pack_float(format, real, place) && pack_float(format, imaginary, place + (format == 'f' ? 4 : 8));
}

/* Whether a parameter is for what is read so; arrays besides have to be of its type. */
static int takes(const Parameter *parameter, int kind) {
    if (parameter->kind == 'a' || parameter->kind == 'e' || kind < INT)
        return (parameter->kind == 'a' || parameter->kind == 'e') && kind < INT;
    if (parameter->kind == 'k' || kind == PLAIN)
        return parameter->kind == 'k' && kind != TRUTH && kind != INDEX;
    if (parameter->kind == 'p')
        return kind == INT;
    int is_float = parameter->format == 'f' || parameter->format == 'd';
    return parameter->kind == 'c' || kind == INT || kind == TRUTH || kind == INDEX || (kind == FLOAT && is_float);
}

/* ------------------------------------------------------------------------------------------------------------- records */

/* How one argument is read. */
typedef struct {
    const Exchange *exchange; /* of a tensor's class; else NULL */
    unsigned char at, kind;
} Reader;

/* What the arguments' types are, and how each is read. All of it that launches read is in a few lines of the cache. */
typedef struct {
    short count, arrays_count, numbers_count; /* of arguments */
    PyTypeObject **types;
    Reader *readers; /* of the arrays, then of the numbers, each in the order of the arguments */
    void *memory;
} Shape;

enum { LIMITS = 8 }; /* grid x, y, z, block x, y, z, dynamic shared memory, threads of a block */

/* The driver's functions that few launches need: for streams that wait for each other, and for launch attributes. */
typedef struct {
    EventCreate create;
    EventRecord record;
    EventDestroy destroy;
    StreamWaitEvent wait;
    StreamIsCapturing is_capturing;
    LaunchKernelEx launch;
} Rare;

/* What a kernel is launched with whose users say the grid alone; no threads where they say the rest. */
typedef struct {
    unsigned threads, shared;
} Fixed;

/* An overload that may be the one, and its kernel. */
typedef struct {
    Plan *plan;
    void *kernel;
    Fixed fixed;
} Choice;

/* An array as the overloads take it. */
typedef struct {
    uint64_t id;
    int itemsize;
    unsigned char ndim;
    unsigned char address; /* they take no more of it than that */
} Taken;

typedef struct Record { /* what launches read of most comes first */
    const Shape *shape;
    void *context;  /* NULL: of any context */
    PyObject *live; /* a list, empty when the images are not loaded any more */
    unsigned limits[LIMITS];
    LaunchKernel launch;
    Choice *choices;
    SHARED(unsigned) *flights; /* of `live`: see begin() */
    int device;                /* -1: arrays are not asked where they lie */
    int most_bytes;            /* of the choices' blocks */
    short arrays, count;       /* of its arrays, and of its choices */
    Taken taken[MOST_ARRAYS];
    struct Record *next; /* of all that there ever were */
    uint64_t hash;
    PyObject *dtypes; /* keeps the objects alive whose addresses are ids */
    PointerAttribute attribute;
    StreamContext stream_context;
    Rare rare;
    SHARED(void *) event; /* kept for the next launch that waits for a stream; NULL: in use, or none was needed yet */
    void *memory;
} Record;

typedef struct Table {
    SHARED(const Record *) last; /* the one that was used last */
    GetCurrent current;     /* NULL: whose context is current does not matter */
    struct Table *previous; /* kept until the records go: other threads may be reading it */
    int shapes_count, count, mask;
    const Shape *shapes[MOST_SHAPES];
    const Record *records[MOST_RECORDS];
    short slots[2 * MOST_RECORDS]; /* by hash, open addressing; -1: empty */
} Table;

typedef struct {
    PyObject_HEAD
    SHARED(Table *) table;
    Record *all; /* read and written by who learns alone */
    int made;    /* how many these are */
} Records;

/* Records of images that are gone stay, as threads may be reading them, until the last launcher that has them goes. One
 * that is held while its module is unloaded again and again would gather them for ever. */
enum { MOST_MADE = 4 * MOST_RECORDS };

typedef PyObject *(*Vectorcall)(PyObject *, PyObject *const *, size_t, PyObject *);

typedef struct Launcher {
    PyObject_HEAD
    Vectorcall vectorcall;
    struct Launcher *like; /* of one for a stream object, which has nothing else of its own: the one for the stream's handle */
    PyObject *owner;       /* that object, else NULL: a stream lives as long as it does */
    PyObject *slow;
    Records *records;
    SHARED(const Record *) allowed; /* one whose limits the dimensions are within; the records keep it */
    unsigned dimensions[LIMITS];
    int is_given; /* 0: the stream is the one that is current at each launch */
    void *stream;
    PyObject *attributes; /* bytes: an array of CUlaunchAttribute; NULL for none */
    PyObject *names;      /* of all arguments in order, interned, where calls may name them; else NULL */
    PyObject *defaults;   /* what each is that a call leaves out; `names` itself for one that has to be given */
    PyObject *pointers;   /* bytes: the names' addresses, then the defaults' */
    int total, positional; /* arguments, and how many of them may be given by position */
} Launcher;

/* The one that has what a launch needs. */
static Launcher *itself(PyObject *object) {
    Launcher *launcher = (Launcher *)object;
    return launcher->like ? launcher->like : launcher;
}

enum { ATTRIBUTE = 72 }; /* sizeof(CUlaunchAttribute) */

/* CUlaunchConfig */
typedef struct {
    unsigned dimensions[6], shared;
    void *stream;
    const void *attributes;
    unsigned count;
} Config;

enum { LAST_DEFAULT_STREAM = 2 }; /* CU_STREAM_PER_THREAD; these are of whatever context is current */

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash ^= value;
    hash *= 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

static int types_match(const Shape *shape, PyObject *const *args, Py_ssize_t count) {
    PyTypeObject *const *types = shape->types;
    if (shape->count != count)
        return 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (Py_TYPE(args[i]) != types[i])
            return 0;
    return 1;
}

/* Reads the arrays among the arguments, in their order; gives how many, -1 if one is unusual. */
static int read_arrays(const Shape *shape, PyObject *const *args, View *views, Reading *reading) {
    int count = shape->arrays_count;
    const Reader *reader = shape->readers;
    for (View *view = views; view < views + count; view++, reader++) {
        PyObject *array = args[reader->at];
        int kind = reader->kind;
        view->device = -1;
        int fits = kind == CUPY || kind == CUPY_SUBCLASS ? read_cupy(array, kind == CUPY_SUBCLASS, view, reading)
                   : kind == EXCHANGE                      ? read_exchange(array, reader->exchange, view, reading)
                   : kind == INTERFACE                     ? read_interface(array, view, reading)
                   : kind == NUMBA                         ? read_numba(array, view, reading)
                                                           : read_torch(array, view, reading);
        if (!fits)
            return -1;
    }
    return count;
}

static int fits(const Record *record, const Shape *shape, void *context, const View *views, int count) {
    if (record->shape != shape || record->context != context)
        return 0;
    for (int i = 0; i < count; i++)
        if (views[i].id != record->taken[i].id || views[i].ndim != record->taken[i].ndim)
            return 0;
    return 1;
}

static int record_matches(const Record *record, const Shape *shape, void *context, const View *views, int count) {
    return fits(record, shape, context, views, count) && PyList_Size(record->live) > 0;
}

static uint64_t hash_of(const Shape *shape, void *context, const View *views, int count) {
    uint64_t hash = mix((uint64_t)(uintptr_t)shape, (uint64_t)(uintptr_t)context);
    for (int i = 0; i < count; i++)
        hash = mix(mix(hash, views[i].id), (uint64_t)views[i].ndim);
    return hash;
}

static const Record *find(Table *table, const Shape *shape, void *context, const View *views, int count) {
    uint64_t hash = hash_of(shape, context, views, count);
    for (int slot = (int)(hash & (unsigned)table->mask);; slot = (slot + 1) & table->mask) {
        int at = table->slots[slot];
        if (at < 0)
            return NULL;
        if (table->records[at]->hash == hash && record_matches(table->records[at], shape, context, views, count)) {
            WRITE(table->last, table->records[at]);
            return table->records[at];
        }
    }
}

/* The lowest address of an array that has elements, and the first one after it; 0 where these are no addresses. */
static int reach(const View *view, int itemsize, uint64_t *low, uint64_t *high) {
    int64_t below = 0, above = 0, span;
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

/* Whether no two arrays overlap that must not; -1 where only the other path can tell. */
static int are_apart(const Plan *plan, const View *views, const Taken *taken) {
    for (int i = 0; i < plan->pairs_count; i++) {
        int a = plan->pairs[i][0], b = plan->pairs[i][1];
        uint64_t low, high, other_low, other_high;
        if (!views[a].items || !views[b].items)
            continue;
        if (!reach(&views[a], taken[a].itemsize, &low, &high) || !reach(&views[b], taken[b].itemsize, &other_low, &other_high))
            return -1;
        if (low < other_high && other_low < high)
            return 0;
    }
    return 1;
}

/* Whether the arguments fit a plan; packs its parameter block. Constants tell most plans apart, so they come first. */
static int fills(const Plan *plan, const Number *numbers, View *views, unsigned char *block) {
    const Parameter *parameter = plan->parameters, *end = parameter + plan->constants_count;
    for (; parameter < end; parameter++)
        if (!is_constant(parameter, &numbers[parameter->at]))
            return 0;
    memset(block, 0, plan->size);
    for (end += plan->numbers_count; parameter < end; parameter++)
        if (!pack_number(parameter, &numbers[parameter->at], block))
            return 0;
    for (end += plan->arrays_count; parameter < end; parameter++, views++)
        if (!pack_array(parameter, views, block))
            return 0;
    return 1;
}

/* Packs the parameter block of the first plan that the arguments fit; gives its number, -1 if there is none, or if one of
 * the arguments is not for this path: which plan it would fit is not known then. */
static int pack(const Record *record, PyObject *const *args, View *views, unsigned char *block) {
    const Shape *shape = record->shape;
    Number numbers[shape->count + 1]; /* no more of the stack than is needed: the driver has emptied the cache */
    for (int i = 0; i < record->arrays; i++)
        if (!settle(&views[i], record->taken[i].itemsize, record->taken[i].address))
            return -1;
    const Reader *reader = shape->readers + shape->arrays_count;
    for (int i = 0; i < shape->numbers_count; i++, reader++) {
        Number *number = &numbers[reader->at];
        PyObject *value = number->object = args[reader->at];
        if (reader->kind == INT ? !read_int(value, number) : !read_number(reader->kind, value, number))
            return -1;
    }
    for (int number = 0; number < record->count; number++) {
        const Plan *plan = record->choices[number].plan;
        int taken = fills(plan, numbers, views, block) ? are_apart(plan, views, record->taken) : 0;
        if (taken)
            return taken > 0 ? number : -1;
    }
    return -1;
}

static int lie_on(const Record *record, const View *views, int count) {
    for (int i = 0; i < count; i++) {
        int device = views[i].device;
        if (views[i].address && ((device < 0 && record->attribute(&device, DEVICE_ORDINAL, views[i].address)) ||
                                 device != record->device))
            return 0;
    }
    return 1;
}

/* Where there are several GPUs: whether the stream is of the current context. The driver would launch in the stream's,
 * whichever is current; and a handle that was freed may be that of another GPU's stream by now. Of a stream that does not
 * exist it can be asked whether it is captured, but asking for the context crashes. */
static int stream_is_here(const Record *record, void *stream, void *context) {
    void *owner;
    int status;
    return record->device < 0 || (uintptr_t)stream <= LAST_DEFAULT_STREAM ||
           (!record->rare.is_capturing(stream, &status) && !record->stream_context(stream, &owner) && owner == context);
}

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

/* An event that is nobody else's, NULL if there can be none. */
static void *take_event(Record *record) {
    void *event = EXCHANGE_POINTER(record->event, NULL);
    if (!event && record->rare.create(&event, 2)) /* CU_EVENT_DISABLE_TIMING */
        return NULL;
    return event;
}

/* The driver keeps an event for as long as something waits for it. One that did not work is not kept for another launch. */
static void give_event(Record *record, void *event, int works) {
    void *other = works ? EXCHANGE_POINTER(record->event, event) : event;
    if (other)
        record->rare.destroy(other);
}

static int is_captured(const Record *record, void *stream) {
    int status = 0;
    return record->rare.is_capturing(stream, &status) || status;
}

/* Whether streams can be ordered here: captures have rules of their own, which the other path knows. */
static int may_order(const Record *record, const Reading *reading) {
    for (int i = 0; i < reading->others; i++)
        if (is_captured(record, (void *)reading->ready[i].stream))
            return 0;
    return !is_captured(record, (void *)reading->handle);
}

static int order(const Record *record, void *event, uintptr_t before, uintptr_t after) {
    int code = record->rare.record(event, (void *)before);
    return code ? code : record->rare.wait((void *)after, event, 0);
}

enum { CELLS = 16, CELL = 16 }; /* of Mark.flights in aotcuda/runtime/driver.py: a cell fills a cache line */

/* The cell to count a launch in. Threads that launch at once without the GIL should not have to share one. */
static SHARED(unsigned) *cell_of(const Record *record) {
#ifdef Py_GIL_DISABLED
    static _Thread_local char here;
    return &record->flights[CELL * (mix(0, (uintptr_t)&here) % CELLS)];
#else
    return record->flights;
#endif
}

/* Counts a launch that is under way, unless the images are out of use. Who unloads empties `live` first and looks at the
 * counts then, so either he sees this launch or it sees him. No Python code may run until end(). */
static int begin(const Record *record) {
    ADD(*cell_of(record), 1);
    if (PyList_Size(record->live) > 0)
        return 1;
    ADD(*cell_of(record), -1);
    return 0;
}

static void end(const Record *record) { ADD(*cell_of(record), -1); }

/* ------------------------------------------------------------------------------------------------------------ launcher */

enum {
    DECLINED = -1,
    AFTER = 1 << 16, /* added to the driver's code where the launch was made, and a stream does not wait for it */
};

/* How many launches deep this is: an argument that is asked may launch, whose arguments may. A level takes a stack of some
 * hundred bytes for each array, of which Python knows nothing; what is deeper goes the other way, which Python bounds. */
enum { MOST_DEPTH = 16 };
#ifdef Py_GIL_DISABLED
static _Thread_local int depth;
#else
static int depth; /* of all threads that are asking arguments */
#endif

static int quick(Launcher *self, PyObject *const *args, Py_ssize_t count) {
    Records *records = self->records;
    Table *table = READ(records->table);
    if (!table || READ(disabled))
        return DECLINED;
    const Record *record = READ(table->last);
    const Shape *shape = record->shape;
    if (!types_match(shape, args, count)) {
        shape = NULL;
        for (int i = 0; i < table->shapes_count && !shape; i++)
            if (types_match(table->shapes[i], args, count))
                shape = table->shapes[i];
        if (!shape)
            return DECLINED;
    }
    if (depth >= MOST_DEPTH)
        return DECLINED;
    View views[shape->arrays_count + 1];
    Reading reading;
    begin_reading(&reading, self->is_given, self->stream, record->device >= 0);
    depth++;
    int arrays = read_arrays(shape, args, views, &reading);
    depth--;
    if (arrays < 0 || (!reading.known && !know(&reading, 0)))
        return DECLINED;
    void *stream = (void *)reading.handle;
    void *context = NULL;
    if (table->current && table->current(&context))
        return DECLINED;
    if (!fits(record, shape, context, views, arrays)) { /* whether it is out of use is asked by begin() */
        record = find(table, shape, context, views, arrays);
        if (!record)
            return DECLINED;
    }
    const unsigned *d = self->dimensions;
    if (READ(self->allowed) != record) {
        for (int i = 0; i < LIMITS; i++)
            if (d[i] > record->limits[i])
                return DECLINED;
        WRITE(self->allowed, record);
    }
    if (record->device >= 0 && !lie_on(record, views, arrays))
        return DECLINED;
    if (!stream_is_here(record, stream, context))
        return DECLINED;
    uint64_t room[(record->most_bytes + 15) / 16 * 2 + 2]; /* of the block, from a multiple of 16 */
    unsigned char *block = (unsigned char *)(((uintptr_t)room + 15) / 16 * 16);
    depth++;
    int number = pack(record, args, views, block);
    depth--;
    if (number < 0 || !begin(record))
        return DECLINED;
    const Plan *plan = record->choices[number].plan;
    size_t size = (size_t)plan->size;
    void *buffer[] = {(void *)1, block, (void *)2, &size, NULL}; /* CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END */
    void *starts[plan->starts_count + 1], **each = NULL, **extra = buffer;
    if (plan->starts_count) {
        for (int i = 0; i < plan->starts_count; i++)
            starts[i] = block + plan->starts[i];
        each = starts;
        extra = NULL;
    }
    const Fixed *fixed = &record->choices[number].fixed;
    unsigned block_x = fixed->threads ? fixed->threads : d[3], shared = fixed->threads ? fixed->shared : d[6];
    Config config;
    if (self->attributes)
        config = (Config){{d[0], d[1], d[2], block_x, d[4], d[5]}, shared, stream, PyBytes_AsString(self->attributes),
                          (unsigned)(PyBytes_Size(self->attributes) / ATTRIBUTE)};
    int code = 0, ordered = 0, others = reading.others;
    void *event = NULL;
    if (others && (!may_order(record, &reading) || !(event = take_event((Record *)record)))) {
        end(record);
        return DECLINED;
    }
    /* A full queue makes the driver wait, and what it waits for may be a host function that needs the GIL. */
    Py_BEGIN_ALLOW_THREADS
    for (int i = 0; i < others && !ordered; i++)
        ordered = order(record, event, reading.ready[i].stream, (uintptr_t)stream);
    if (!ordered && !self->attributes)
        code = record->launch(record->choices[number].kernel, d[0], d[1], d[2], block_x, d[4], d[5], shared, stream, each, extra);
    else if (!ordered)
        code = record->rare.launch(&config, record->choices[number].kernel, each, extra);
    for (int i = 0; i < others && !ordered && !code; i++)
        if (reading.ready[i].mutual && (code = order(record, event, (uintptr_t)stream, reading.ready[i].stream)))
            code += AFTER;
    Py_END_ALLOW_THREADS
    if (event)
        give_event((Record *)record, event, !ordered && !code);
    end(record);
    return ordered ? DECLINED : code; /* the other path says why */
}

/* What the driver or the other path says of a launch that did not succeed here. */
static PyObject *slow_call(Launcher *self, int code, PyObject *args, PyObject *keywords) {
    if (code > 0) {
        PyObject *number = PyLong_FromLong(code);
        PyObject *result = number ? PyObject_CallMethodObjArgs(self->slow, s_fail, number, args, NULL) : NULL;
        Py_XDECREF(number);
        return result;
    }
    return PyObject_Call(self->slow, args, keywords);
}

static PyObject *launcher_call(PyObject *object, PyObject *args, PyObject *keywords) {
    Launcher *self = itself(object);
    PyObject *array[MOST_ARGUMENTS];
    Py_ssize_t count = PyTuple_Size(args);
    int code = DECLINED;
    if (!keywords && !self->names && count <= MOST_ARGUMENTS) {
        for (Py_ssize_t i = 0; i < count; i++)
            array[i] = PyTuple_GetItem(args, i);
        code = quick(self, array, count);
        if (code == 0)
            Py_RETURN_NONE;
        if (code == DECLINED && !forgiven())
            return NULL;
    }
    return slow_call(self, code, args, keywords);
}

/* The arguments of a call in order, those given by name and those left out included; how many, or DECLINED. */
static Py_ssize_t arranged(Launcher *self, PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject **full) {
    PyObject *const *known = (PyObject *const *)PyBytes_AsString(self->pointers), *const *defaults = known + self->total;
    Py_ssize_t total = self->total, named = names ? PyTuple_Size(names) : 0, next = count;
    if (count > self->positional)
        return DECLINED;
    for (Py_ssize_t i = 0; i < count; i++)
        full[i] = args[i];
    for (Py_ssize_t i = count; i < total; i++)
        full[i] = defaults[i];
    for (Py_ssize_t j = 0; j < named; j++) {
        PyObject *name = PyTuple_GetItem(names, j);
        Py_ssize_t left = total - count, i = next;
        for (; left && (i == total || known[i] != name); left--) /* most calls name them in order */
            i = i < total - 1 ? i + 1 : count;
        if (!left) /* the compiler interns names; others are for the other path, as is one given by position too */
            return DECLINED;
        full[i] = args[count + j];
        next = i + 1;
    }
    for (Py_ssize_t i = count; i < total; i++)
        if (full[i] == self->names)
            return DECLINED;
    return total;
}

/* The same by the protocol of PEP 590, which spares a tuple. The stable ABI has its function from 3.12 on; types could have
 * it before that. */
static PyObject *launcher_vectorcall(PyObject *object, PyObject *const *args, size_t flagged, PyObject *names) {
    Launcher *self = itself(object);
    Py_ssize_t count = (Py_ssize_t)(flagged & ~((size_t)1 << (8 * sizeof(size_t) - 1)));
    Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    PyObject *full[MOST_ARGUMENTS];
    int code = DECLINED;
    if (self->names) {
        Py_ssize_t total = arranged(self, args, count, names, full);
        code = total < 0 ? DECLINED : quick(self, full, total);
        if (code > 0) { /* what is said of it has all arguments in order */
            args = full;
            count = total;
            named = 0;
        }
    } else if (!named) {
        code = quick(self, args, count);
    }
    if (code == 0)
        Py_RETURN_NONE;
    if (code == DECLINED && !forgiven())
        return NULL;
    PyObject *tuple = PyTuple_New(count), *keywords = named ? PyDict_New() : NULL;
    int made = tuple && (!named || keywords);
    for (Py_ssize_t i = 0; made && i < count; i++)
        PyTuple_SetItem(tuple, i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; made && i < named; i++)
        made = PyDict_SetItem(keywords, PyTuple_GetItem(names, i), args[count + i]) == 0;
    PyObject *result = made ? slow_call(self, code, tuple, keywords) : NULL;
    Py_XDECREF(tuple);
    Py_XDECREF(keywords);
    return result;
}

/* Puts the names and defaults where calls find them without a question each; 0, and an error, without memory. */
static int point_at_names(Launcher *self) {
    self->total = (int)PyTuple_Size(self->names);
    self->pointers = PyBytes_FromStringAndSize(NULL, 2 * self->total * (Py_ssize_t)sizeof(PyObject *));
    PyObject **pointers = self->pointers ? (PyObject **)PyBytes_AsString(self->pointers) : NULL;
    for (int i = 0; pointers && i < self->total; i++) {
        pointers[i] = PyTuple_GetItem(self->names, i);
        pointers[self->total + i] = PyTuple_GetItem(self->defaults, i);
    }
    return pointers != NULL;
}

static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    (void)keywords;
    PyObject *slow, *records, *given, *attributes, *names = NULL, *defaults = NULL;
    int positional = 0;
    unsigned d[LIMITS];
    if (!PyArg_ParseTuple(args, "OO!(IIIIIII)OS|O!O!i", &slow, records_type, &records, &d[0], &d[1], &d[2], &d[3], &d[4], &d[5],
                          &d[6], &given, &attributes, &PyTuple_Type, &names, &PyTuple_Type, &defaults, &positional))
        return NULL;
    if (names && (!defaults || PyTuple_Size(names) != PyTuple_Size(defaults) || PyTuple_Size(names) > MOST_ARGUMENTS ||
                  positional < 0 || positional > PyTuple_Size(names))) {
        PyErr_SetString(PyExc_ValueError, "names and defaults that do not agree, or too many");
        return NULL;
    }
    unsigned long long stream = given == Py_None ? 0 : PyLong_AsUnsignedLongLong(given);
    if (PyErr_Occurred())
        return NULL;
    uint64_t threads = (uint64_t)d[3] * d[4];
    threads = threads > UINT32_MAX ? threads : threads * d[5];
    d[7] = threads > UINT32_MAX ? UINT32_MAX : (unsigned)threads;
    Launcher *self = (Launcher *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    self->vectorcall = launcher_vectorcall;
    self->slow = Py_NewRef(slow);
    self->records = (Records *)Py_NewRef(records);
    self->names = Py_XNewRef(names);
    self->defaults = Py_XNewRef(defaults);
    self->positional = positional;
    if (names && !point_at_names(self)) {
        Py_DECREF(self);
        return NULL;
    }
    memcpy(self->dimensions, d, sizeof d);
    self->attributes = PyBytes_Size(attributes) ? Py_NewRef(attributes) : NULL;
    self->is_given = given != Py_None;
    self->stream = (void *)(uintptr_t)stream;
#if defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030E0000
    /* So that threads do not contend for its reference count. It and the launcher behind refer to each other, so it is for
     * the garbage collector to free anyway. */
    PyUnstable_Object_EnableDeferredRefcount((PyObject *)self);
#endif
    return (PyObject *)self;
}

static const Exchange *exchange_of(PyTypeObject *type) {
    PyObject *capsule = PyObject_GetAttr((PyObject *)type, s_exchange);
    const Exchange *exchange = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    Py_XDECREF(capsule); /* the type keeps it */
    PyErr_Clear();
    if (!exchange || exchange->version.major != 1 || !exchange->read || !exchange->current_stream)
        return NULL;
    return exchange;
}

static void free_shape(const Shape *shape) {
    for (int i = 0; i < shape->count; i++)
        Py_XDECREF((PyObject *)shape->types[i]);
    PyMem_Free(shape->memory);
}

/* NULL: an error. */
static const Shape *make_shape(PyObject *const *args, const char *kinds, Py_ssize_t count) {
    void *memory;
    Shape *shape = in_lines(sizeof(Shape) + (size_t)count * (sizeof(PyTypeObject *) + sizeof(Reader)), &memory);
    if (!shape)
        return NULL;
    shape->memory = memory;
    shape->types = (PyTypeObject **)(shape + 1);
    shape->readers = (Reader *)(shape->types + count);
    shape->count = (short)count;
    for (Py_ssize_t i = 0; i < count; i++)
        shape->arrays_count += kinds[i] < INT;
    Reader *array = shape->readers, *number = shape->readers + shape->arrays_count;
    for (Py_ssize_t i = 0; i < count; i++) {
        int kind = (unsigned char)kinds[i];
        shape->types[i] = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(args[i]));
        Reader *reader = kind < INT ? array++ : number++;
        const Exchange *exchange = kind == EXCHANGE ? exchange_of(shape->types[i]) : NULL;
        kind = kind == EXCHANGE && !exchange ? TORCH : kind;
        *reader = (Reader){exchange, (unsigned char)i, (unsigned char)kind};
    }
    shape->numbers_count = (short)(number - shape->readers - shape->arrays_count);
    return shape;
}

/* How an argument is read. */
static int kind_of(const Shape *shape, int at) {
    const Reader *reader = shape->readers;
    while (reader->at != at)
        reader++;
    return reader->kind;
}

static void free_record(Record *record) {
    for (int i = 0; i < record->count; i++)
        Py_XDECREF((PyObject *)record->choices[i].plan);
    if (READ(record->event) && !READ(disabled))
        record->rare.destroy(READ(record->event));
    Py_XDECREF(record->dtypes);
    Py_XDECREF(record->live);
    PyMem_Free(record->choices);
    PyMem_Free(record->memory);
}

/* What arrays.element() is asked about an array that was read; NULL if it has another dtype by now. */
static PyObject *element_of(int kind, PyObject *array, const View *view) {
    char text[sizeof view->id + 1] = {0};
    if (kind == EXCHANGE)
        return Py_BuildValue("(ii)", (int)(view->id >> 8 & 0xFF), (int)(view->id >> 16 & 0xFF));
    if (kind == INTERFACE) {
        memcpy(text, &view->id, sizeof view->id);
        return PyUnicode_FromString(text);
    }
    PyObject *dtype = PyObject_GetAttr(array, s_dtype);
    if (dtype && (uint64_t)(uintptr_t)dtype != view->id)
        Py_CLEAR(dtype);
    return dtype;
}

/* The objects that ids are addresses of; NULL if an array is not what all of the plans take, by what was read of it. */
static PyObject *verified(Record *record, PyObject *const *args, const View *views, PyObject *element) {
    const Shape *shape = record->shape;
    PyObject *dtypes = PyList_New(0);
    for (int i = 0, array = 0; dtypes && i < shape->count; i++) {
        int kind = kind_of(shape, i), agree = 1;
        PyObject *what = NULL, *name = NULL;
        if (kind < INT) {
            what = element_of(kind, args[i], &views[array]);
            name = what ? PyObject_CallFunctionObjArgs(element, what, NULL) : NULL;
            agree = name && PyUnicode_Check(name) && PyList_Append(dtypes, what) == 0;
        }
        for (int j = 0; agree && j < record->count; j++) {
            const Parameter *parameter = parameter_of(record->choices[j].plan, i);
            agree = takes(parameter, kind);
            if (!agree || kind >= INT)
                continue;
            agree = (parameter->kind == 'e' || parameter->ndim == views[array].ndim || parameter->ndim == ANY_DIMENSIONS) &&
                    PyUnicode_Compare(parameter->dtype, name) == 0 &&
                    (j == 0 || parameter->itemsize == record->taken[array].itemsize);
            record->taken[array].itemsize = parameter->itemsize;
            record->taken[array].address = (j == 0 || record->taken[array].address) && parameter->kind == 'e' && !record->choices[j].plan->pairs_count;
        }
        array += kind < INT;
        Py_XDECREF(what);
        Py_XDECREF(name);
        if (!agree)
            Py_CLEAR(dtypes);
    }
    return dtypes;
}

static int fill_plans(Record *record, PyObject *plans, int arguments) {
    Py_ssize_t count = PyTuple_Size(plans);
    record->choices = PyMem_Calloc(count ? count : 1, sizeof(Choice));
    if (!record->choices) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *plan;
        unsigned long long kernel;
        Fixed *fixed = &record->choices[i].fixed;
        if (!PyArg_ParseTuple(PyTuple_GetItem(plans, i), "O!K|II", plan_type, &plan, &kernel, &fixed->threads, &fixed->shared))
            return 0;
        if (((Plan *)plan)->count != arguments) {
            PyErr_SetString(PyExc_ValueError, "a plan for another number of arguments");
            return 0;
        }
        record->choices[i].plan = (Plan *)Py_NewRef(plan);
        record->most_bytes = ((Plan *)plan)->size > record->most_bytes ? ((Plan *)plan)->size : record->most_bytes;
        record->choices[i].kernel = (void *)(uintptr_t)kernel;
        record->count = (short)(i + 1);
    }
    return 1;
}

/* A table with a record more, and without those whose images were unloaded; NULL, and no error, if there is no room. */
static Table *extended(const Table *old, const Record *record, const Record *replaced, GetCurrent current) {
    Table *table = PyMem_Calloc(1, sizeof(Table));
    if (!table) {
        PyErr_NoMemory();
        return NULL;
    }
    table->previous = (Table *)old;
    table->current = current;
    for (int i = 0; old && i < old->count; i++)
        if (old->records[i] != replaced && PyList_Size(old->records[i]->live) > 0)
            table->records[table->count++] = old->records[i];
    if (table->count == MOST_RECORDS)
        goto full;
    table->records[table->count++] = record;
    WRITE(table->last, record);
    table->mask = 2 * MOST_RECORDS - 1;
    memset(table->slots, -1, sizeof table->slots);
    for (int i = 0; i < table->count; i++) {
        const Shape *shape = table->records[i]->shape;
        int known = 0;
        for (int j = 0; j < table->shapes_count; j++)
            known |= table->shapes[j] == shape;
        if (!known && table->shapes_count == MOST_SHAPES)
            goto full;
        if (!known)
            table->shapes[table->shapes_count++] = shape;
        int slot = (int)(table->records[i]->hash & (unsigned)table->mask);
        while (table->slots[slot] >= 0)
            slot = (slot + 1) & table->mask;
        table->slots[slot] = (short)i;
    }
    return table;
full:
    PyMem_Free(table);
    return NULL;
}

/* What a record is to hold, as Python tells it. */
typedef struct {
    PyObject *const *args;
    Py_ssize_t count;
    PyObject *plans, *live, *element;
    const char *kinds;
    int device;
    LaunchKernel launch;
    GetCurrent current;
    PointerAttribute attribute;
    StreamContext stream_context;
    Rare rare;
    SHARED(unsigned) *flights;
    unsigned limits[LIMITS];
} Lesson;

/* The shape of a record, if one is known for arguments of these types. */
static const Shape *known_shape(Records *self, PyObject *const *args, Py_ssize_t count) {
    const Shape *found = NULL;
    Py_BEGIN_CRITICAL_SECTION(self);
    for (const Record *record = self->all; record && !found; record = record->next)
        if (types_match(record->shape, args, count))
            found = record->shape;
    Py_END_CRITICAL_SECTION();
    return found;
}

/* Everything of a record but where it belongs: asking arguments what they are can run any code, other threads included.
 * What is read here need not be what the launch had, so it is held against the plans. */
static Record *make_record(const Shape *shape, const Lesson *lesson, View *views) {
    Reading reading = {.any_stream = 1};
    void *context = NULL;
    int arrays = read_arrays(shape, lesson->args, views, &reading);
    if (arrays < 0 || (lesson->current && lesson->current(&context))) {
        (void)forgiven(); /* an unusual array */
        return NULL;
    }
    void *memory;
    Record *record = in_lines(sizeof(Record), &memory);
    if (!record)
        return NULL;
    record->memory = memory;
    record->shape = shape;
    record->context = context;
    record->device = lesson->device;
    record->launch = lesson->launch;
    record->attribute = lesson->attribute;
    record->stream_context = lesson->stream_context;
    record->rare = lesson->rare;
    record->flights = lesson->flights;
    record->live = Py_NewRef(lesson->live);
    memcpy(record->limits, lesson->limits, sizeof record->limits);
    record->arrays = (short)arrays;
    for (int i = 0; i < arrays; i++) {
        record->taken[i].id = views[i].id;
        record->taken[i].ndim = (unsigned char)views[i].ndim;
    }
    record->hash = hash_of(shape, context, views, arrays);
    if (fill_plans(record, lesson->plans, shape->count)) {
        record->dtypes = verified(record, lesson->args, views, lesson->element);
        if (record->dtypes)
            return record;
        (void)forgiven(); /* an argument that has changed, or is no array that the plans are for */
    }
    free_record(record);
    return NULL;
}

static int same_shape(const Shape *one, const Shape *other) {
    return one->count == other->count && memcmp(one->types, other->types, (size_t)one->count * sizeof *one->types) == 0;
}

/* Puts a record into the table, for every thread to see; 0 if it is not needed, or there is no room. No Python code may run
 * in here: what keeps other threads out is the GIL, or a critical section, and that would let them in. */
static int add_record(Records *self, Record *record, const View *views, GetCurrent current) {
    const Table *old = READ(self->table);
    const Record *replaced = NULL;
    if (self->made == MOST_MADE)
        return 0;
    for (const Record *other = self->all; other; other = other->next)
        if (other->shape != record->shape && same_shape(other->shape, record->shape))
            return 0; /* another thread was the first to meet these types; there will be another launch */
    for (int i = 0; old && i < old->count && !replaced; i++)
        if (record_matches(old->records[i], record->shape, record->context, views, record->arrays))
            replaced = old->records[i];
    if (replaced && memcmp(replaced->limits, record->limits, sizeof record->limits) == 0)
        return 0; /* known already: it declined for another reason */
    Table *table = extended(old, record, replaced, current);
    if (!table)
        return 0;
    record->next = self->all;
    self->all = record;
    self->made++;
    WRITE(self->table, table);
    return 1;
}

static PyObject *learn(Records *self, const Lesson *lesson) {
    Py_ssize_t count = lesson->count;
    const Shape *shape = known_shape(self, lesson->args, count);
    int is_new = !shape, added = 0;
    if (is_new && !(shape = make_shape(lesson->args, lesson->kinds, count)))
        return NULL;
    View views[MOST_ARRAYS];
    Record *record = make_record(shape, lesson, views);
    if (record) {
        Py_BEGIN_CRITICAL_SECTION(self);
        added = add_record(self, record, views, lesson->current);
        Py_END_CRITICAL_SECTION();
    }
    if (!added) {
        if (record)
            free_record(record);
        if (is_new)
            free_shape(shape);
    }
    return PyErr_Occurred() ? NULL : PyBool_FromLong(added);
}

static PyObject *records_learn(Records *self, PyObject *arguments) {
    Lesson lesson;
    PyObject *args, *array[MOST_ARGUMENTS];
    Py_ssize_t kinds_count, arrays = 0;
    unsigned long long launch, current, attribute, stream_context, flights, o[6];
    unsigned *l = lesson.limits;
    if (!PyArg_ParseTuple(arguments, "O!y#O!O!iKKKK(KKKKKK)K(IIIIIIII)O", &PyTuple_Type, &args, &lesson.kinds, &kinds_count,
                          &PyTuple_Type, &lesson.plans, &PyList_Type, &lesson.live, &lesson.device, &launch, &current,
                          &attribute, &stream_context, &o[0], &o[1], &o[2], &o[3], &o[4], &o[5], &flights, &l[0], &l[1], &l[2], &l[3], &l[4], &l[5], &l[6], &l[7],
                          &lesson.element))
        return NULL;
    for (Py_ssize_t i = 0; i < kinds_count; i++)
        arrays += lesson.kinds[i] < INT;
    if (kinds_count != PyTuple_Size(args) || kinds_count > MOST_ARGUMENTS || arrays > MOST_ARRAYS)
        Py_RETURN_FALSE;
    for (Py_ssize_t i = 0; i < kinds_count; i++)
        array[i] = PyTuple_GetItem(args, i);
    lesson.args = array;
    lesson.count = kinds_count;
    lesson.launch = (LaunchKernel)(uintptr_t)launch;
    lesson.current = (GetCurrent)(uintptr_t)current;
    lesson.attribute = (PointerAttribute)(uintptr_t)attribute;
    lesson.stream_context = (StreamContext)(uintptr_t)stream_context;
    lesson.rare = (Rare){(EventCreate)(uintptr_t)o[0], (EventRecord)(uintptr_t)o[1], (EventDestroy)(uintptr_t)o[2],
                         (StreamWaitEvent)(uintptr_t)o[3], (StreamIsCapturing)(uintptr_t)o[4],
                         (LaunchKernelEx)(uintptr_t)o[5]};
    lesson.flights = (SHARED(unsigned) *)(uintptr_t)flights;
    return learn(self, &lesson);
}

static PyObject *records_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    (void)args, (void)keywords;
    return PyType_GenericAlloc(type, 0);
}

static void records_dealloc(Records *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    for (Record *record = self->all, *next; record; record = next) {
        next = record->next;
        int is_last_of_shape = 1; /* shapes are shared between records */
        for (const Record *other = next; other; other = other->next)
            is_last_of_shape &= other->shape != record->shape;
        if (is_last_of_shape)
            free_shape(record->shape);
        free_record(record);
    }
    for (Table *table = READ(self->table), *previous; table; table = previous) {
        previous = table->previous;
        PyMem_Free(table);
    }
    PyObject_Free(self);
    Py_DECREF(type);
}

/* --------------------------------------------------------------------------------------------------- configurations */

/* How an object of a type tells its stream's handle: by an attribute, or by what the method `__cuda_stream__` gives. Types
 * are added by one thread at a time and never taken away. */
enum { MOST_STREAM_TYPES = 16 };
static struct {
    PyTypeObject *type;
    PyObject *attribute;
    int is_protocol;
} stream_types[MOST_STREAM_TYPES];
static SHARED(int) stream_types_count;

/* The handle of a stream object, as an int; NULL, perhaps without an error, if its type is not known. */
static PyObject *handle_of(PyObject *stream) {
    int count = READ(stream_types_count);
    for (int i = 0; i < count; i++) {
        if (stream_types[i].type != Py_TYPE(stream))
            continue;
        PyObject *value;
        if (stream_types[i].is_protocol) {
            PyObject *pair = PyObject_CallMethodObjArgs(stream, stream_types[i].attribute, NULL);
            int fits = pair && PyTuple_Check(pair) && PyTuple_Size(pair) == 2 && PyLong_Check(PyTuple_GetItem(pair, 0)) &&
                       PyLong_AsLong(PyTuple_GetItem(pair, 0)) == 0;
            value = fits ? Py_NewRef(PyTuple_GetItem(pair, 1)) : NULL;
            Py_XDECREF(pair);
        } else {
            value = PyObject_GetAttr(stream, stream_types[i].attribute);
        }
        if (value && (!PyLong_CheckExact(value) || (stream_types[i].is_protocol && PyLong_AsLong(value) == 0)))
            Py_CLEAR(value); /* a stream that was closed may say 0, which is not the default stream then */
        return forgiven() ? value : NULL;
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

/* A configuration of ints and tuples of them, by value. */
typedef struct {
    int64_t grid[4], block[4]; /* how many numbers, 0 for an int that is in no tuple, and these */
    int64_t shared;
    uint64_t stream;
    int64_t is_given;
} Written;

enum { MOST_WRITTEN = 4, PARTS = 4 };

/* The launchers of a kernel by their configurations, as users write these. Those found last are at hand by the objects
 * that a configuration is written with, which a loop has the same each time, and by value: to look them up in the dict takes
 * a hash of the whole tuple, and for a stream object another tuple. */
typedef struct {
    PyObject_HEAD
    PyObject *launchers; /* a dict; those for given streams by (grid, block, handle, shared) too */
    struct {
        Launcher *found; /* NULL where there is none */
        PyObject *parts[PARTS]; /* numbers, tuples of them and None; NULL for what was left out, and for a stream object */
        Written written;
    } at_hand[MOST_WRITTEN];
    unsigned count; /* of those that there ever were */
} Configurations;

static PyTypeObject *configurations_type;

/* Whether a configuration is made of Python's own ints, None, tuples of them and plain objects, so that it is equal to no
 * other one: 1.0 is equal to 1, and is no number of blocks. Tuples are in it `tuples` deep. */
static int is_exact(PyObject *written, int tuples) {
    if (!tuples || !PyTuple_CheckExact(written))
        return PyLong_CheckExact(written) || written == Py_None || Py_TYPE(written) == &PyBaseObject_Type;
    for (Py_ssize_t i = 0; i < PyTuple_Size(written); i++)
        if (!is_exact(PyTuple_GetItem(written, i), tuples - 1))
            return 0;
    return 1;
}

/* The same of Python's own ints alone, if it has other integers, such as NumPy's; NULL, perhaps without an error, if it is
 * for the general path. */
static PyObject *made_exact(PyObject *written, int tuples) {
    if (!tuples || !PyTuple_CheckExact(written)) {
        if (is_exact(written, 0))
            return Py_NewRef(written);
        int is_integer = PyIndex_Check(written) && !PyLong_Check(written); /* a class of ints may say what it likes */
        PyObject *number = is_integer ? PyNumber_Index(written) : NULL;
        return forgiven() ? number : NULL;
    }
    PyObject *made = PyTuple_New(PyTuple_Size(written));
    for (Py_ssize_t i = 0; made && i < PyTuple_Size(written); i++) {
        PyObject *part = made_exact(PyTuple_GetItem(written, i), tuples - 1);
        if (!part || PyTuple_SetItem(made, i, part) < 0)
            Py_CLEAR(made);
    }
    return made;
}

/* A launcher of a dict, by a configuration, a reference of the caller's own; NULL and an error if there is none. */
static PyObject *kept(PyObject *dictionary, PyObject *written) {
    PyObject *value = NULL, *key = is_exact(written, 2) ? Py_NewRef(written) : made_exact(written, 2);
    if (!key) {
        if (!PyErr_Occurred())
            PyErr_SetObject(PyExc_KeyError, written);
        return NULL;
    }
#ifdef Py_GIL_DISABLED
    PyDict_GetItemRef(dictionary, key, &value);
#else
    value = Py_XNewRef(PyDict_GetItemWithError(dictionary, key));
#endif
    if (!value && !PyErr_Occurred())
        PyErr_SetObject(PyExc_KeyError, key);
    Py_DECREF(key);
    return value;
}

/* The memory of a launcher that held a stream, for the next one: a program that writes the stream at each launch makes one
 * each time. Without the GIL it would have to be locked. */
static Launcher *spare_launcher;

/* A launcher like another one, which keeps a stream alive. */
static PyObject *held_launcher(Launcher *like, PyObject *stream) {
    Launcher *spare = spare_launcher, *held = spare;
    if (spare) {
        spare_launcher = NULL;
        PyObject_Init((PyObject *)spare, launcher_type);
    } else {
        held = (Launcher *)PyType_GenericAlloc(launcher_type, 0);
    }
    if (held) {
        held->vectorcall = launcher_vectorcall;
        held->like = (Launcher *)Py_NewRef((PyObject *)like);
        held->owner = Py_NewRef(stream);
    }
    if (spare)
        PyObject_GC_Track(spare);
    return (PyObject *)held;
}

static PyObject *hold(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *launcher, *stream;
    return PyArg_ParseTuple(args, "O!O", launcher_type, &launcher, &stream) ? held_launcher(itself(launcher), stream) : NULL;
}

/* 0 for what is neither an int nor a tuple of one to three, of Python's own types. */
static int read_dimensions(PyObject *value, int64_t *numbers) {
    int overflow = 0;
    Py_ssize_t count = PyTuple_CheckExact(value) ? PyTuple_Size(value) : 0;
    if (count > 3 || (!count && !PyLong_CheckExact(value)))
        return 0;
    numbers[0] = count;
    for (Py_ssize_t i = 0; i < (count ? count : 1); i++) {
        PyObject *number = count ? PyTuple_GetItem(value, i) : value;
        if (!PyLong_CheckExact(number))
            return 0;
        numbers[i + 1] = PyLong_AsLongLongAndOverflow(number, &overflow);
        if (overflow)
            return 0;
    }
    return 1;
}

/* 0 if a configuration is of other types; where it has a stream object, that is found, and its handle is left to be read. */
static int read_written(PyObject *key, Written *written, PyObject **object) {
    int overflow = 0;
    Py_ssize_t parts = PyTuple_Size(key);
    memset(written, 0, sizeof *written);
    if (parts < 2 || parts > 4 || !read_dimensions(PyTuple_GetItem(key, 0), written->grid) ||
        !read_dimensions(PyTuple_GetItem(key, 1), written->block))
        return 0;
    PyObject *stream = parts > 2 ? PyTuple_GetItem(key, 2) : Py_None, *shared = parts > 3 ? PyTuple_GetItem(key, 3) : NULL;
    if (shared && !PyLong_CheckExact(shared))
        return 0;
    written->shared = shared ? PyLong_AsLongLongAndOverflow(shared, &overflow) : 0;
    written->is_given = stream != Py_None;
    if (PyLong_CheckExact(stream)) {
        int64_t handle = PyLong_AsLongLongAndOverflow(stream, &overflow);
        written->stream = (uint64_t)handle;
        return !overflow && handle >= 0;
    }
    *object = PyLong_Check(stream) || stream == Py_None ? NULL : stream;
    return !overflow && !PyLong_Check(stream);
}

/* The launcher at hand for a configuration, NULL if there is none. Without the GIL there never is: it is not locked. */
static Launcher *at_hand(const Configurations *self, const Written *written) {
    for (int i = 0; i < MOST_WRITTEN; i++)
        if (self->at_hand[i].found && memcmp(&self->at_hand[i].written, written, sizeof *written) == 0)
            return self->at_hand[i].found;
    return NULL;
}

/* The objects that a configuration is written with, NULL for what is left out; 0 if they are too few or too many. */
static int read_parts(PyObject *key, PyObject *parts[PARTS]) {
    Py_ssize_t count = PyTuple_CheckExact(key) ? PyTuple_Size(key) : 0;
    if (count < 2 || count > PARTS)
        return 0;
    parts[0] = PyTuple_GetItem(key, 0);
    parts[1] = PyTuple_GetItem(key, 1);
    parts[2] = count > 2 ? PyTuple_GetItem(key, 2) : NULL;
    parts[3] = count > 3 ? PyTuple_GetItem(key, 3) : NULL;
    return 1;
}

/* The launcher at hand for one that is written with the same objects, but for that of a stream, whose handle is given then. */
static Launcher *at_hand_as_written(const Configurations *self, PyObject *const parts[PARTS], const uint64_t *handle) {
    PyObject *stream = handle ? NULL : parts[2];
    for (int i = 0; i < MOST_WRITTEN; i++) {
        PyObject *const *kept = self->at_hand[i].parts;
        const Written *written = &self->at_hand[i].written;
        if (kept[0] == parts[0] && kept[1] == parts[1] && kept[2] == stream && kept[3] == parts[3] &&
            (stream || written->is_given == (handle != NULL)) && (!handle || written->stream == *handle))
            return self->at_hand[i].found;
    }
    return NULL;
}

/* Fills the place of what is at hand, with nothing too. */
static void put_at_hand(Configurations *self, int at, Launcher *launcher, PyObject *key, int with_stream) {
    Launcher *before = self->at_hand[at].found;
    self->at_hand[at].found = (Launcher *)Py_XNewRef((PyObject *)launcher);
    for (int i = 0; i < PARTS; i++) {
        PyObject *part = key && i < PyTuple_Size(key) && (i != 2 || with_stream) ? PyTuple_GetItem(key, i) : NULL;
        Py_XDECREF(self->at_hand[at].parts[i]);
        self->at_hand[at].parts[i] = Py_XNewRef(part);
    }
    Py_XDECREF((PyObject *)before); /* last: it may run other code */
}

static void keep_at_hand(Configurations *self, const Written *written, PyObject *launcher, PyObject *key, int with_stream) {
#ifndef Py_GIL_DISABLED
    if (Py_TYPE(launcher) != launcher_type)
        return;
    int at = (int)(self->count++ % MOST_WRITTEN);
    self->at_hand[at].written = *written;
    put_at_hand(self, at, (Launcher *)launcher, key, with_stream);
#else
    (void)self, (void)written, (void)launcher, (void)key, (void)with_stream;
#endif
}

/* The launcher that the dict has for the handle of a stream. */
static PyObject *kept_for_handle(const Configurations *self, PyObject *key, PyObject *handle) {
    PyObject *none = NULL, *shared = PyTuple_Size(key) == 4 ? PyTuple_GetItem(key, 3) : (none = PyLong_FromLong(0));
    PyObject *plain = shared ? PyTuple_Pack(4, PyTuple_GetItem(key, 0), PyTuple_GetItem(key, 1), handle, shared) : NULL;
    PyObject *found = plain ? kept(self->launchers, plain) : NULL;
    Py_XDECREF(none);
    Py_XDECREF(plain);
    return found;
}

/* For a stream object: a launcher like the one for its handle, which keeps the object alive. */
static PyObject *configurations_held(Configurations *self, PyObject *key, PyObject *const parts[PARTS]) {
    Written written;
    PyObject *stream = parts[2], *handle = handle_of(stream), *object, *held = NULL;
    if (!handle) {
        if (!PyErr_Occurred())
            PyErr_SetObject(PyExc_KeyError, key);
        return NULL;
    }
    uint64_t number = PyLong_AsUnsignedLongLong(handle);
    int is_plain = !(number == (uint64_t)-1 && PyErr_Occurred()); /* else none of a stream's */
    PyErr_Clear();
    Launcher *ready = is_plain ? at_hand_as_written(self, parts, &number) : NULL;
    if (!ready && is_plain && (is_plain = read_written(key, &written, &object))) {
        written.stream = number;
        ready = at_hand(self, &written);
    }
    PyObject *found = ready ? Py_NewRef((PyObject *)ready) : kept_for_handle(self, key, handle);
    Py_DECREF(handle);
    if (found && Py_TYPE(found) == launcher_type) {
        if (is_plain && !ready)
            keep_at_hand(self, &written, found, key, 0);
        held = held_launcher(itself(found), stream);
    } else if (found) {
        PyErr_SetObject(PyExc_KeyError, key);
    }
    Py_XDECREF(found);
    return held;
}

static PyObject *configurations_subscript(Configurations *self, PyObject *key) {
    Written written;
    PyObject *object, *parts[PARTS];
    int is_plain = 0;
    if (read_parts(key, parts)) {
        if (parts[2] && parts[2] != Py_None && !PyLong_Check(parts[2]))
            return configurations_held(self, key, parts);
        Launcher *ready = at_hand_as_written(self, parts, NULL);
        if (!ready && (is_plain = read_written(key, &written, &object)))
            ready = at_hand(self, &written);
        if (ready)
            return Py_NewRef((PyObject *)ready);
    }
    PyObject *found = kept(self->launchers, key);
    if (found && is_plain)
        keep_at_hand(self, &written, found, key, 1);
    return found;
}

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

/* Drops the launchers, those at hand too: the images that they were made for are out of use. */
static PyObject *configurations_empty(Configurations *self, PyObject *unused) {
    (void)unused;
    PyDict_Clear(self->launchers);
    for (int i = 0; i < MOST_WRITTEN; i++)
        put_at_hand(self, i, NULL, NULL, 0);
    Py_RETURN_NONE;
}

static int configurations_traverse(Configurations *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->launchers);
    for (int i = 0; i < MOST_WRITTEN; i++)
        Py_VISIT(self->at_hand[i].found); /* the rest refers to nothing */
    return 0;
}

static int configurations_clear(Configurations *self) {
    PyObject *launchers = self->launchers;
    self->launchers = PyDict_New();
    Py_XDECREF(launchers);
    for (int i = 0; i < MOST_WRITTEN; i++)
        put_at_hand(self, i, NULL, NULL, 0);
    return 0;
}

static void configurations_dealloc(Configurations *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->launchers);
    for (int i = 0; i < MOST_WRITTEN; i++)
        put_at_hand(self, i, NULL, NULL, 0);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *launcher_getattro(PyObject *self, PyObject *name) {
    PyObject *value = PyObject_GenericGetAttr(self, name);
    if (value || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return value;
    PyErr_Clear();
    return PyObject_GetAttr(itself(self)->slow, name);
}

static PyObject *launcher_records(PyObject *self, void *unused) {
    (void)unused;
    return Py_NewRef((PyObject *)itself(self)->records);
}

static PyObject *launcher_repr(PyObject *self) { return PyObject_Repr(itself(self)->slow); }

static int launcher_traverse(Launcher *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->like);
    Py_VISIT(self->owner);
    Py_VISIT(self->slow);
    return 0;
}

/* The launcher that another one is like stays: it clears what it refers to by itself. */
static int launcher_clear(Launcher *self) {
    PyObject *slow = self->slow;
    self->slow = Py_NewRef(Py_None);
    Py_XDECREF(slow);
    Py_CLEAR(self->owner);
    return 0;
}

static void launcher_dealloc(Launcher *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
#ifdef Py_GIL_DISABLED
    int may_stay = 0;
#else
    int may_stay = self->like != NULL;
#endif
    PyObject_GC_UnTrack(self);
    Py_CLEAR(self->like);
    Py_CLEAR(self->owner);
    Py_CLEAR(self->slow);
    Py_XDECREF(self->attributes);
    Py_XDECREF(self->names); /* of strings, and numbers or itself in `defaults`: neither needs the garbage collector */
    Py_XDECREF(self->defaults);
    Py_XDECREF(self->pointers);
    Py_XDECREF((PyObject *)self->records);
    if (may_stay && !spare_launcher)
        spare_launcher = self;
    else
        PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* -------------------------------------------------------------------------------------------------------------- module */

static PyObject *set_source(SHARED(const Source *) *place, Source source) {
    const Source *now = READ(*place);
    if (source.object == Py_None) {
        WRITE(*place, NULL);
    } else if (!now || now->object != source.object || now->on_gpu != source.on_gpu || now->tells_others != source.tells_others) {
        Source *made = PyMem_Malloc(sizeof(Source));
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
    PyObject *in_c, *on_gpu, *contiguous;
    Source source = {NULL};
    if (!PyArg_ParseTuple(args, "O!OOOp", &PyUnicode_Type, &contiguous, &in_c, &on_gpu, &source.object, &source.tells_others))
        return NULL;
    if (!s_c_contiguous)
        s_c_contiguous = Py_NewRef(contiguous);
    if (PyCapsule_IsValid(in_c, "intptr_t (void)")) { /* as Cython names them */
        source.object = in_c;
        source.function = (intptr_t (*)(void))PyCapsule_GetPointer(in_c, "intptr_t (void)");
    }
    if (PyCapsule_IsValid(on_gpu, "intptr_t (int)"))
        source.on_gpu = (intptr_t (*)(int))PyCapsule_GetPointer(on_gpu, "intptr_t (int)");
    return set_source(&cupy_source, source);
}

static PyObject *set_torch_stream(PyObject *module, PyObject *object) {
    (void)module;
    return set_source(&torch_source, (Source){.object = object, .tells_others = 1});
}

static PyObject *disable(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    WRITE(disabled, 1);
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------------------------------------------------------ XLA */

#include "xla_ffi.h"

static PyMethodDef records_methods[] = {
    {"learn", (PyCFunction)records_learn, METH_VARARGS,
     "learn(args, kinds, plans, live, device, launch, current, attribute, stream_context, rare, flights,\n"
     "limits, element) -> bool\n\n"
     "Remember for arguments like these which plans to try, as pairs of a Plan and its kernel's handle. False, and nothing\n"
     "is remembered, if an argument is not what all of the plans take; element(dtype) names an array's elements."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot records_slots[] = {
    {Py_tp_doc, "Records(): what the launchers of one kernel have learnt."},
    {Py_tp_new, records_new},
    {Py_tp_dealloc, records_dealloc},
    {Py_tp_methods, records_methods},
    {0, NULL},
};

static PyType_Spec records_spec = {"aotcuda.runtime.fast._launch.Records", sizeof(Records), 0, Py_TPFLAGS_DEFAULT,
                                   records_slots};

static PyMemberDef launcher_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Launcher, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* What the launcher in Python that is behind this one says of being pickled. */
static PyObject *launcher_reduce(PyObject *self, PyObject *none) {
    (void)none;
    return PyObject_CallMethod(itself(self)->slow, "__reduce__", NULL);
}

/* It is a value of this process: so that what keeps one can be copied, a copy is the launcher itself. */
static PyObject *launcher_copy(PyObject *self, PyObject *memo) {
    (void)memo;
    return Py_NewRef(self);
}

static PyMethodDef launcher_methods[] = {
    {"__copy__", (PyCFunction)launcher_copy, METH_NOARGS, "Itself."},
    {"__deepcopy__", (PyCFunction)launcher_copy, METH_O, "Itself."},
    {"__reduce__", (PyCFunction)launcher_reduce, METH_NOARGS, "As of the launcher behind it."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef launcher_attributes[] = {
    {"records", (getter)launcher_records, NULL, "What it looks arguments up in, and has to learn into.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#ifndef Py_TPFLAGS_HAVE_VECTORCALL /* the stable ABI names it from 3.12 on */
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#endif

static PyType_Slot launcher_slots[] = {
    /* What it is made of, (slow, records, (grid x, y, z, block x, y, z, shared), stream, attributes), is for who makes it. */
    {Py_tp_doc, "A kernel with a launch configuration; call it with the kernel's arguments."},
    {Py_tp_new, launcher_new},
    {Py_tp_call, launcher_call},
    {Py_tp_getattro, launcher_getattro},
    {Py_tp_methods, launcher_methods},
    {Py_tp_getset, launcher_attributes},
    {Py_tp_members, launcher_members},
    {Py_tp_repr, launcher_repr},
    {Py_tp_traverse, launcher_traverse},
    {Py_tp_clear, launcher_clear},
    {Py_tp_dealloc, launcher_dealloc},
    {0, NULL},
};

static PyType_Spec launcher_spec = {"aotcuda.runtime.fast._launch.Launcher", sizeof(Launcher), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, launcher_slots};

static PyMethodDef configurations_methods[] = {
    {"clear", (PyCFunction)configurations_empty, METH_NOARGS, "Drop all launchers."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot configurations_slots[] = {
    {Py_tp_doc, "Configurations(launchers): a dict of launchers, which finds those for stream objects by their handles."},
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

static PyType_Slot plan_slots[] = {
    {Py_tp_doc, "Plan(size, parameters): how the arguments of one overload lie in its parameter block. A parameter is "
                "(kind, format, offset, layout, ndim, itemsize, writable, words, dtype[, sizes])."},
    {Py_tp_new, plan_new},
    {Py_tp_dealloc, plan_dealloc},
    {0, NULL},
};

static PyType_Spec plan_spec = {"aotcuda.runtime.fast._launch.Plan", sizeof(Plan), 0, Py_TPFLAGS_DEFAULT, plan_slots};

static PyMethodDef methods[] = {
    {"set_cupy", set_cupy, METH_VARARGS,
     "set_cupy(contiguous, in_c, on_gpu, in_python, tells_others)\n\n"
     "The attribute by which CuPy's arrays say that they are C-contiguous.\n"
     "Where CuPy tells its current stream: its C functions in capsules, if it has them, the second of which takes a GPU's\n"
     "ordinal; its Python function; and whether launches on other streams have to wait for that one."},
    {"set_torch_stream", set_torch_stream, METH_O,
     "PyTorch's function from a GPU's ordinal to the handle of its current stream, or None."},
    {"hold", hold, METH_VARARGS, "hold(launcher, stream) -> Launcher: one like it, which keeps the stream alive."},
    {"know_stream_type", know_stream_type, METH_VARARGS,
     "know_stream_type(type, attribute, is_protocol)\n\n"
     "Streams of this type tell their handle by an attribute, or by a method after the protocol __cuda_stream__."},
    {"disable", disable, METH_NOARGS, "Let every launch go the other way from now on: the process has forked."},
    {"xla_prepare", xla_prepare, METH_VARARGS,
     "xla_prepare(where, identity, launch, stream_context, push, pop, kernel, (grid x, y, z, block x, y, z, shared),\n"
     "flights, retired, pinned, args, results, block, holes, starts) -> int\n\n"
     "Note a launch for XLA's programs, which name it by the number returned. A hole is four 32-bit integers: the offset of\n"
     "an address, whether it is a result's, which one, and what must divide it. Nothing is freed: ask once for each launch."},
    {"xla_handlers", xla_handlers, METH_NOARGS,
     "xla_handlers() -> (capsule, capsule, capsule): the handlers of XLA's FFI that launch, that launch what is pinned, and\n"
     "that refuse to on other devices."},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module) {
    static const struct {
        PyObject **place;
        const char *text;
    } names[] = {{&s_dtype, "dtype"}, {&s_ndim, "ndim"}, {&s_data, "data"},
                 {&s_ptr, "ptr"}, {&s_shape, "shape"}, {&s_strides, "strides"}, {&s_is_cuda, "is_cuda"},
                 {&s_is_conj, "is_conj"}, {&s_is_contiguous, "is_contiguous"}, {&s_storage_offset, "storage_offset"},
                 {&s_element_size, "element_size"},
                 
                 {&s_data_ptr, "data_ptr"}, {&s_stride, "stride"},
                 {&s_get_device, "get_device"}, {&s_interface, "__cuda_array_interface__"}, {&s_typestr, "typestr"},
                 {&s_stream, "stream"}, {&s_mask, "mask"}, {&s_fail, "fail"}, {&s_exchange, "__dlpack_c_exchange_api__"},
                 {&s_gpu_data, "gpu_data"}, {&s_device_pointer, "device_pointer"}, {&s_device_id, "device_id"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!*names[i].place && !(*names[i].place = PyUnicode_InternFromString(names[i].text)))
            return -1;
    if (!plan_type && !(plan_type = (PyTypeObject *)PyType_FromSpec(&plan_spec)))
        return -1;
    if (!records_type && !(records_type = (PyTypeObject *)PyType_FromSpec(&records_spec)))
        return -1;
    if (!launcher_type && !(launcher_type = (PyTypeObject *)PyType_FromSpec(&launcher_spec)))
        return -1;
    if (!configurations_type && !(configurations_type = (PyTypeObject *)PyType_FromSpec(&configurations_spec)))
        return -1;
    return PyModule_AddObjectRef(module, "Plan", (PyObject *)plan_type) ||
           PyModule_AddObjectRef(module, "Configurations", (PyObject *)configurations_type) ||
           PyModule_AddObjectRef(module, "Records", (PyObject *)records_type) ||
           PyModule_AddObjectRef(module, "Launcher", (PyObject *)launcher_type) ||
           PyModule_AddIntConstant(module, "MOST_ARGUMENTS", MOST_ARGUMENTS) ||
           PyModule_AddIntConstant(module, "VERSION", 21) ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, execute},
#ifdef Py_MOD_GIL_NOT_USED /* headers of 3.15 name the slot for every stable ABI, and what goes into it from 3.13's on */
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "aotcuda.runtime.fast._launch", .m_doc = "aotcuda's launch, compiled.",
    .m_methods = methods, .m_slots = module_slots};

PyMODINIT_FUNC PyInit__launch(void) { return PyModuleDef_Init(&definition); }
