/* The extension module, with the types and functions of the other files. */
#include "launch.h"

enum { VERSION = 37 }; /* of the interface to Python; equal to _VERSION in aotcuda/runtime/launch/fast/__init__.py */

static int execute(PyObject *module) {
    PyMethodDef *const functions[] = {streams_functions, launcher_functions, xla_functions};
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
