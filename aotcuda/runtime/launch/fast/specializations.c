/* Specializations: the cached launch plans of a kernel, by argument types. launch.h shows the data.
 *
 * Python calls add() after a launch (aotcuda/runtime/launch/specialize.py). It reads the arguments as a launch does, and compares them with the
 * overloads, because an argument may have changed since the launch.
 */
#include "launch.h"

PyTypeObject *specializations_type;

/* ------------------------------------------------------------------------------------------------------------ finding */

static uint64_t mixed(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

static uint64_t hash_of_types(PyObject *const *args, Py_ssize_t count) {
    uint64_t hash = (uint64_t)count;
    for (Py_ssize_t i = 0; i < count; i++)
        hash = mixed(hash, (uint64_t)(uintptr_t)Py_TYPE(args[i]));
    return hash;
}

static int types_match(const ArgumentTypes *types, PyObject *const *args, Py_ssize_t count) {
    if (types->count != count)
        return 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (Py_TYPE(args[i]) != types->types[i])
            return 0;
    return 1;
}

/* Return the types of these arguments; NULL if the table has no specialization for them. */
const ArgumentTypes *find_types(const Table *table, PyObject *const *args, Py_ssize_t count) {
    const ArgumentTypes *found = READ(((Table *)table)->last)->types;
    if (types_match(found, args, count))
        return found;
    for (uint64_t at = hash_of_types(args, count);; at++) {
        found = READ(table->types[at & (table->size - 1)]);
        if (!found || types_match(found, args, count))
            return found;
    }
}

/* Return the code of an argument for the key. */
static uint64_t code_of(const Coder *coder, const Number *number, const ArrayView *views) {
    uint64_t code = 0, value = coder->array >= 0 ? views[coder->array].address : number->bits;
    int is_unsigned = coder->array >= 0 || number->is_unsigned, is_int = coder->array >= 0 || number->kind == INT;
    if (coder->is_value && number->kind == CONSTANT)
        return number->object == Py_None ? 0 : (uint64_t)PyObject_Hash(number->object); /* of a string */
    if (coder->is_value && number->kind == OBJECT)
        return (uint64_t)(uintptr_t)number->object;
    if (coder->is_value) /* of a float its bits */
        return is_int && is_unsigned ? mixed(1, value) : value;
    for (int i = 0; i < coder->tests_count && is_int; i++) {
        int64_t wanted = coder->tests[i].number;
        int holds = coder->tests[i].is_equal ? !is_unsigned && (int64_t)value == wanted : is_multiple((int64_t)value, wanted, is_unsigned);
        code |= (uint64_t)holds << i;
    }
    if (coder->has_type && is_int)
        code |= (uint64_t)(is_unsigned ? 2 : (int64_t)value < INT32_MIN || (int64_t)value > INT32_MAX) << 8;
    return code;
}

/* Read the arguments that are not arrays; 0 if only the general path reads one of them. */
int read_argument_numbers(const ArgumentTypes *types, PyObject *const *args, Number *numbers) {
    const Reader *reader = types->readers + types->arrays_count;
    for (int i = 0; i < types->numbers_count; i++, reader++)
        if (!read_number(reader->kind, args[reader->at], &numbers[reader->at]))
            return 0;
    return 1;
}

/* Make the key of a launch from its views and numbers; `numbers` is indexed by argument. */
void make_key(Key *key, const ArgumentTypes *types, void *context, const ArrayView *views, const Number *numbers, PyObject *attributes,
              const unsigned *only) {
    uint64_t hash = mixed((uint64_t)(uintptr_t)types, (uint64_t)(uintptr_t)context);
    key->types = types;
    key->attributes = attributes;
    key->only = only;
    if (attributes) {
        hash = mixed(hash, (uint64_t)PyObject_Hash(attributes)); /* which the object keeps */
        for (int i = 0; i < 4; i++)
            hash = mixed(hash, only[i]);
    }
    key->context = context;
    key->views = views;
    for (int i = 0; i < types->arrays_count; i++)
        hash = mixed(hash, views[i].element + (types->any_dimensions[i] ? 0 : (uint64_t)views[i].ndim));
    for (int i = 0; i < types->coders_count; i++)
        hash = mixed(hash, key->codes[i] = code_of(&types->coders[i], &numbers[types->coders[i].at], views));
    key->hash = hash;
}

/* Return 1 if both have no attributes, or equal ones with the same block and shared memory. */
static int same_attributes(const Specialization *specialization, const Key *key) {
    PyObject *one = specialization->attributes, *other = key->attributes;
    if (!one || !other)
        return one == other;
    return memcmp(specialization->only, key->only, sizeof specialization->only) == 0 && PyBytes_Size(one) == PyBytes_Size(other) &&
           memcmp(PyBytes_AsString(one), PyBytes_AsString(other), (size_t)PyBytes_Size(one)) == 0;
}

static int is_for(const Specialization *specialization, const Key *key) {
    const ArgumentTypes *types = key->types;
    if ((specialization->attributes || key->attributes) && !same_attributes(specialization, key))
        return 0;
    if (specialization->hash != key->hash || specialization->types != types || specialization->context != key->context)
        return 0;
    for (int i = 0; i < types->arrays_count; i++)
        if (key->views[i].element != specialization->arrays[i].element ||
            (key->views[i].ndim != specialization->arrays[i].ndim && !types->any_dimensions[i]))
            return 0;
    return memcmp(key->codes, specialization->codes, (size_t)types->coders_count * sizeof *key->codes) == 0;
}

/* Return the specialization for a key; NULL if there is none. */
const Specialization *find_specialization(Table *table, const Key *key) {
    const Specialization *found = READ(table->last);
    if (is_for(found, key))
        return found;
    for (uint64_t at = key->hash;; at++) {
        found = READ(table->specializations[at & (table->size - 1)]);
        if (!found)
            return NULL;
        if (is_for(found, key)) {
            WRITE(table->last, found);
            return found;
        }
    }
}

/* ------------------------------------------------------------------------------------------------------- launches under way */

enum { CELLS = 16, CELL = 16 }; /* of ValidityFlag.flights in aotcuda/runtime/driver.py: a counter every 64 bytes, which is a cache line */

/* Return the counter for this thread. Without the GIL, threads rarely share one. */
static SHARED(unsigned) *counter_of(const Specialization *specialization) {
#ifdef Py_GIL_DISABLED
    static _Thread_local char here;
    uint64_t hash = (uint64_t)(uintptr_t)&here * 0x9E3779B97F4A7C15u;
    return &specialization->in_flight[CELL * ((hash ^ hash >> 29) % CELLS)];
#else
    return specialization->in_flight;
#endif
}

/* Count a launch in progress; 0 if the images were unloaded. No Python code may run until end_launch(). */
int begin_launch(const Specialization *specialization) {
    ADD(*counter_of(specialization), 1);
    if (PyList_Size(specialization->live) > 0)
        return 1;
    ADD(*counter_of(specialization), -1);
    return 0;
}

void end_launch(const Specialization *specialization) { ADD(*counter_of(specialization), -1); }

/* ------------------------------------------------------------------------------------------------------- making argument types */

static void free_types(const ArgumentTypes *types) {
    for (int i = 0; i < types->count; i++)
        Py_XDECREF((PyObject *)types->types[i]);
    PyMem_Free((void *)types);
}

/* Read Python's description of a coder; 0 and an error if it is not one. */
static int read_coder(Coder *coder, PyObject *described) {
    PyObject *tests;
    if (!PyArg_ParseTuple(described, "ipppO!;a coder", &coder->at, &coder->any_dimensions, &coder->has_type, &coder->is_value, &PyTuple_Type,
                          &tests))
        return 0;
    coder->tests_count = PyTuple_Size(tests) > MOST_TESTS ? MOST_TESTS + 1 : (int)PyTuple_Size(tests);
    for (int i = 0; i < coder->tests_count && i < MOST_TESTS; i++) {
        long long number;
        if (!PyArg_ParseTuple(PyTuple_GetItem(tests, i), "pL;a test", &coder->tests[i].is_equal, &number))
            return 0;
        coder->tests[i].number = number;
        if (!coder->tests[i].is_equal && number < 1)
            coder->tests_count = MOST_TESTS + 1;
    }
    if (coder->tests_count <= MOST_TESTS)
        return 1;
    PyErr_SetString(PyExc_ValueError, "only the general path supports this coder");
    return 0;
}

/* Return the types of arguments, to be read as `kinds` says; NULL and an error if that is impossible. */
static ArgumentTypes *make_types(PyObject *const *args, const char *kinds, Py_ssize_t count, PyObject *coders) {
    size_t coders_count = (size_t)PyTuple_Size(coders);
    ArgumentTypes *types = PyMem_Calloc(1, sizeof(ArgumentTypes) + coders_count * sizeof(Coder) + (size_t)count * (sizeof(PyTypeObject *) + sizeof(Reader)));
    if (!types) {
        PyErr_NoMemory();
        return NULL;
    }
    types->coders = (Coder *)(types + 1);
    types->readers = (Reader *)(types->coders + coders_count);
    types->types = (PyTypeObject **)(types->readers + count);
    types->count = (int)count;
    types->hash = hash_of_types(args, count);
    for (Py_ssize_t i = 0; i < count; i++)
        types->arrays_count += kinds[i] < INT;
    types->numbers_count = types->count - types->arrays_count;
    Reader *array = types->readers, *number = types->readers + types->arrays_count;
    for (Py_ssize_t i = 0; i < count; i++) {
        int kind = (unsigned char)kinds[i];
        types->types[i] = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(args[i]));
        const DLPackExchange *exchange = kind == EXCHANGE ? exchange_of(types->types[i]) : NULL;
        if (kind == EXCHANGE && !exchange)
            kind = TORCH;
        *(kind < INT ? array++ : number++) = (Reader){exchange, (unsigned char)i, (unsigned char)kind};
    }
    for (; types->coders_count < (int)coders_count; types->coders_count++) {
        Coder *coder = &types->coders[types->coders_count];
        int known = read_coder(coder, PyTuple_GetItem(coders, types->coders_count)) && coder->at >= 0 && coder->at < count;
        coder->array = known && kinds[coder->at] < INT ? 0 : -1;
        for (int i = 0; coder->array >= 0 && i < coder->at; i++)
            coder->array += kinds[i] < INT;
        if (!known) {
            declined(BECAUSE_CODER);
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a coder has no argument");
            free_types(types);
            return NULL;
        }
        if (coder->array >= 0)
            types->any_dimensions[coder->array] = (unsigned char)coder->any_dimensions;
    }
    return types;
}

