// C++ functions in both ABIs that call Python functions, which call C++ functions in turn.

extern "C" __device__ float py_outer(float x); // exported from Python with the C ABI
extern "C" __device__ float py_inner(float x);

extern "C" __device__ float cpp_c(float x) // Numba -> C: called by Python
{
    return py_outer(x) + 1.0f; // C -> C, back into Python
}

extern "C" __device__ int cpp_numba(float *result, float x) // called by Python's py_outer: C -> Numba
{
    *result = py_inner(x) * 2.0f; // and on into Python again
    return 0;
}

extern "C" __device__ float cpp_last(float x)
{
    return x * x;
}

extern "C" __device__ int cpp_failing(float *result, float x) // a status other than 0 is an exception to Numba
{
    *result = x;
    return x > 0.0f ? 1 : 0;
}
