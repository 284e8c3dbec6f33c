/* The extension module, with the types and functions of the other files. */
#include "launch.h"

enum { VERSION = 39 }; /* of the interface to Python; equal to _VERSION in aotcuda/runtime/launch/fast/__init__.py */

static SHARED(unsigned long long) counts[REASONS_END];

/* Count a reason to decline, and return it as the result of a launch. */
int declined(int reason) {
    ADD(counts[reason], 1);
    return -reason;
}

static PyObject *declines(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
#define NAME_OF_REASON(name) #name,
    static const char *const names[] = {NULL, REASONS(NAME_OF_REASON)};
#undef NAME_OF_REASON
    PyObject *result = PyDict_New();
    for (int i = 1; result && i < REASONS_END; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(READ(counts[i]));
        if (!number || PyDict_SetItemString(result, names[i], number))
            Py_CLEAR(result);
        Py_XDECREF(number);
    }
    return result;
}

static PyMethodDef module_functions[] = {
    {"declines", declines, METH_NOARGS, "declines() -> {reason: count}\n\nReturn how often C has declined, by the names of REASONS in launch.h."},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module) {
    PyMethodDef *const functions[] = {module_functions, streams_functions, launcher_functions, xla_functions};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (PyModule_AddFunctions(module, functions[i]))
            return -1;
    return arrays_init() || streams_init() || block_init(module) || specializations_init(module) || launcher_init(module) ||
                   PyModule_AddIntConstant(module, "VERSION", VERSION)
               ? -1
               : 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
#ifdef Py_MOD_GIL_NOT_USED /* some headers define the slot for an older stable ABI, but its value only from 3.13 on */
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "aotcuda.runtime.launch.fast._launch", .m_doc = "aotcuda's fast path of a launch.", .m_slots = slots};

PyMODINIT_FUNC PyInit__launch(void) { return PyModuleDef_Init(&definition); }