/* Return 1 if both have the same coders. */
static int same_coders(const ArgumentTypes *one, const ArgumentTypes *other) {
    return one->coders_count == other->coders_count &&
           memcmp(one->coders, other->coders, (size_t)one->coders_count * sizeof *one->coders) == 0;
}

static int kind_of(const ArgumentTypes *types, int at) {
    const Reader *reader = types->readers;
    while (reader->at != at)
        reader++;
    return reader->kind;
}

/* ------------------------------------------------------------------------------------------------------ making a specialization */

/* Python's description of a specialization. */
typedef struct {
    PyObject *const *args;
    Py_ssize_t count;
    const char *kinds; /* how each argument is read */
    PyObject *candidates, *coders, *live, *element, *counts, *attributes;
    SHARED(unsigned long long) *served;
    int device, needs_context;
    SHARED(unsigned) *in_flight;
    unsigned limits[LIMITS], only[4];
} Description;

static void free_specialization(Specialization *specialization) {
    for (int i = 0; i < specialization->candidates_count; i++) {
        Py_XDECREF((PyObject *)specialization->candidates[i].layout);
        Py_XDECREF(specialization->candidates[i].attributes);
    }
    if (READ(specialization->event) && !READ(fast_path_disabled))
        driver.destroy_event(READ(specialization->event));
    Py_XDECREF(specialization->references);
    Py_XDECREF(specialization->live);
    Py_XDECREF(specialization->counts);
    Py_XDECREF(specialization->attributes);
    PyMem_Free(specialization->candidates);
    PyMem_Free(specialization);
}

