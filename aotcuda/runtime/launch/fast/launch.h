/* The fast path of a launch in C: the extension aotcuda.runtime.launch.fast._launch. Read this introduction before the code.
 *
 * BEHAVIOUR. The general path in Python (aotcuda/runtime/launch/execute.py) defines a launch, and the folder `arguments` defines
 * how each argument is read and packed. The fast path does the same for the arguments that it can read, or it declines: then it
 * has launched nothing, and the general path launches or raises the error. The fast path itself raises no errors. It never
 * tries the next overload unless the general path does. REASONS lists why it declines.
 *
 * SPECIALIZATIONS. After a launch by the general path, Python calls Specializations.add() with the arguments, the overloads
 * that accept arguments of these types, and their kernels. The fast path reads the arguments again, and adds a specialization if
 * the overloads accept them. Arguments that no launch has accepted add nothing.
 *
 * A LAUNCH (launcher.c). One call has these steps, and any of them may decline:
 *   1. Find the argument types in the table.
 *   2. Read the arrays into views: element type, address, shape, strides, stream (arrays.c, streams.c). Read the numbers.
 *   3. Find the specialization by a key: argument types, context, element types, numbers of dimensions, and a code for each
 *      argument that distinguishes overloads.
 *   4. Compare the launch configuration with the limits. With several GPUs, check the GPU of the arrays and the stream.
 *   5. Pack the parameter block of the first overload that accepts the arguments (block.c).
 *   6. Make the launch's stream wait for the streams of the data, call cuLaunchKernel, and let streams wait for the launch.
 *
 * THE DATA. An arrow means "has":
 *
 *   Launcher        a kernel with a launch configuration; users call it
 *     -> Specializations    shared by all launchers of a kernel, for one set of loaded images
 *          -> Table             two hash tables; replaced as a whole when it is full
 *               -> ArgumentTypes     the types of all arguments, a Reader for each argument, Coders
 *               -> Specialization    element types, codes, limits
 *                    -> Candidate         an overload: its kernel and its ArgumentLayout
 *                         -> ArgumentLayout    where each argument goes in the parameter block
 *
 * THREADS. Specializations are immutable. Entries are added to a table by one write each and never removed, and a larger table
 * replaces it when it is half full, so that threads of a Python without the GIL read it without a lock. Replaced tables live
 * until their Specializations object dies, because a thread may be reading them. This also holds with the GIL, because reading
 * an argument can run Python code, which lets other threads run.
 *
 * UNLOADING. Each specialization has `live`, a Python list that the unload empties, and `in_flight`, counters of launches
 * in progress. A launch increments a counter and then checks `live`; the unload empties `live` and then waits for the counters.
 * Either the unload waits for this launch, or this launch declines. No Python code runs in between.
 *
 * FILES: arrays.c reads arrays. streams.c knows the streams of the data and orders them. block.c packs parameter blocks.
 * specializations.c adds and finds specializations. launcher.c launches.
 * xla.c launches inside programs that XLA compiled. module.c makes the module.
 */
#ifndef AOTCUDA_LAUNCH_H
#define AOTCUDA_LAUNCH_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdint.h>
#include <string.h>

#if defined(Py_LIMITED_API) && !defined(PyArg_ParseTuple) /* before 3.13, only this function accepts # */
PyAPI_FUNC(int) _PyArg_ParseTuple_SizeT(PyObject *, const char *, ...);
#define PyArg_ParseTuple _PyArg_ParseTuple_SizeT
#endif
#ifdef Py_LIMITED_API /* headers of 3.12 do not count references to these objects, and older Pythons would free them */
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

#ifndef Py_TPFLAGS_HAVE_VECTORCALL /* the stable ABI names it from 3.12 on */
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#endif

#ifdef _WIN32 /* for MSVC, which lacks the GCC builtins; GCC for Windows uses the same code, so that tests cover it */
#include <intrin.h>
#include <malloc.h>
#define __atomic_load_n(place, order) _InterlockedExchangeAdd((volatile long *)(place), 0)
#define __atomic_store_n(place, value, order) _InterlockedExchange((volatile long *)(place), value)
#define __atomic_fetch_add(place, number, order) _InterlockedExchangeAdd((volatile long *)(place), number)
#define __atomic_fetch_sub(place, number, order) _InterlockedExchangeAdd((volatile long *)(place), -(long)(number))
#define ON_STACK(type, name, count) type *name = _alloca((count) * sizeof(type))
#ifdef _MSC_VER
#define _Thread_local __declspec(thread)
#endif
#else /* a DLL exports nothing by default */
#define ON_STACK(type, name, count) type name[count]
#pragma GCC visibility push(hidden)
#endif

