/* Triton's heuristics and autotuners around a kernel: Layered does the same as `run` of each, and launches.
 *
 * Each is a layer. A layer of heuristics calls its functions; an autotuner's layer adds the config from its `cache`. Their attributes are
 * read at each launch. If a layer needs more, its method `run_by_triton` continues with the arguments that the outer layers have added,
 * so that no function is called twice. */
#include "launch.h"

enum { DECLINED = 0, DONE = 1, FAILED = -1 };

typedef struct Layered {
    PyObject_HEAD
    Vectorcall vectorcall;
    PyObject *layers;      /* a tuple: the layers from the outside, then the innermost function */
    PyObject *kinds;       /* bytes, one for each layer: 'h' heuristics, 't' an autotuner */
    PyObject *arg_names;   /* the kernel's list of names; layers that have another one decline */
    PyObject *arg_set;     /* the same as a frozenset */
    PyObject *cache_type;  /* the type of `cache`, if it is not dict */
    PyObject *config_type; /* the type of configs whose `all_kwargs` depends on their attributes alone */
    PyObject *kwargs_cache; /* results of `all_kwargs`: by address, the config, its attributes, the result */
    PyObject *literals;    /* tuples (name, argument, answer) of arguments that the launcher computes: see are_literal */
    struct Layered *base;  /* has the members above; NULL in the base itself, which lacks the members below */
    PyObject *launcher;    /* of the kernel with the grid; None if the innermost function is no packaged kernel */
    PyObject *grid;
} Layered;

/* The arguments of a launch. The dict has references to the objects that layers have added. */
typedef struct {
    PyObject *values[MOST_ARGUMENTS]; /* the positional arguments, then the named ones */
    PyObject *names[MOST_ARGUMENTS];
    Py_ssize_t count, named;
    PyObject *given; /* the dict for heuristics, as in Triton: positional arguments, grid, warmup, named arguments */
} Call;

static PyTypeObject *layered_type;
static PyObject *s_values, *s_fn, *s_arg_names, *s_keys, *s_configs, *s_cache, *s_dtype, *s_pre_hook, *s_all_kwargs, *s_best_config,
    *s_nargs, *s_grid, *s_warmup, *s_run, *s_run_by_triton, *s_kwargs, *s_dict;

/* ------------------------------------------------------------------------------------------------------------------ arguments */

/* Read the arguments of a call; 0, perhaps with an error, if there are too many. */
static int read_call(Call *call, const Layered *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    Py_ssize_t named = names ? PyTuple_Size(names) : 0, known = PyList_Size(self->arg_names);
    call->count = count;
    call->named = named;
    call->given = NULL;
    if (count + named > MOST_ARGUMENTS)
        return 0;
    int made = (call->given = PyDict_New()) != NULL;
    for (Py_ssize_t i = 0; made && i < count + named; i++) {
        call->values[i] = args[i];
        if (i >= count)
            call->names[i - count] = PyTuple_GetItem(names, i - count);
        else if (i < known)
            made = PyDict_SetItem(call->given, PyList_GetItem(self->arg_names, i), args[i]) == 0;
    }
    return made;
}

/* Add the grid and the named arguments, as Triton's `kernel[grid](...)` passes them to `run`. */
static int add_named(const Call *call, PyObject *grid, PyObject *into) {
    int made = PyDict_SetItem(into, s_grid, grid) == 0 && PyDict_SetItem(into, s_warmup, Py_False) == 0;
    for (Py_ssize_t i = 0; made && i < call->named; i++)
        made = PyDict_SetItem(into, call->names[i], call->values[call->count + i]) == 0;
    return made;
}

static Py_ssize_t index_of(const Call *call, PyObject *name) {
    for (Py_ssize_t i = 0; i < call->named; i++)
        if (call->names[i] == name || PyUnicode_Compare(call->names[i], name) == 0)
            return i;
    return -1;
}

/* Set a named argument, which replaces one of the same name. The caller has checked that there is room, and that no positional argument
 * has the name. */
