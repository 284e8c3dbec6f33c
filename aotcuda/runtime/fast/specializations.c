/* Specializations: what the launchers of a kernel know of argument types that were launched before. launch.h shows the data.
 *
 * add() is called by Python after a launch (aotcuda/runtime/specialize.py). It reads the arguments as a launch would, and
 * compares what it reads with what the overloads take: an argument may be another one now than it was for the launch.
 */
#include "launch.h"

PyTypeObject *specializations_type;

/* ------------------------------------------------------------------------------------------------------------ finding */

static int types_match(const ArgumentTypes *types, PyObject *const *args, Py_ssize_t count) {
    if (types->count != count)
        return 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (Py_TYPE(args[i]) != types->types[i])
            return 0;
    return 1;
}

/* Return the types of these arguments, NULL if the table has no specialization for them. */
const ArgumentTypes *find_types(const Table *table, PyObject *const *args, Py_ssize_t count) {
    const ArgumentTypes *last = READ(((Table *)table)->last)->types;
    if (types_match(last, args, count))
        return last;
    for (int i = 0; i < table->types_count; i++)
        if (types_match(table->types[i], args, count))
            return table->types[i];
    return NULL;
}

static int is_for(const Specialization *specialization, const ArgumentTypes *types, void *context, const ArrayView *views) {
    if (specialization->types != types || specialization->context != context)
        return 0;
    for (int i = 0; i < types->arrays_count; i++)
        if (views[i].element != specialization->arrays[i].element || views[i].ndim != specialization->arrays[i].ndim)
            return 0;
    return 1;
}

/* Return the specialization for arguments of these types and arrays of these element types, NULL if there is none. */
const Specialization *find_specialization(Table *table, const ArgumentTypes *types, void *context, const ArrayView *views) {
    const Specialization *last = READ(table->last);
    if (is_for(last, types, context, views))
        return last;
    for (int i = table->count - 1; i >= 0; i--)
        if (is_for(table->specializations[i], types, context, views)) {
            WRITE(table->last, table->specializations[i]);
            return table->specializations[i];
        }
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------- launches under way */

enum { CELLS = 16, CELL = 16 }; /* of Mark.flights in aotcuda/runtime/driver.py: a counter every 64 bytes, which is a cache line */

/* Return the counter for this thread. Threads that launch at once without the GIL should not have to share one. */
static SHARED(unsigned) *counter_of(const Specialization *specialization) {
#ifdef Py_GIL_DISABLED
    static _Thread_local char here;
    uint64_t hash = (uint64_t)(uintptr_t)&here * 0x9E3779B97F4A7C15u;
    return &specialization->in_flight[CELL * ((hash ^ hash >> 29) % CELLS)];
#else
    return specialization->in_flight;
#endif
}

/* Count a launch that is under way; 0 if the images were unloaded. No Python code may run until end_launch(). */
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

/* Return the types of some arguments, to be read in the ways that `kinds` says; NULL, and an error, without memory. */
static const ArgumentTypes *make_types(PyObject *const *args, const char *kinds, Py_ssize_t count) {
    ArgumentTypes *types = PyMem_Calloc(1, sizeof(ArgumentTypes) + (size_t)count * (sizeof(PyTypeObject *) + sizeof(Reader)));
    if (!types) {
        PyErr_NoMemory();
        return NULL;
    }
    types->readers = (Reader *)(types + 1);
    types->types = (PyTypeObject **)(types->readers + count);
    types->count = (int)count;
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
    return types;
}

static int kind_of(const ArgumentTypes *types, int at) {
    const Reader *reader = types->readers;
    while (reader->at != at)
        reader++;
    return reader->kind;
}

/* ------------------------------------------------------------------------------------------------------ making a specialization */

/* What Python says of a specialization. */
typedef struct {
    PyObject *const *args;
    Py_ssize_t count;
    const char *kinds; /* how each argument is read */
    PyObject *candidates, *live, *element;
    int device, needs_context;
    SHARED(unsigned) *in_flight;
    unsigned limits[LIMITS];
} Description;

static void free_specialization(Specialization *specialization) {
    for (int i = 0; i < specialization->candidates_count; i++)
        Py_XDECREF((PyObject *)specialization->candidates[i].layout);
    if (READ(specialization->event) && !READ(fast_path_disabled))
        driver.destroy_event(READ(specialization->event));
    Py_XDECREF(specialization->dtypes);
    Py_XDECREF(specialization->live);
    PyMem_Free(specialization->candidates);
    PyMem_Free(specialization);
}

/* Read the candidates: tuples of an ArgumentLayout, a kernel's handle, and perhaps threads of a block and shared memory. */
static int read_candidates(Specialization *specialization, PyObject *described, int arguments) {
    Py_ssize_t count = PyTuple_Size(described);
    specialization->candidates = PyMem_Calloc(count ? (size_t)count : 1, sizeof(Candidate));
    if (!specialization->candidates) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Candidate *candidate = &specialization->candidates[i];
        PyObject *object;
        unsigned long long kernel;
        if (!PyArg_ParseTuple(PyTuple_GetItem(described, i), "O!K|II", argument_layout_type, &object, &kernel, &candidate->threads,
                              &candidate->shared))
            return 0;
        ArgumentLayout *layout = (ArgumentLayout *)object;
        if (layout->count != arguments) {
            PyErr_SetString(PyExc_ValueError, "a layout for another number of arguments");
            return 0;
        }
        candidate->layout = (ArgumentLayout *)Py_NewRef(object);
        candidate->kernel = (void *)(uintptr_t)kernel;
        if (layout->size > specialization->most_bytes)
            specialization->most_bytes = layout->size;
        specialization->candidates_count = (int)i + 1;
    }
    return 1;
}