enum { LARGEST_BLOCK = 1024 }; /* of a block on any GPU, as in launch_config.py */
enum { MOST_ARGUMENTS = 64, MOST_ARRAYS = 32, MOST_DIMENSIONS = 8, MOST_BYTES = 4096 };

/* ---------------------------------------------------------------------------------------------- reasons to decline */

/* All reasons for which C leaves something to Python. declines() counts them, and tests/unit/test_declines.py meets each. */
#define REASONS(REASON)                                                                                                     \
    /* of a configuration, which Python then reads: */                                                                       \
    REASON(CONFIGURATION) /* a grid, block or size is no int that C reads, or out of range; only Python reads the stream */  \
    /* of a launch, in the order of its steps: */                                                                            \
    REASON(NAMES)      /* arguments are named, or omitted, and C does not put them in order */                               \
    REASON(FORKED)     /* the process forked after CUDA was started */                                                       \
    REASON(DEPTH)      /* launches inside readings of arguments are nested too deep */                                       \
    REASON(TYPES)      /* there is no specialization for arguments of these types */                                         \
    REASON(ARRAY)      /* only Python reads an array */                                                                      \
    REASON(NUMBER)     /* only Python reads an argument that is no array */                                                  \
    REASON(STREAMS)    /* the data is on too many streams */                                                                 \
    REASON(CONTEXT)    /* the driver did not return the current context */                                                   \
    REASON(KEY)        /* there is no specialization for arguments of these element types, dimensions and codes */           \
    REASON(MISSED)     /* no overload of an exact kernel accepts arguments of this key; other code may serve them */         \
    REASON(GPU)        /* an array, or the stream, belongs to another GPU */                                                 \
    REASON(VALUES)     /* no overload accepts the values, or only Python compares them with the overloads */                 \
    REASON(ALIGNMENT)  /* an array is not aligned for its elements */                                                        \
    REASON(LIMITS)     /* the configuration is beyond the limits of the overloads, or another one than their block */        \
    REASON(UNLOADED)   /* the images were unloaded */                                                                        \
    REASON(CAPTURED)   /* streams have to wait, and one is captured into a graph, or there is no event */                    \
    REASON(ORDER)      /* the driver does not let the launch wait for a stream */                                            \
    /* of a specialization, which is then not added: */                                                                      \
    REASON(LAYOUT)     /* a parameter of an overload, its block, or its pairs of arrays are beyond the limits */             \
    REASON(CODER)      /* a coder is beyond the limits */                                                                    \
    REASON(COUNT)      /* there are too many arguments, arrays or coders */                                                  \
    REASON(CHANGED)    /* C does not read an argument, or the overloads do not accept it: it may have changed */             \
    REASON(PRESENT)    /* there is one for this key, with these limits; another thread may have added it */                  \
    REASON(ROOM)       /* there are too many */

#define NUMBER_OF_REASON(name) BECAUSE_##name,
enum { LAUNCHED, REASONS(NUMBER_OF_REASON) REASONS_END };
#undef NUMBER_OF_REASON

int declined(int reason);

/* ------------------------------------------------------------------------------------------------- the driver's functions */

/* The functions that the fast path calls, as use_driver() got them. A process has one driver. */
typedef struct {
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
    int (*launch_with_config)(const void *, void *, void **, void **); /* cuLaunchKernelEx */
    int (*current_context)(void **);
    int (*push_context)(void *);
    int (*pop_context)(void **);
    int (*pointer_attribute)(void *, int, uint64_t);
    int (*stream_context)(void *, void **);
    int (*is_capturing)(void *, int *);
    int (*wait_for_event)(void *, void *, unsigned);
    int (*create_event)(void **, unsigned);
    int (*record_event)(void *, void *);
    int (*destroy_event)(void *);
} Driver;

extern Driver driver;