static int set_argument(Call *call, PyObject *name, PyObject *value) {
    Py_ssize_t at = call->named;
    int is_known = PyDict_Contains(call->given, name);
    Py_INCREF(name);
    PyUnicode_InternInPlace(&name); /* the launcher compares addresses */
    if (is_known > 0) {
        at = index_of(call, name);
    } else {
        call->names[at] = name;
        call->named++;
    }
    call->values[call->count + at] = value;
    int made = is_known >= 0 && PyDict_SetItem(call->given, name, value) == 0;
    Py_DECREF(name);
    return made;
}

/* Return 1 if a layer may set an argument of this name. Triton refuses the name of a positional argument. */
static int may_set(const Call *call, PyObject *name, int may_replace) {
    return PyUnicode_CheckExact(name) && (!PyDict_Contains(call->given, name) || (may_replace && index_of(call, name) >= 0));
}

/* --------------------------------------------------------------------------------------------------------------------- layers */

/* Call the functions of heuristics, each with a copy of the dict. */
static int run_heuristics(Call *call, PyObject *layer) {
    PyObject *values = PyObject_GetAttr(layer, s_values), *items = NULL;
    int state = values && PyDict_CheckExact(values) && (items = PyDict_Items(values)) ? DONE : DECLINED;
    Py_ssize_t count = items ? PyList_Size(items) : 0;
    if (call->count + call->named + count > MOST_ARGUMENTS)
        state = DECLINED;
    for (Py_ssize_t i = 0; state == DONE && i < count; i++)
        state = may_set(call, PyTuple_GetItem(PyList_GetItem(items, i), 0), 1) ? DONE : DECLINED;
    for (Py_ssize_t i = 0; state == DONE && i < count; i++) {
        PyObject *item = PyList_GetItem(items, i), *copy = PyDict_Copy(call->given);
        PyObject *value = copy ? PyObject_CallFunctionObjArgs(PyTuple_GetItem(item, 1), copy, NULL) : NULL;
        state = value && set_argument(call, PyTuple_GetItem(item, 0), value) ? DONE : FAILED;
        Py_XDECREF(copy);
        Py_XDECREF(value);
    }
    Py_XDECREF(values);
    Py_XDECREF(items);
    return state;
}

/* Return 1 if objects of this type never have a dtype. */
static int has_no_dtype(PyObject *value) {
    return PyLong_CheckExact(value) || PyFloat_CheckExact(value) || PyBool_Check(value) || value == Py_None ||
           PyUnicode_CheckExact(value) || PyTuple_CheckExact(value);
}

/* Append the dtypes of arguments to a key, in the order of the dict; 0 and an error, as Triton raises it. */
static int append_dtypes(const Call *call, const Layered *self, PyObject *key) {
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(call->given, &at, &name, &value)) { /* no other code has the dict */
        int is_argument = has_no_dtype(value) ? 0 : PySet_Contains(self->arg_set, name);
        PyObject *dtype = is_argument > 0 ? PyObject_GetAttr(value, s_dtype) : NULL;
        if (!dtype && is_argument > 0 && PyErr_ExceptionMatches(PyExc_AttributeError))
            PyErr_Clear();
        PyObject *text = dtype ? PyObject_Str(dtype) : NULL;
        if (text)
            PyList_Append(key, text);
        Py_XDECREF(text);
        Py_XDECREF(dtype);
        if (PyErr_Occurred())
            return 0;
    }
    return 1;
}