/* Read the candidates: tuples of an ArgumentLayout, a kernel's handle, its only block or zeros, its block of most occupancy or 0, and perhaps threads of a block, shared memory and attributes. */
static int read_candidates(Specialization *specialization, PyObject *described, int arguments) {
    Py_ssize_t count = PyTuple_Size(described);
    specialization->candidates = PyMem_Calloc(count ? (size_t)count : 1, sizeof(Candidate));
    if (!specialization->candidates) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Candidate *candidate = &specialization->candidates[i];
        PyObject *object, *attributes = NULL;
        unsigned long long kernel;
        if (!PyArg_ParseTuple(PyTuple_GetItem(described, i), "O!K(III)I|IIS", argument_layout_type, &object, &kernel, &candidate->block[0],
                              &candidate->block[1], &candidate->block[2], &candidate->best, &candidate->threads,
                              &candidate->shared, &attributes))
            return 0;
        ArgumentLayout *layout = (ArgumentLayout *)object;
        if (layout->count != arguments) {
            PyErr_SetString(PyExc_ValueError, "a layout for another number of arguments");
            return 0;
        }
        candidate->layout = (ArgumentLayout *)Py_NewRef(object);
        candidate->kernel = (void *)(uintptr_t)kernel;
        candidate->attributes = attributes && PyBytes_Size(attributes) ? Py_NewRef(attributes) : NULL;
        if (layout->size > specialization->most_bytes)
            specialization->most_bytes = layout->size;
        specialization->candidates_count = (int)i + 1;
    }
    return 1;
}