/* Not 0 once the process has forked after CUDA was started: CUDA cannot be used in it. */
extern SHARED(int) fast_path_disabled;

/* ------------------------------------------------------------------------------------------------- how arguments are read */

/* Arrays: by the attributes of CuPy's own class, of a subclass of it, and of PyTorch's; by __cuda_array_interface__; by DLPack's
 * exchange API; by the attributes of Numba's. Numbers, from INT on: INT reads the value of an int, FLOAT the value of a float or
 * the result of __float__, COMPLEX the value of a complex, TRUTH the result of bool(), INDEX the result of __index__. CONSTANT
 * reads None or a string, which only compile-time constants accept; OBJECT another constant, identified by its address. */
enum { CUPY = 1, TORCH = 2, INTERFACE = 3, EXCHANGE = 4, NUMBA = 5, CUPY_SUBCLASS = 6 };
enum { INT = 16, FLOAT, COMPLEX, TRUTH, INDEX, CONSTANT, OBJECT };

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
} DLPackTensor;

typedef struct {
    struct {
        uint32_t major, minor;
    } version;
    void *previous;
    void *allocate, *export, *import;
    int (*read)(void *object, DLPackTensor *result);
    int (*current_stream)(int32_t device_type, int32_t device_id, void **result);
} DLPackExchange;

/* How one argument is read. */
typedef struct {
    const DLPackExchange *exchange; /* of a tensor's class; else NULL */
    unsigned char at, kind;         /* the argument's number, and one of the kinds above */
} Reader;

/* ------------------------------------------------------------------------------------------------------------------ views */

/* The numbers of an array that a kernel may take: four of the array, then three for each dimension, in the order of
 * ArrayView.numbers. WORD_* are Python's codes for them, to which the dimension is added. */
enum { WORD_ZERO = 0, WORD_ITEMS = 1, WORD_ITEMSIZE = 2, WORD_DATA = 3, WORD_SHAPE = 16, WORD_STRIDE = 32, WORD_STEP = 48 };
enum { FIRST_DIMENSION = 4, PER_DIMENSION = 3, NUMBERS = FIRST_DIMENSION + MOST_DIMENSIONS * PER_DIMENSION };

typedef struct {
    int64_t extent, stride, step; /* strides in bytes, and in elements */
} Dimension;

/* An array as its library describes it. normalize() computes `items`, `itemsize` and missing numbers of the dimensions. */
typedef struct {
    uint64_t element; /* identifies the element type within the array's library; 0 for none */
    int device;       /* the ordinal of the GPU that the library says it is on; -1: the driver knows it */
    int ndim, readonly, has_strides; /* without strides: C-contiguous */
    int in_elements;                 /* strides count elements, not bytes, until normalize() */
    union {
        int64_t numbers[NUMBERS];
        struct {
            int64_t zero, items, itemsize;
            uint64_t address;
            Dimension dimensions[MOST_DIMENSIONS];
        };
    };
} ArrayView;

/* A number, read once for a launch, whatever its overloads. */
typedef struct {
    int kind;         /* INT, FLOAT, COMPLEX, CONSTANT or OBJECT */
    int is_unsigned;  /* an INT beyond int64 */
    PyObject *object; /* the argument that it was read from */
    union {
        uint64_t bits; /* of an INT */
        struct {
            double real, imag; /* of the others */
        };
    };
} Number;

/* ---------------------------------------------------------------------------------------------------------------- streams */

/* A stream with data of the launch. The launch waits for it; if `mutual`, the stream also waits for the launch. */
typedef struct {
    uintptr_t stream;
    int mutual;
} DataStream;

enum { MOST_STREAMS = 4 };

/* The streams of one launch, filled in while its arrays are read. */
typedef struct {
    uintptr_t handle;  /* of the launch's stream, once it is known */
    uintptr_t stream;  /* the same, with 1 for the legacy default stream, whose handles are 0 and 1 */
    int is_known;      /* 0: the launch goes to the current stream of the library of the first array of PyTorch or CuPy */
    int any_stream;    /* data may be on any stream: nothing is launched, a specialization is added */
    int several_gpus;
    int too_many;      /* the data is on more streams than `waits_for` holds */
    int waits;         /* the number of streams in `waits_for` */
    int early_count;   /* the number of streams in `early_streams` */
    int cupy_is_read, torch_is_read; /* the library's current stream was read */
    const DLPackExchange *last_exchange;
    DataStream waits_for[MOST_STREAMS];
    DataStream early_streams[MOST_ARRAYS]; /* of arrays that were read before the launch's stream was known */
} LaunchStreams;