/* Return 1 if all candidates take the argument, which is an array with this view and element type if `view` is not NULL. */
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

/* Compare the arguments with what the candidates take. Return the dtypes whose addresses identify element types; NULL if an
 * argument is not what all candidates take, or on an error. */
static PyObject *verified_dtypes(Specialization *specialization, PyObject *const *args, const ArrayView *views, PyObject *name_of) {
    const ArgumentTypes *types = specialization->types;
    PyObject *dtypes = PyList_New(0);
    for (int at = 0, array = 0; dtypes && at < types->count; at++) {
        int kind = kind_of(types, at), agree;
        if (kind >= INT) {
            agree = all_take(specialization, at, kind, NULL, NULL, NULL);
        } else {
            PyObject *dtype = element_of(kind, args[at], &views[array]);
            PyObject *name = dtype ? PyObject_CallFunctionObjArgs(name_of, dtype, NULL) : NULL;
            agree = name && PyUnicode_Check(name) && PyList_Append(dtypes, dtype) == 0 &&
                    all_take(specialization, at, kind, &views[array], name, &specialization->arrays[array]);
            array++;
            Py_XDECREF(dtype);
            Py_XDECREF(name);
        }
        if (!agree)
            Py_CLEAR(dtypes);
    }
    return dtypes;
}

/* Return a specialization that is in no table yet: asking arguments can run any code, so no lock is held. NULL, perhaps
 * without an error, if there can be none. */
static Specialization *make_specialization(const ArgumentTypes *types, const Description *description, ArrayView *views) {
    LaunchStreams streams = {.any_stream = 1};
    void *context = NULL;
    int arrays = read_arrays(types, description->args, views, &streams);
    if (arrays < 0 || (description->needs_context && driver.current_context(&context))) {
        (void)is_forgiven();
        return NULL;
    }
    Specialization *made = PyMem_Calloc(1, sizeof(Specialization));
    if (!made) {
        PyErr_NoMemory();
        return NULL;
    }
    made->types = types;
    made->context = context;
    made->live = Py_NewRef(description->live);
    made->in_flight = description->in_flight;
    memcpy(made->limits, description->limits, sizeof made->limits);
    made->device = description->device;
    made->arrays_count = arrays;
    for (int i = 0; i < arrays; i++) {
        made->arrays[i].element = views[i].element;
        made->arrays[i].ndim = views[i].ndim;
    }
    if (read_candidates(made, description->candidates, types->count)) {
        made->dtypes = verified_dtypes(made, description->args, views, description->element);
        if (made->dtypes)
            return made;
        (void)is_forgiven(); /* an argument has changed, or is no array that the candidates take */
    }
    free_specialization(made);
    return NULL;
}

/* ---------------------------------------------------------------------------------------------------------------- the table */

/* Return a table with one specialization more, in the place of `replaced` if that is not NULL, and without those of images that
 * were unloaded: a launcher that somebody holds outlives them. Return NULL, perhaps without an error, if there is no room. */
static Table *extended(const Table *old, const Specialization *added, const Specialization *replaced, int needs_context) {
    Table *table = PyMem_Calloc(1, sizeof(Table));
    if (!table) {
        PyErr_NoMemory();
        return NULL;
    }
    table->previous = (Table *)old;
    table->needs_context = needs_context;
    for (int i = 0; old && i < old->count; i++)
        if (old->specializations[i] != replaced && PyList_Size(old->specializations[i]->live) > 0)
            table->specializations[table->count++] = old->specializations[i];
    if (table->count == MOST_SPECIALIZATIONS)
        goto full;
    table->specializations[table->count++] = added;
    WRITE(table->last, added);
    for (int i = 0; i < table->count; i++) {
        const ArgumentTypes *types = table->specializations[i]->types;
        int j = 0;
        while (j < table->types_count && table->types[j] != types)
            j++;
        if (j == MOST_ARGUMENT_TYPES)
            goto full;
        table->types[j] = types;
        table->types_count += j == table->types_count;
    }
    return table;
full:
    PyMem_Free(table);
    return NULL;
}