/* Return 1 if all candidates accept the argument, an array with this view and element type if `view` is not NULL. */
static int all_take(Specialization *specialization, int at, int kind, const ArrayView *view, PyObject *element, ArrayType *array) {
    for (int i = 0; i < specialization->candidates_count; i++) {
        const ArgumentLayout *layout = specialization->candidates[i].layout;
        const Parameter *parameter = parameter_of(layout, at);
        if (!takes_kind(parameter, kind))
            return 0;
        if (!view)
            continue;
        if ((parameter->kind != 'e' && parameter->ndim != view->ndim && parameter->ndim != ANY_DIMENSIONS) ||
            PyUnicode_Compare(parameter->dtype, element) != 0 || (i && parameter->itemsize != array->itemsize))
            return 0;
        array->itemsize = parameter->itemsize;
        array->address_alone = (!i || array->address_alone) && parameter->kind == 'e' && !layout->pairs_count;
    }
    return 1;
}

/* Compare the arguments with the candidates. Return the objects whose addresses identify element types and constants; NULL if not all
 * candidates accept an argument, or on an error. */
static PyObject *verify(Specialization *specialization, PyObject *const *args, const ArrayView *views, PyObject *name_of) {
    const ArgumentTypes *types = specialization->types;
    PyObject *references = PyList_New(0);
    for (int at = 0, array = 0; references && at < types->count; at++) {
        int kind = kind_of(types, at), agree;
        if (kind >= INT) {
            agree = all_take(specialization, at, kind, NULL, NULL, NULL) && (kind != OBJECT || PyList_Append(references, args[at]) == 0);
        } else {
            PyObject *dtype = element_of(kind, args[at], &views[array]);
            PyObject *name = dtype ? PyObject_CallFunctionObjArgs(name_of, dtype, NULL) : NULL;
            agree = name && PyUnicode_Check(name) && PyList_Append(references, dtype) == 0 &&
                    all_take(specialization, at, kind, &views[array], name, &specialization->arrays[array]);
            array++;
            Py_XDECREF(dtype);
            Py_XDECREF(name);
        }
        if (!agree)
            Py_CLEAR(references);
    }
    return references;
}