/* Return an autotuner's key as a tuple; NULL, perhaps with an error, if it cannot be computed here. */
static PyObject *key_of(const Call *call, const Layered *self, PyObject *layer) {
    PyObject *names = PyObject_GetAttr(layer, s_keys), *key = names && PyList_CheckExact(names) ? PyList_New(0) : NULL;
    int made = key != NULL;
    for (Py_ssize_t i = 0; made && i < PyList_Size(names); i++) {
        PyObject *name = PyList_GetItem(names, i);
        PyObject *value = PyUnicode_CheckExact(name) && PySet_Contains(self->arg_set, name) > 0 ? PyDict_GetItemWithError(call->given, name) : NULL;
        made = !PyErr_Occurred() && (!value || PyList_Append(key, value) == 0);
    }
    PyObject *result = made && append_dtypes(call, self, key) ? PyList_AsTuple(key) : NULL;
    Py_XDECREF(names);
    Py_XDECREF(key);
    return result;
}

/* Return the config of a launch; NULL, perhaps with an error, if `cache` lacks it. */
static PyObject *config_of(const Call *call, const Layered *self, PyObject *layer) {
    PyObject *configs = PyObject_GetAttr(layer, s_configs), *found = NULL, *cache = NULL, *key = NULL;
    Py_ssize_t count = configs && PyList_CheckExact(configs) ? PyList_Size(configs) : 0;
    if (count == 1) {
        found = Py_NewRef(PyList_GetItem(configs, 0));
    } else if (count && (cache = PyObject_GetAttr(layer, s_cache)) &&
               (PyDict_CheckExact(cache) || (PyObject *)Py_TYPE(cache) == self->cache_type)) {
        key = key_of(call, self, layer);
        if (key && !(found = PyObject_GetItem(cache, key)) && PyErr_ExceptionMatches(PyExc_KeyError))
            PyErr_Clear();
    }
    Py_XDECREF(configs);
    Py_XDECREF(cache);
    Py_XDECREF(key);
    return found;
}

/* Compare the items of a dict with the items of a tuple from `at` on, by identity; if the tuple is NULL, append them to a list. */
static int same_items(PyObject *dict, PyObject *tuple, Py_ssize_t at, PyObject *list) {
    PyObject *parts[2];
    int same = list || at + 2 * PyDict_Size(dict) <= PyTuple_Size(tuple);
    for (Py_ssize_t place = 0; same && PyDict_Next(dict, &place, &parts[0], &parts[1]);)
        for (int i = 0; same && i < 2; i++)
            same = list ? PyList_Append(list, parts[i]) == 0 : parts[i] == PyTuple_GetItem(tuple, at++);
    return same;
}

/* Return `all_kwargs()` of a config, from the cache if its attributes are the same: comparing them is faster. */
static PyObject *all_kwargs(const Layered *self, PyObject *config) {
    PyObject *own = PyObject_GetAttr(config, s_dict), *constants = own ? PyDict_GetItemWithError(own, s_kwargs) : NULL;
    PyObject *key = NULL, *known = NULL, *result = NULL, *list = NULL, *state = NULL;
    if (constants && PyDict_CheckExact(constants) && (PyObject *)Py_TYPE(config) == self->config_type)
        key = PyLong_FromVoidPtr(config);
    if (key && (known = PyDict_GetItemWithError(self->kwargs_cache, key))) {
        state = PyTuple_GetItem(known, 1);
        Py_ssize_t size = 2 * PyDict_Size(own);
        if (PyTuple_Size(state) == size + 2 * PyDict_Size(constants) && same_items(own, state, 0, NULL) &&
            same_items(constants, state, size, NULL))
            result = Py_NewRef(PyTuple_GetItem(known, 2));
    }
    if (!result && !PyErr_Occurred() && (result = PyObject_CallMethodObjArgs(config, s_all_kwargs, NULL)) && key) {
        list = PyList_New(0);
        state = list && same_items(own, NULL, 0, list) && same_items(constants, NULL, 0, list) ? PyList_AsTuple(list) : NULL;
        known = state ? PyTuple_Pack(3, config, state, result) : NULL;
        if (!known || PyDict_SetItem(self->kwargs_cache, key, known))
            Py_CLEAR(result);
        Py_XDECREF(known);
        Py_XDECREF(state);
        Py_XDECREF(list);
    }
    Py_XDECREF(own);
    Py_XDECREF(key);
    return result;
}