static int same_types(const ArgumentTypes *one, const ArgumentTypes *other) {
    return one->count == other->count && memcmp(one->types, other->types, (size_t)one->count * sizeof *one->types) == 0;
}

/* Put a specialization into the table, for every thread to see; 0 if it is not needed, or there is no room. The caller has the
 * object's lock. No Python code may run in here: it would let other threads in. */
static int insert(Specializations *self, Specialization *added, const ArrayView *views, int needs_context) {
    const Table *old = READ(self->table);
    const Specialization *replaced = NULL;
    for (int i = 0; old && i < old->count; i++) {
        const Specialization *other = old->specializations[i];
        if (other->types != added->types && same_types(other->types, added->types))
            return 0; /* another thread was the first to meet these types; the next launch adds */
        if (is_for(other, added->types, added->context, views))
            replaced = other;
    }
    if (self->made == MOST_MADE)
        return 0;
    if (replaced && PyList_Size(replaced->live) > 0 && memcmp(replaced->limits, added->limits, sizeof added->limits) == 0)
        return 0; /* it is known already: it declined for another reason */
    Table *table = extended(old, added, replaced, needs_context);
    if (!table)
        return 0;
    added->next = self->all;
    self->all = added;
    self->made++;
    WRITE(self->table, table);
    return 1;
}

/* ------------------------------------------------------------------------------------------------------------ the Python object */

static PyObject *add_described(Specializations *self, const Description *description) {
    const Table *table = READ(self->table);
    const ArgumentTypes *types = table ? find_types(table, description->args, description->count) : NULL;
    int is_new = !types, added = 0;
    if (is_new && !(types = make_types(description->args, description->kinds, description->count)))
        return NULL;
    ArrayView views[MOST_ARRAYS];
    Specialization *made = make_specialization(types, description, views);
    if (made) {
        Py_BEGIN_CRITICAL_SECTION(self);
        added = insert(self, made, views, description->needs_context);
        Py_END_CRITICAL_SECTION();
    }
    if (!added) {
        if (made)
            free_specialization(made);
        if (is_new)
            free_types(types);
    }
    return PyErr_Occurred() ? NULL : PyBool_FromLong(added);
}

static PyObject *specializations_add(Specializations *self, PyObject *arguments) {
    Description description;
    PyObject *args, *array[MOST_ARGUMENTS];
    Py_ssize_t kinds_count, arrays = 0;
    unsigned long long in_flight;
    unsigned *l = description.limits;
    if (!PyArg_ParseTuple(arguments, "O!y#O!O!Kip(IIIIIIII)O", &PyTuple_Type, &args, &description.kinds, &kinds_count, &PyTuple_Type,
                          &description.candidates, &PyList_Type, &description.live, &in_flight, &description.device,
                          &description.needs_context, &l[0], &l[1], &l[2], &l[3], &l[4], &l[5], &l[6], &l[7], &description.element))
        return NULL;
    for (Py_ssize_t i = 0; i < kinds_count; i++)
        arrays += description.kinds[i] < INT;
    if (kinds_count != PyTuple_Size(args) || kinds_count > MOST_ARGUMENTS || arrays > MOST_ARRAYS)
        Py_RETURN_FALSE;
    for (Py_ssize_t i = 0; i < kinds_count; i++)
        array[i] = PyTuple_GetItem(args, i);
    description.args = array;
    description.count = kinds_count;
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
        int is_last_of_types = 1; /* specializations share them */
        for (const Specialization *other = next; other; other = other->next)
            is_last_of_types &= other->types != each->types;
        if (is_last_of_types)
            free_types(each->types);
        free_specialization(each);
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
     "add(args, kinds, candidates, live, in_flight, device, needs_context, limits, element) -> bool\n\n"
     "Add a specialization for arguments like these. False, and nothing is added, if an argument is not what all of the candidates\n"
     "take, if it is known already, or if there is no room. A candidate is a tuple (ArgumentLayout, kernel[, threads, shared]);\n"
     "element(dtype) names an array's element type."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot specializations_slots[] = {
    {Py_tp_doc, "Specializations(): the launch plans of one kernel, by types of arguments, for one set of loaded images."},
    {Py_tp_new, specializations_new},
    {Py_tp_dealloc, specializations_dealloc},
    {Py_tp_methods, specializations_methods},
    {0, NULL},
};

static PyType_Spec specializations_spec = {"aotcuda.runtime.fast._launch.Specializations", sizeof(Specializations), 0,
                                           Py_TPFLAGS_DEFAULT, specializations_slots};

int specializations_init(PyObject *module) {
    if (!specializations_type && !(specializations_type = (PyTypeObject *)PyType_FromSpec(&specializations_spec)))
        return -1;
    return PyModule_AddObjectRef(module, "Specializations", (PyObject *)specializations_type);
}