/* Make a specialization and its key, without a lock, because reading arguments can run any code. Return NULL, perhaps without an error,
 * if the fast path does not support the arguments. */
static Specialization *make_specialization(const ArgumentTypes *types, const Description *description, ArrayView *views, Key *key) {
    LaunchStreams streams = {.any_stream = 1};
    Number numbers[MOST_ARGUMENTS];
    void *context = NULL;
    int arrays = read_arrays(types, description->args, views, &streams);
    if (arrays < 0 || !read_argument_numbers(types, description->args, numbers) ||
        (description->needs_context && driver.current_context(&context))) {
        (void)clear_error();
        return NULL;
    }
    make_key(key, types, context, views, numbers, description->attributes, description->only);
    Specialization *specialization = PyMem_Calloc(1, sizeof(Specialization) + (size_t)types->coders_count * sizeof *specialization->codes +
                                               (size_t)arrays * sizeof *specialization->arrays);
    if (!specialization) {
        PyErr_NoMemory();
        return NULL;
    }
    specialization->codes = (uint64_t *)(specialization + 1);
    specialization->arrays = (ArrayType *)(specialization->codes + types->coders_count);
    memcpy(specialization->codes, key->codes, (size_t)types->coders_count * sizeof *specialization->codes);
    specialization->hash = key->hash;
    specialization->types = types;
    specialization->context = context;
    specialization->live = Py_NewRef(description->live);
    specialization->in_flight = description->in_flight;
    specialization->counts = Py_NewRef(description->counts);
    specialization->served = description->served;
    memcpy(specialization->limits, description->limits, sizeof specialization->limits);
    specialization->attributes = Py_XNewRef(description->attributes);
    memcpy(specialization->only, description->only, sizeof specialization->only);
    specialization->device = description->device;
    specialization->arrays_count = arrays;
    for (int i = 0; i < arrays; i++) {
        specialization->arrays[i].element = views[i].element;
        specialization->arrays[i].ndim = views[i].ndim;
    }
    if (read_candidates(specialization, description->candidates, types->count)) {
        specialization->references = verify(specialization, description->args, views, description->element);
        if (specialization->references)
            return specialization;
        (void)clear_error(); /* an argument has changed, or the candidates do not accept it */
    }
    free_specialization(specialization);
    return NULL;
}

/* ---------------------------------------------------------------------------------------------------------------- the table */

enum { SMALLEST_TABLE = 8 };

/* Put a specialization into the table; it replaces the one with the same key, if there is one. */
static void put(Table *table, const Specialization *added, const Specialization *replaced) {
    uint64_t at = added->hash;
    const Specialization *found;
    while ((found = READ(table->specializations[at & (table->size - 1)])) && found != replaced)
        at++;
    table->count += !found;
    WRITE(table->specializations[at & (table->size - 1)], added);
}

static void put_types(Table *table, const ArgumentTypes *types) {
    uint64_t at = types->hash;
    const ArgumentTypes *found;
    while ((found = READ(table->types[at & (table->size - 1)])) && found != types)
        at++;
    table->types_count += !found;
    WRITE(table->types[at & (table->size - 1)], types);
}

/* Return a larger table with the specializations of another one, without those of unloaded images, which launchers may outlive. NULL and
 * an error if there is no memory. */