/* Add the constants and options of an autotuner's config. */
static int run_autotuner(Call *call, const Layered *self, PyObject *layer) {
    PyObject *config = config_of(call, self, layer), *hook = config ? PyObject_GetAttr(config, s_pre_hook) : NULL;
    PyObject *named = hook == Py_None ? all_kwargs(self, config) : NULL, *name, *value;
    int state = named && PyDict_CheckExact(named) && call->count + call->named + PyDict_Size(named) <= MOST_ARGUMENTS ? DONE : DECLINED;
    for (Py_ssize_t at = 0; state == DONE && PyDict_Next(named, &at, &name, &value);)
        state = may_set(call, name, 0) ? DONE : DECLINED; /* Triton refuses names that a launch and a config both give */
    if (state == DONE && PyObject_SetAttr(layer, s_best_config, config))
        state = FAILED;
    for (Py_ssize_t at = 0; state == DONE && PyDict_Next(named, &at, &name, &value);)
        state = set_argument(call, name, value) ? DONE : FAILED;
    Py_XDECREF(config);
    Py_XDECREF(hook);
    Py_XDECREF(named);
    return state;
}

/* Set `nargs` of an autotuner as its `run` does: at first to the positional arguments, in the end to None. */
static int set_nargs(const Layered *self, Py_ssize_t at, PyObject *nargs) {
    return PyBytes_AsString(self->kinds)[at] != 't' || PyObject_SetAttr(PyTuple_GetItem(self->layers, at), s_nargs, nargs) == 0;
}

/* Do the same as `run` of a layer before it calls `run` of the inner layer. */
static int run_layer(Call *call, const Layered *self, Py_ssize_t at) {
    PyObject *layer = PyTuple_GetItem(self->layers, at);
    PyObject *inner = PyObject_GetAttr(layer, s_fn), *names = PyObject_GetAttr(layer, s_arg_names);
    int is_known = inner == PyTuple_GetItem(self->layers, at + 1) && names == self->arg_names;
    Py_XDECREF(inner);
    Py_XDECREF(names);
    if (!is_known)
        return PyErr_Occurred() ? FAILED : DECLINED;
    return PyBytes_AsString(self->kinds)[at] == 'h' ? run_heuristics(call, layer) : run_autotuner(call, self, layer);
}

/* ---------------------------------------------------------------------------------------------------------------------- calls */

/* Call a method with Triton's interface, with the arguments, the grid and the arguments of the layers. */
static PyObject *call_run(const Call *call, PyObject *item, PyObject *method, PyObject *grid) {
    PyObject *args = PyTuple_New(call->count), *named = PyDict_New(), *bound = PyObject_GetAttr(item, method), *result = NULL;
    if (args && named && bound && add_named(call, grid, named)) {
        for (Py_ssize_t i = 0; i < call->count; i++)
            PyTuple_SetItem(args, i, Py_NewRef(call->values[i]));
        result = PyObject_Call(bound, args, named);
    }
    Py_XDECREF(args);
    Py_XDECREF(named);
    Py_XDECREF(bound);
    return result;
}

/* Return 1 if the layers have set each argument that the launcher computes itself (is another argument None?) to the launcher's value.
 * The launcher ignores the given value, so another value must not reach it. */
static int are_literal(const Call *call, PyObject *literals) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(literals); i++) {
        PyObject *each = PyTuple_GetItem(literals, i), *source = PyDict_GetItemWithError(call->given, PyTuple_GetItem(each, 1));
        Py_ssize_t at = index_of(call, PyTuple_GetItem(each, 0));
        PyObject *answer = (source == Py_None) == (PyTuple_GetItem(each, 2) == Py_True) ? Py_True : Py_False;
        if (!source || at < 0 || call->values[call->count + at] != answer)
            return 0;
    }
    return 1;
}