void begin_streams(LaunchStreams *streams, int is_given, void *stream, int several_gpus);
int set_launch_stream(LaunchStreams *streams, uintptr_t handle);
int add_data_stream(LaunchStreams *streams, uintptr_t stream, int mutual);
int add_cupy_stream(LaunchStreams *streams);
int add_torch_stream(LaunchStreams *streams, PyObject *tensor);
int add_exchange_stream(LaunchStreams *streams, const DLPackExchange *exchange, int32_t device_type, int32_t device);

/* ---------------------------------------------------------------------------------------------------------- argument layout */

enum { MOST_WORDS = 40, MOST_SIZES = 10, SIZE_BYTES = 9, MOST_STARTS = 128, MOST_PAIRS = 64, ANY_DIMENSIONS = 255 };

/* A number of an array that a kernel takes as a separate parameter. */
typedef struct {
    unsigned char number;  /* its place in ArrayView.numbers */
    char format;           /* of an integer, as the struct module names it */
    unsigned char bounded; /* it must not be negative */
    int divisor;           /* 1: it may be any */
    int offset;
} Size;

typedef struct {
    char kind;   /* s: scalar, c: complex, p: pointer, a: array, e: address of an array, k: constant */
    char format; /* of a scalar, or of a complex number's parts, as the struct module names it */
    char layout; /* of an array: C, F, A */
    unsigned char ndim, writable;
    unsigned char at;     /* its number among the parameters, which is the argument's */
    unsigned char bytes;  /* of an integer that is described by `low`, `high` and `mask` alone; else 0 */
    unsigned char is_int; /* of a constant: it is an int, `low` */
    unsigned char counts_elements; /* of an array: its kernel counts strides in elements */
    int offset;
    int itemsize;
    int misaligned;          /* of an array: the bits that addresses and strides of its elements lack */
    int64_t divisor;         /* of a number, or of an array's address; 1 for none */
    int64_t least, most;     /* the bounds that the signature promises; for none the bounds of int64 */
    int64_t low, high, mask; /* of an integer: all bounds, and bits that must not be set */
    PyObject *value;         /* of a constant; NULL for None */
    PyObject *dtype;         /* of an array: the element type, as arrays.element() in Python names it */
    int words_count, sizes_count;
    unsigned char words[MOST_WORDS]; /* of an array: places in ArrayView.numbers, in the order of the block */
    Size sizes[MOST_SIZES];
} Parameter;

/* Where the arguments of one overload go in its parameter block. */
typedef struct {
    PyObject_HEAD
    Parameter *parameters; /* constants, then numbers, then arrays, each in the order of the arguments */
    int size;              /* bytes of the block */
    int count, constants_count, numbers_count, arrays_count;
    int pairs_count;  /* of arrays that must not overlap, by their number among the arrays */
    int starts_count; /* 0: the driver gets the block; else a pointer to each of these places in it */
    int *starts;
    unsigned char pairs[MOST_PAIRS][2];
} ArgumentLayout;

extern PyTypeObject *argument_layout_type;
int is_array(const Parameter *parameter);
const Parameter *parameter_of(const ArgumentLayout *layout, int at);
int takes_kind(const Parameter *parameter, int kind);
int normalize(ArrayView *view, int itemsize, int address_alone);
int read_number(int kind, PyObject *value, Number *number);
int is_multiple(int64_t value, int64_t divisor, int is_unsigned);
enum { REFUSED = 0, ACCEPTED = 1, MISALIGNED = -1 }; /* the general path raises the error of a misaligned array */
int fill_block(const ArgumentLayout *layout, const Number *numbers, ArrayView *views, unsigned char *block);
int are_apart(const ArgumentLayout *layout, const ArrayView *views);

/* --------------------------------------------------------------------------------------------------------- specializations */

enum { MOST_TESTS = 4 };

/* The code of one argument in the key of a specialization, in addition to its type, as Coder in aotcuda/runtime/launch/arguments/keys.py:
 * a bit for each test of a number or an address, the type that Triton gives an int, or a constant's value. */