static Table *enlarge(Table *old) {
    unsigned live = 0, size = SMALLEST_TABLE;
    for (unsigned i = 0; old && i < old->size; i++) {
        const Specialization *each = READ(old->specializations[i]);
        live += each && PyList_Size(each->live) > 0;
    }
    while (size < 4 * (live + 1))
        size *= 2;
    Table *table = PyMem_Calloc(1, sizeof(Table) + size * (sizeof *table->specializations + sizeof *table->types));
    if (!table) {
        PyErr_NoMemory();
        return NULL;
    }
    table->size = size;
    table->types = (void *)(table->specializations + size);
    table->previous = old;
    for (unsigned i = 0; old && i < old->size; i++) {
        const Specialization *each = READ(old->specializations[i]);
        if (each && PyList_Size(each->live) > 0) {
            put(table, each, NULL);
            put_types(table, each->types);
        }
    }
    return table;
}

/* Return the equal types in a table; NULL if there are none. */
static const ArgumentTypes *same_types(const Table *table, const ArgumentTypes *types) {
    for (uint64_t at = types->hash;; at++) {
        const ArgumentTypes *found = READ(table->types[at & (table->size - 1)]);
        if (!found || (found->count == types->count &&
                       memcmp(found->types, types->types, (size_t)types->count * sizeof *types->types) == 0))
            return found;
    }
}

/* Put a specialization into the table, where all threads see it; otherwise return a reason, negative, or 0 and an error. The caller has the
 * object's lock, and no Python code may run in this function, because other threads could then run. */
static int insert(Specializations *self, Specialization *added, const Key *key, int needs_context) {
    Table *table = READ(self->table);
    const ArgumentTypes *known = table ? same_types(table, added->types) : NULL;
    const Specialization *replaced = table ? find_specialization(table, key) : NULL;
    if (self->all_count >= (added->types->coders_count ? MOST_SPECIALIZATIONS_OF_VARIANTS : MOST_SPECIALIZATIONS) ||
        (!known && table && table->types_count >= MOST_TYPES))
        return -BECAUSE_ROOM;
    if (known && known != added->types)
        return -BECAUSE_PRESENT; /* another thread has added these types meanwhile; the next launch adds the specialization */
    if (replaced && PyList_Size(replaced->live) > 0 && memcmp(replaced->limits, added->limits, sizeof added->limits) == 0)
        return -BECAUSE_PRESENT; /* it declined for another reason */
    int is_full = !table || 2 * (table->count + 1) > table->size || 2 * (table->types_count + 1) > table->size;
    if (is_full && !(table = enlarge(table)))
        return 0;
    put(table, added, is_full && replaced && PyList_Size(replaced->live) == 0 ? NULL : replaced);
    put_types(table, added->types);
    WRITE(table->needs_context, needs_context);
    WRITE(table->last, added);
    added->next = self->all;
    self->all = added;
    self->all_count++;
    WRITE(self->table, table);
    return 1;
}

/* ------------------------------------------------------------------------------------------------------------ the Python object */

static PyObject *add_described(Specializations *self, const Description *description) {
    Table *table = READ(self->table);
    const ArgumentTypes *known = table ? find_types(table, description->args, description->count) : NULL;
    ArgumentTypes *types = make_types(description->args, description->kinds, description->count, description->coders);
    if (!types)
        return NULL;
    if (known && !same_coders(known, types)) { /* there are other overloads by now */
        free_types(types);
        declined(BECAUSE_CHANGED);
        Py_RETURN_FALSE;
    }
    ArrayView views[MOST_ARRAYS];
    Key key;
    int added = 0;
    Specialization *specialization = make_specialization(known ? known : types, description, views, &key);
    if (specialization) {
        Py_BEGIN_CRITICAL_SECTION(self);
        added = insert(self, specialization, &key, description->needs_context);
        if (added > 0 && !known) {
            types->next = self->all_types;
            self->all_types = types;
        }
        Py_END_CRITICAL_SECTION();
    }
    if (specialization && added <= 0)
        free_specialization(specialization);
    if (known || added <= 0)
        free_types(types);
    if (PyErr_Occurred())
        return NULL;
    if (added <= 0)
        declined(added ? -added : BECAUSE_CHANGED);
    return PyBool_FromLong(added > 0);
}

