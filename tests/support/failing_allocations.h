/* Let each call of the extension that allocates fail once: compile with -include. The calls are in the table of sites. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct {
    const char *file;
    long line, failed;
} Site;

#define SHARED_HERE __attribute__((weak, visibility("default")))
extern Site __start_sites[] __attribute__((visibility("hidden"))), __stop_sites[] __attribute__((visibility("hidden")));
SHARED_HERE long calls_until_failure = -1; /* -1: none fails */
SHARED_HERE const Site *site_at(long number) { return number < __stop_sites - __start_sites ? &__start_sites[number] : NULL; }

#define FAILS(error, failure, call)                                                                               \
    ({                                                                                                            \
        static Site site_ __attribute__((section("sites"), used, aligned(8))) = {__FILE__, __LINE__, 0};                      \
        int fails_ = calls_until_failure >= 0 && calls_until_failure-- == 0;                                      \
        site_.failed += fails_;                                                                                   \
        fails_ ? ((void)(error), failure) : (call);                                                               \
    })
#define NO_OBJECT(call) FAILS(PyErr_NoMemory(), NULL, call)
#define NO_SUCCESS(call) FAILS(PyErr_NoMemory(), -1, call)

#define PyMem_Malloc(...) FAILS(0, NULL, PyMem_Malloc(__VA_ARGS__))
#define PyMem_Calloc(...) FAILS(0, NULL, PyMem_Calloc(__VA_ARGS__))
#ifdef Py_BuildValue /* before 3.13 */
#undef Py_BuildValue
#define BUILD_VALUE _Py_BuildValue_SizeT
#else
#define BUILD_VALUE Py_BuildValue
#endif
#define Py_BuildValue(...) NO_OBJECT(BUILD_VALUE(__VA_ARGS__))
#define PyBytes_FromStringAndSize(...) NO_OBJECT(PyBytes_FromStringAndSize(__VA_ARGS__))
#define PyCapsule_New(...) NO_OBJECT(PyCapsule_New(__VA_ARGS__))
#define PyDict_Keys(...) NO_OBJECT(PyDict_Keys(__VA_ARGS__))
#define PyDict_New() NO_OBJECT(PyDict_New())
#define PyList_AsTuple(...) NO_OBJECT(PyList_AsTuple(__VA_ARGS__))
#define PyList_New(...) NO_OBJECT(PyList_New(__VA_ARGS__))
#define PyLong_FromLong(...) NO_OBJECT(PyLong_FromLong(__VA_ARGS__))
#define PyLong_FromUnsignedLongLong(...) NO_OBJECT(PyLong_FromUnsignedLongLong(__VA_ARGS__))
#define PyTuple_New(...) NO_OBJECT(PyTuple_New(__VA_ARGS__))
#define PyTuple_Pack(...) NO_OBJECT(PyTuple_Pack(__VA_ARGS__))
#define PyType_FromSpec(...) NO_OBJECT(PyType_FromSpec(__VA_ARGS__))
#define PyType_GenericAlloc(...) NO_OBJECT(PyType_GenericAlloc(__VA_ARGS__))
#define PyUnicode_FromString(...) NO_OBJECT(PyUnicode_FromString(__VA_ARGS__))
#define PyUnicode_InternFromString(...) NO_OBJECT(PyUnicode_InternFromString(__VA_ARGS__))
#define PyDict_SetItem(...) NO_SUCCESS(PyDict_SetItem(__VA_ARGS__))
#define PyDict_SetItemString(...) NO_SUCCESS(PyDict_SetItemString(__VA_ARGS__))
#define PyList_Append(...) NO_SUCCESS(PyList_Append(__VA_ARGS__))
#define PyModule_AddFunctions(...) NO_SUCCESS(PyModule_AddFunctions(__VA_ARGS__))
#define PyModule_AddIntConstant(...) NO_SUCCESS(PyModule_AddIntConstant(__VA_ARGS__))
#define PyModule_AddObjectRef(...) NO_SUCCESS(PyModule_AddObjectRef(__VA_ARGS__))