typedef struct {
    int at, array;     /* the argument's number; its number among the arrays, -1 for no array */
    int any_dimensions; /* of an array: the number of its dimensions is not in the key */
    int has_type, is_value;
    int tests_count;
    struct {
        int is_equal;   /* equal to `number`; else a multiple of it */
        int64_t number;
    } tests[MOST_TESTS];
} Coder;

/* The types of a launch's arguments, and how each argument is read. */
typedef struct ArgumentTypes {
    int count, arrays_count, numbers_count, coders_count;
    PyTypeObject **types;
    Reader *readers; /* of the arrays, then of the numbers, each in the order of the arguments */
    Coder *coders;
    unsigned char any_dimensions[MOST_ARRAYS]; /* as the coders have it */
    uint64_t hash;
    struct ArgumentTypes *next; /* of all that the Specializations object has */
} ArgumentTypes;

/* The key of a launch, by which it finds its specialization. */
typedef struct {
    const ArgumentTypes *types;
    void *context;
    const ArrayView *views;
    PyObject *attributes; /* of the launch; NULL for none */
    const unsigned *only; /* with attributes: block x, y, z and dynamic shared memory of the launch */
    uint64_t codes[MOST_ARGUMENTS]; /* as many as the types have coders */
    uint64_t hash;
} Key;

enum { LIMITS = 9 }; /* grid x, y, z, block x, y, z, dynamic shared memory, threads of a block, blocks of the grid */

/* An overload that may accept the arguments, and its kernel. */
typedef struct {
    ArgumentLayout *layout;
    void *kernel;
    unsigned block[3];        /* the only block that a launch may have; 0 for any */
    unsigned best;            /* of launches by number of elements: the block of most occupancy; else 0 */
    unsigned threads, shared; /* fixed values of a kernel whose users give only the grid; 0 threads if users give the block */
    PyObject *attributes;     /* bytes: an array of CUlaunchAttribute; NULL for none */
} Candidate;

/* The type of an array that all candidates accept. */
typedef struct {
    uint64_t element;
    int itemsize, ndim, address_alone;
} ArrayType;

typedef struct Specialization {
    const ArgumentTypes *types;
    void *context;  /* the CUDA context that it is for; NULL: for any */
    PyObject *live; /* a list, empty once the images are not loaded any more */
    SHARED(unsigned long long) *served; /* the number of its launches and of those of its kind; NULL: they are not counted */
    PyObject *counts;            /* the owner of `served` */
    SHARED(unsigned) *in_flight; /* the counters of `live`, ValidityFlag.flights in aotcuda/runtime/driver.py */
    unsigned limits[LIMITS];
    PyObject *attributes; /* bytes: of the launches that it is for, an array of CUlaunchAttribute; NULL for none. Launches by number
                           * of elements have specializations of their own, with empty bytes. */
    unsigned only[4];     /* with attributes: the only block and dynamic shared memory, which were checked with them; of launches by
                           * number of elements, the block is 0 */
    Candidate *candidates;
    int candidates_count, most_bytes; /* of the candidates' blocks */
    int arrays_count;
    ArrayType *arrays;
    int device; /* with several GPUs the GPU of the context; -1 with one GPU, where the arrays' GPU is not checked */
    SHARED(void *) event;        /* for the next launch that orders streams; NULL if it is in use or does not exist yet */
    PyObject *references; /* to the objects whose addresses identify element types and constants */
    uint64_t hash, *codes;       /* of its key */
    struct Specialization *next; /* of all that the Specializations object ever had */
} Specialization;

/* Limits of a Specializations object. Replaced specializations live as long as the object, so their number must be bounded for
 * programs that load images again and again. Kernels with variants may need one for each variant. */
enum { MOST_SPECIALIZATIONS = 1 << 10, MOST_SPECIALIZATIONS_OF_VARIANTS = 1 << 14, MOST_TYPES = 256 };

/* Two hash tables with linear probing; at least half of the places of each are empty. */
typedef struct Table {
    SHARED(const Specialization *) last; /* the last one in use */
    SHARED(int) needs_context;           /* keys have the current context */
    struct Table *previous;
    unsigned size;                       /* places of each of the two: a power of two */
    unsigned types_count, count;         /* read and written under the object's lock alone */
    SHARED(const ArgumentTypes *) *types;
    SHARED(const Specialization *) specializations[];
} Table;