static PyObject *launch_layered(PyObject *launcher, Call *call) {
    PyObject *names = PyTuple_New(call->named), *result = NULL;
    for (Py_ssize_t i = 0; names && i < call->named; i++)
        PyTuple_SetItem(names, i, Py_NewRef(call->names[i]));
    if (names)
        result = ((Launcher *)launcher)->vectorcall(launcher, call->values, (size_t)call->count, names);
    Py_XDECREF(names);
    return result;
}

/* Make the dict for heuristics, and a copy of it without the named arguments; 0 and an error, as Triton raises it. */
static int make_given(Call *call, PyObject *grid, PyObject **positional) {
    if (!(*positional = PyDict_Copy(call->given)) || !add_named(call, grid, call->given))
        return 0;
    PyObject *twice = index_of(call, s_grid) >= 0 ? s_grid : index_of(call, s_warmup) >= 0 ? s_warmup : NULL;
    if (twice)
        PyErr_Format(PyExc_TypeError, "run() got multiple values for keyword argument '%U'", twice);
    return !twice;
}

/* Call by the protocol of PEP 590. */
static PyObject *layered_vectorcall(PyObject *object, PyObject *const *args, size_t flagged, PyObject *names) {
    const Layered *front = (const Layered *)object, *self = front->base;
    Call call;
    PyObject *positional = NULL, *result = NULL, *grid = front->grid;
    Py_ssize_t at = 0, count = (Py_ssize_t)(flagged & ~((size_t)1 << (8 * sizeof(size_t) - 1)));
    Py_ssize_t layers = PyBytes_Size(self->kinds);
    int state = read_call(&call, self, args, count, names) ? DONE : FAILED;
    if (state == FAILED && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "more than %d arguments", MOST_ARGUMENTS);
    if (state == DONE && !make_given(&call, grid, &positional))
        state = FAILED;
    for (; state == DONE && at < layers; at += state == DONE)
        state = set_nargs(self, at, positional) ? run_layer(&call, self, at) : FAILED;
    if (state == FAILED || PyErr_Occurred())
        result = NULL; /* with the error of `run` */
    else if (state == DECLINED)
        result = call_run(&call, PyTuple_GetItem(self->layers, at), s_run_by_triton, grid);
    else if (front->launcher != Py_None && are_literal(&call, self->literals))
        result = launch_layered(front->launcher, &call);
    else
        result = call_run(&call, PyTuple_GetItem(self->layers, at), s_run, grid);
    while (result && at--)
        if (!set_nargs(self, at, Py_None))
            Py_CLEAR(result);
    Py_XDECREF(positional);
    Py_XDECREF(call.given);
    return result;
}

static PyObject *uncallable(PyObject *object, PyObject *const *args, size_t flagged, PyObject *names) {
    (void)object, (void)args, (void)flagged, (void)names;
    PyErr_SetString(PyExc_TypeError, "it has no grid");
    return NULL;
}

/* ---------------------------------------------------------------------------------------------------------- the Python object */

static PyObject *layered_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    (void)keywords;
    PyObject *layers, *kinds, *arg_names, *cache_type, *config_type, *literals;
    if (!PyArg_ParseTuple(args, "O!SO!OOO!", &PyTuple_Type, &layers, &kinds, &PyList_Type, &arg_names, &cache_type, &config_type,
                          &PyTuple_Type, &literals))
        return NULL;
    if (PyBytes_Size(kinds) + 1 != PyTuple_Size(layers)) {
        PyErr_SetString(PyExc_ValueError, "layers and kinds differ in number");
        return NULL;
    }
    Layered *self = (Layered *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    self->vectorcall = uncallable;
    self->layers = Py_NewRef(layers);
    self->kinds = Py_NewRef(kinds);
    self->arg_names = Py_NewRef(arg_names);
    self->cache_type = Py_NewRef(cache_type);
    self->config_type = Py_NewRef(config_type);
    self->literals = Py_NewRef(literals);
    if (!(self->kwargs_cache = PyDict_New()) || !(self->arg_set = PyFrozenSet_New(arg_names)))
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *layered_with_grid(Layered *self, PyObject *args) {
    PyObject *launcher, *grid;
    if (!PyArg_ParseTuple(args, "OO", &launcher, &grid))
        return NULL;
    if (self->base || (launcher != Py_None && Py_TYPE(launcher) != launcher_type))
        return Py_NewRef(Py_None);
    Layered *made = (Layered *)PyType_GenericAlloc(layered_type, 0);
    if (made) {
        made->vectorcall = layered_vectorcall;
        made->base = (Layered *)Py_NewRef((PyObject *)self);
        made->launcher = Py_NewRef(launcher);
        made->grid = Py_NewRef(grid);
    }
    return (PyObject *)made;
}

static int layered_traverse(Layered *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->layers);
    Py_VISIT(self->kwargs_cache);
    Py_VISIT(self->base);
    Py_VISIT(self->launcher);
    Py_VISIT(self->grid);
    return 0; /* the other members refer to nothing that can refer back */
}