static PyObject *specializations_add(Specializations *self, PyObject *arguments) {
    Description description;
    PyObject *args, *array[MOST_ARGUMENTS];
    Py_ssize_t kinds_count, arrays = 0;
    unsigned long long in_flight, served;
    unsigned *l = description.limits, *only = description.only;
    if (!PyArg_ParseTuple(arguments, "O!y#O!O!O!Kip(IIIIIIIII)OOKO(IIII)", &PyTuple_Type, &args, &description.kinds, &kinds_count, &PyTuple_Type,
                          &description.candidates, &PyTuple_Type, &description.coders, &PyList_Type, &description.live, &in_flight, &description.device,
                          &description.needs_context, &l[0], &l[1], &l[2], &l[3], &l[4], &l[5], &l[6], &l[7], &l[8],
                          &description.element, &description.counts, &served, &description.attributes, &only[0], &only[1], &only[2], &only[3]))
        return NULL;
    if (!PyBytes_Check(description.attributes)) /* None */
        description.attributes = NULL;
    for (Py_ssize_t i = 0; i < kinds_count; i++)
        arrays += description.kinds[i] < INT;
    if (PyTuple_Size(description.coders) > MOST_ARGUMENTS || kinds_count != PyTuple_Size(args) || kinds_count > MOST_ARGUMENTS || arrays > MOST_ARRAYS) {
        declined(BECAUSE_COUNT);
        Py_RETURN_FALSE;
    }
    for (Py_ssize_t i = 0; i < kinds_count; i++)
        array[i] = PyTuple_GetItem(args, i);
    description.args = array;
    description.count = kinds_count;
    description.served = (void *)(uintptr_t)served;
    description.in_flight = (SHARED(unsigned) *)(uintptr_t)in_flight;
    return add_described(self, &description);
}

static PyObject *specializations_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    (void)args, (void)keywords;
    return PyType_GenericAlloc(type, 0);
}

static void specializations_dealloc(Specializations *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    for (Specialization *each = self->all, *next; each; each = next) {
        next = each->next;
        free_specialization(each);
    }
    for (ArgumentTypes *each = self->all_types, *next; each; each = next) {
        next = each->next;
        free_types(each);
    }
    for (Table *table = READ(self->table), *previous; table; table = previous) {
        previous = table->previous;
        PyMem_Free(table);
    }
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef specializations_methods[] = {
    {"add", (PyCFunction)specializations_add, METH_VARARGS,
     "add(args, kinds, candidates, coders, live, in_flight, device, needs_context, limits, element, counts, served, attributes, only) "
     "-> bool\n\n"
     "Add a specialization for arguments of these types. Return False if not all candidates accept an argument, if it is there\n"
     "already, or if there is no room. A candidate is a tuple (ArgumentLayout, kernel, block, best[, threads, shared, attributes]), a coder\n"
     "(argument, any dimensions, has type, is value, ((is equal, number), ...)); element(dtype) returns the name of an element type."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot specializations_slots[] = {
    {Py_tp_doc, "Specializations(): the cached launch plans of one kernel, by argument types, for one set of loaded images."},
    {Py_tp_new, specializations_new},
    {Py_tp_dealloc, specializations_dealloc},
    {Py_tp_methods, specializations_methods},
    {0, NULL},
};

static PyType_Spec specializations_spec = {"aotcuda.runtime.launch.fast._launch.Specializations", sizeof(Specializations), 0,
                                           Py_TPFLAGS_DEFAULT, specializations_slots};

int specializations_init(PyObject *module) {
    if (!specializations_type && !(specializations_type = (PyTypeObject *)PyType_FromSpec(&specializations_spec)))
        return -1;
    return PyModule_AddObjectRef(module, "Specializations", (PyObject *)specializations_type);
}