typedef struct {
    PyObject_HEAD
    SHARED(Table *) table;
    Specialization *all;      /* read and written under the object's lock alone, like the members below */
    ArgumentTypes *all_types;
    int all_count;            /* the number of specializations in `all` */
} Specializations;

extern PyTypeObject *specializations_type;
void set_cupy_classes(PyObject *array, PyObject *pointer, PyObject *contiguous);
int read_arrays(const ArgumentTypes *types, PyObject *const *args, ArrayView *views, LaunchStreams *streams);
PyObject *element_of(int kind, PyObject *array, const ArrayView *view);
const DLPackExchange *exchange_of(PyTypeObject *type);
const ArgumentTypes *find_types(const Table *table, PyObject *const *args, Py_ssize_t count);
void make_key(Key *key, const ArgumentTypes *types, void *context, const ArrayView *views, const Number *numbers, PyObject *attributes,
              const unsigned *only);
const Specialization *find_specialization(Table *table, const Key *key);
int read_argument_numbers(const ArgumentTypes *types, PyObject *const *args, Number *numbers);
int begin_launch(const Specialization *specialization);
void end_launch(const Specialization *specialization);
int may_order(const LaunchStreams *streams);
void *take_event(Specialization *specialization);
void give_event(Specialization *specialization, void *event, int works);
int order(void *event, uintptr_t before, uintptr_t after);

/* ---------------------------------------------------------------------------------------------------------------- launchers */

typedef PyObject *(*Vectorcall)(PyObject *, PyObject *const *, size_t, PyObject *);

/* An argument that is computed from another one: COPIED is the value of the named argument `source`; IS_NONE and IS_NOT_NONE are
 * True if `source` is None, or is not None. */
enum { COPIED = 0, IS_NONE = 1, IS_NOT_NONE = 2 };
typedef struct {
    unsigned char at, source, way;
} Derived;

/* A launcher for a stream object has a `base`, the launcher for the stream's handle, and keeps the object alive. A launcher whose
 * grid a function returns has a `base`, the launcher of another grid, the function, and the kernel. Their other members are
 * empty. A launcher that configured() or for_all() made has the kernel and what users wrote; its `general` is made when a launch
 * needs it. */
typedef struct Launcher {
    PyObject_HEAD
    Vectorcall vectorcall;
    struct Launcher *base;
    PyObject *stream_object;
    PyObject *function, *kernel, *configuration;
    PyObject *owner;       /* the launcher that made this one, and has `derived`; NULL if this one has it */
    SHARED(PyObject *) general; /* the launcher in Python, which takes the general path; NULL if it is not made yet */
    Specializations *specializations;
    unsigned dimensions[LIMITS];
    int is_for_all;      /* for_all() made it */
    int is_stream_given; /* 0: each launch goes to the current stream */
    void *stream;
    uint64_t elements;    /* the launch covers so many, by blocks of most occupancy; 0: `dimensions` are those of the launch */
    PyObject *attributes; /* bytes: an array of CUlaunchAttribute; NULL for none; with `elements`, empty */
    PyObject *names;      /* of all arguments in order, interned, where calls may name them; else NULL */
    PyObject *defaults;   /* of omitted arguments; `names` itself for a required one */
    int positional;       /* the number of arguments that may be given by position */
    int derived_count;
    Derived *derived;
} Launcher;

/* The first members of each callable object of the extension. */
typedef struct {
    PyObject_HEAD
    Vectorcall vectorcall;
} Vectorcallable;

extern PyTypeObject *launcher_type;
PyObject *call_by_vector(PyObject *object, PyObject *args, PyObject *keywords);

/* --------------------------------------------------------------------------------------------- small functions, and the module */

int clear_error(void);
int64_t as_number(PyObject *value);
uint64_t as_address(PyObject *value);
int64_t attribute_number(PyObject *object, PyObject *name);

int arrays_init(void);
int streams_init(void);
int block_init(PyObject *module);
int specializations_init(PyObject *module);
int launcher_init(PyObject *module);

extern PyMethodDef streams_functions[], launcher_functions[], xla_functions[];

#ifndef _WIN32
#pragma GCC visibility pop
#endif
#endif