/* Layers refer to the base. Launches with it fail from now on. */
static int layered_clear(Layered *self) {
    if (self->kwargs_cache)
        PyDict_Clear(self->kwargs_cache);
    return 0;
}

static void layered_dealloc(Layered *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->layers);
    Py_XDECREF(self->kinds);
    Py_XDECREF(self->arg_names);
    Py_XDECREF(self->arg_set);
    Py_XDECREF(self->cache_type);
    Py_XDECREF(self->config_type);
    Py_XDECREF(self->literals);
    Py_XDECREF(self->kwargs_cache);
    Py_XDECREF((PyObject *)self->base);
    Py_XDECREF(self->launcher);
    Py_XDECREF(self->grid);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef layered_methods[] = {
    {"with_grid", (PyCFunction)layered_with_grid, METH_VARARGS,
     "with_grid(launcher, grid) -> Layered | None\n\nReturn a callable that launches with a grid; None if the launcher is not the fast\n"
     "path's. The launcher is None if the innermost function is no packaged kernel."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef layered_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Layered, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot layered_slots[] = {
    /* The arguments of the constructor: layers and innermost function, kinds, arg_names, cache_type, config_type, literals. */
    {Py_tp_doc, "A Triton kernel with a grid, and heuristics and autotuners around it; call it with the kernel's arguments."},
    {Py_tp_new, layered_new},
    {Py_tp_call, call_by_vector},
    {Py_tp_members, layered_members},
    {Py_tp_methods, layered_methods},
    {Py_tp_traverse, layered_traverse},
    {Py_tp_clear, layered_clear},
    {Py_tp_dealloc, layered_dealloc},
    {0, NULL},
};

static PyType_Spec layered_spec = {"aotcuda.runtime.fast._launch.Layered", sizeof(Layered), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, layered_slots};

int layers_init(PyObject *module) {
    static const struct {
        PyObject **place;
        const char *text;
    } names[] = {{&s_values, "values"}, {&s_fn, "fn"}, {&s_arg_names, "arg_names"}, {&s_keys, "keys"}, {&s_configs, "configs"},
                 {&s_cache, "cache"}, {&s_dtype, "dtype"}, {&s_pre_hook, "pre_hook"}, {&s_all_kwargs, "all_kwargs"},
                 {&s_best_config, "best_config"}, {&s_nargs, "nargs"}, {&s_grid, "grid"}, {&s_warmup, "warmup"}, {&s_run, "run"},
                 {&s_run_by_triton, "run_by_triton"}, {&s_kwargs, "kwargs"}, {&s_dict, "__dict__"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!*names[i].place && !(*names[i].place = PyUnicode_InternFromString(names[i].text)))
            return -1;
    if (!layered_type && !(layered_type = (PyTypeObject *)PyType_FromSpec(&layered_spec)))
        return -1;
    return PyModule_AddObjectRef(module, "Layered", (PyObject *)layered_type);
}
