/* The extension module: its types and functions, which the other files make. */
#include "launch.h"

enum { VERSION = 31 }; /* of the interface to Python, as aotcuda/runtime/fast/__init__.py has it */

static int execute(PyObject *module) {
    PyMethodDef *const functions[] = {streams_functions, launcher_functions, xla_functions};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (PyModule_AddFunctions(module, functions[i]))
            return -1;
    return arrays_init() || streams_init() || block_init(module) || specializations_init(module) || launcher_init(module) ||
                   layers_init(module) || PyModule_AddIntConstant(module, "VERSION", VERSION)
               ? -1
               : 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
#ifdef Py_MOD_GIL_NOT_USED /* headers of 3.15 name the slot for every stable ABI, and its value from 3.13's on */
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "aotcuda.runtime.fast._launch", .m_doc = "aotcuda's fast path of a launch.", .m_slots = slots};

PyMODINIT_FUNC PyInit__launch(void) { return PyModuleDef_Init(&definition); }
